//! Concurrent lookups.

use std::thread;

use serde::Serialize;
use sievedb::{Db, Result};
use sievedb_workload::clock::{now, thread_cpu_time};

use super::lookups::RoundKeys;
use crate::text::count;

/// Figures of concurrent lookups.
#[derive(Debug, Serialize)]
pub(crate) struct ThreadFigures {
    pub(crate) threads: usize,
    /// Lookups of all threads per second of wall-clock time.
    pub(crate) lookups_per_second: f64,
    /// CPU time per lookup, in ns.
    pub(crate) cpu_ns: f64,
}

/// Returns the powers of two below the available parallelism, and the latter.
pub(crate) fn thread_counts() -> Vec<usize> {
    let all = thread::available_parallelism().map_or(1, usize::from);
    let powers = (0..usize::BITS).map(|power| 1 << power).take_while(|&threads| threads < all);
    powers.chain([all]).collect()
}

/// Passes of each thread over all keys: a single one ends before the last thread has started.
const PASSES: usize = 5;

/// Looks up all `keys` on each of `threads` threads, each starting at another key. Does not check
/// answers: the lookups on one thread do.
///
/// # Errors
///
/// The first error of a lookup.
pub(crate) fn concurrent_lookups(
    db: &Db,
    keys: &RoundKeys,
    threads: usize,
) -> Result<ThreadFigures> {
    let look_up = |start: usize| {
        let before = thread_cpu_time();
        for index in 0..PASSES * keys.len() {
            db.get(keys.key((start + index) % keys.len()))?;
        }
        Ok(thread_cpu_time().saturating_sub(before))
    };
    let start = now();
    let cpu: Result<Vec<_>> = thread::scope(|scope| {
        let starts = (0..threads).map(|thread| keys.len() / threads * thread);
        let running: Vec<_> = starts.map(|start| scope.spawn(move || look_up(start))).collect();
        let done = running.into_iter().map(|thread| thread.join());
        done.map(|cpu| cpu.expect("a lookup does not panic")).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let lookups = (threads * PASSES * keys.len()) as f64;
    let cpu_ns: f64 = cpu?.iter().map(|cpu| cpu.as_nanos() as f64).sum();
    Ok(ThreadFigures {
        threads,
        lookups_per_second: lookups / seconds.max(f64::MIN_POSITIVE),
        cpu_ns: cpu_ns / lookups.max(1.0),
    })
}

/// Formats the figures, one line for each number of threads.
pub(crate) fn table(figures: &[ThreadFigures]) -> String {
    let lines = figures.iter().map(|ThreadFigures { threads, lookups_per_second, cpu_ns }| {
        let lookups = count(*lookups_per_second as u64);
        let plural = if *threads == 1 { "" } else { "s" };
        format!(
            "Auto, all in cache, {threads} thread{plural}: {lookups} absent keys per second, \
             {cpu_ns:.0} ns of CPU time each\n"
        )
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_increase_to_all_cores() {
        let counts = thread_counts();
        assert_eq!(counts[0], 1);
        assert!(counts.windows(2).all(|pair| pair[0] < pair[1]), "{counts:?}");
    }

    #[test]
    fn each_thread_count_has_a_line() {
        let figures = ThreadFigures { threads: 2, lookups_per_second: 1_234_567.8, cpu_ns: 99.6 };
        let want = "2 threads: 1,234,567 absent keys per second, 100 ns of CPU time each";
        assert!(table(&[figures]).contains(want));
        assert_eq!(table(&[]), "");
    }
}
