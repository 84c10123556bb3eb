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

/// Calls `here` with the first item, and meanwhile `there` with up to `threads` others, each on a
/// thread of its own. Then calls `here` with the rest, for which no thread was started. Returns the
/// results in the order of the items.
///
/// A panic continues on the calling thread, after the end of the others.
pub(crate) fn beside_threads<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    mut here: impl FnMut(&T) -> R,
    there: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let there = &there;
    thread::scope(|scope| {
        let (first, others) = items.split_at(items.len().min(1));
        let started: Vec<_> = others
            .iter()
            .take(threads)
            .zip(1..)
            .map_while(|(item, number)| {
                let thread = thread::Builder::new().name(format!("sievedb-range-{number}"));
                thread.spawn_scoped(scope, move || there(item)).ok()
            })
            .collect();
        let mut results: Vec<R> = first.iter().map(&mut here).collect();
        let of_rest: Vec<R> = others[started.len()..].iter().map(here).collect();
        for thread in started {
            results.push(thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        results.extend(of_rest);
        results
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io, panic::AssertUnwindSafe, thread::ThreadId};

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

    #[test]
    fn items_without_a_thread_are_done_on_the_calling_one() {
        let here = thread::current().id();
        for (threads, items, want) in [(0, 4, 1), (1, 4, 2), (3, 4, 4), (9, 4, 4), (9, 1, 1)] {
            let items: Vec<usize> = (0..items).collect();
            let run = |item: &usize| (*item, thread::current().id());
            let done = beside_threads(threads, &items, run, run);
            assert!(done.iter().map(|(item, _)| item).eq(&items), "{threads} threads");
            assert_eq!(done[0].1, here);
            let ids: BTreeSet<_> = done.iter().map(|(_, id)| format!("{id:?}")).collect();
            assert_eq!(ids.len(), want, "{threads} threads");
        }
        let run = |_: &u64| thread::current().id();
        assert_eq!(beside_threads(4, &[], run, run), [] as [ThreadId; 0]);
    }

    #[test]
    fn a_panic_continues_on_the_calling_thread_after_the_others() {
        for bad in 0..3 {
            let done = AtomicUsize::new(0);
            let run = |item: &u64| {
                assert_ne!(*item, bad, "planted");
                done.fetch_add(1, Relaxed);
            };
            let all = AssertUnwindSafe(|| beside_threads(2, &[0, 1, 2], run, run));
            assert!(panic::catch_unwind(all).is_err());
            assert_eq!(done.into_inner(), 2);
        }
    }
}
