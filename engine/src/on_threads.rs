//! Distributes work over several threads that end before the call returns.

use std::{
    panic,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
};

use crate::Result;

/// Calls `work` for each item, on `threads` threads including the calling one. Uses fewer if
/// threads cannot be started.
///
/// # Errors
///
/// Error of the first failed item among the started ones. After an error, no more items are
/// started.
pub(crate) fn on_threads<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let take = || {
        let mut done = Vec::new();
        while !failed.load(Relaxed) {
            let at = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(at) else { break };
            let result = work(item);
            failed.fetch_or(result.is_err(), Relaxed);
            done.push((at, result));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map_while(|number| {
                let name = format!("sievedb-open-{number}");
                thread::Builder::new().name(name).spawn_scoped(scope, take).ok()
            })
            .collect();
        let mut done = take();
        for other in others {
            match other.join() {
                Ok(of_other) => done.extend(of_other),
                Err(panic) => panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::Error;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..500).collect();
        for threads in [1, 2, 7] {
            let done = on_threads(threads, &items, |item| Ok(item * item)).unwrap();
            assert_eq!(done, items.iter().map(|item| item * item).collect::<Vec<_>>());
        }
        let none = on_threads(4, &[] as &[u64], |item| Ok(*item)).unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn the_first_error_counts_and_ends_the_work() {
        let items: Vec<u64> = (0..10_000).collect();
        for threads in [1, 2, 7] {
            let begun = AtomicUsize::new(0);
            let result = on_threads(threads, &items, |item| {
                begun.fetch_add(1, Relaxed);
                if *item < 20 {
                    return Ok(());
                }
                Err(Error::io("open", item.to_string(), io::ErrorKind::Other.into()))
            });
            let Err(Error::Io { path, .. }) = result else { panic!("{result:?}") };
            let first: u64 = path.to_str().unwrap().parse().unwrap();
            assert!((20..20 + threads as u64).contains(&first), "{threads} threads: {first}");
            assert!(begun.into_inner() <= 20 + threads, "others go on after an error");
        }
    }
}
