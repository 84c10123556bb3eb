//! Lookups by several threads at once.

use std::thread;

use serde::Serialize;
use sievedb::{Db, Result};
use sievedb_workload::clock::{now, thread_cpu_time};

use super::lookups::RoundKeys;
use crate::text::count;

/// What so many threads did together.
#[derive(Debug, Serialize)]
pub(crate) struct Crowd {
    pub(crate) threads: usize,
    /// Of all threads, in a second of real time.
    pub(crate) lookups_per_second: f64,
    /// CPU time of a lookup, in ns.
    pub(crate) cpu_ns: f64,
}

/// Numbers of threads: powers of two, and as many as the machine runs at once.
pub(crate) fn thread_counts() -> Vec<usize> {
    let all = thread::available_parallelism().map_or(1, usize::from);
    let powers = (0..usize::BITS).map(|power| 1 << power).take_while(|&threads| threads < all);
    powers.chain([all]).collect()
}

/// How often each thread asks for all keys: once is over before the last thread has begun.
const PASSES: usize = 5;

/// Each of so many threads looks all of `keys` up, from another one on. Answers are not looked at:
/// one thread alone did that.
///
/// # Errors
///
/// The first of a lookup.
pub(crate) fn crowd(db: &Db, keys: &RoundKeys, threads: usize) -> Result<Crowd> {
    let look = |start: usize| {
        let before = thread_cpu_time();
        for index in 0..PASSES * keys.len() {
            db.get(keys.key((start + index) % keys.len()))?;
        }
        Ok(thread_cpu_time().saturating_sub(before))
    };
    let start = now();
    let cpu: Result<Vec<_>> = thread::scope(|scope| {
        let starts = (0..threads).map(|thread| keys.len() / threads * thread);
        let running: Vec<_> = starts.map(|start| scope.spawn(move || look(start))).collect();
        let done = running.into_iter().map(|thread| thread.join());
        done.map(|found| found.expect("a lookup does not panic")).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let lookups = (threads * PASSES * keys.len()) as f64;
    let cpu_ns: f64 = cpu?.iter().map(|cpu| cpu.as_nanos() as f64).sum();
    Ok(Crowd {
        threads,
        lookups_per_second: lookups / seconds.max(f64::MIN_POSITIVE),
        cpu_ns: cpu_ns / lookups.max(1.0),
    })
}

/// The threads for people.
pub(crate) fn table(crowds: &[Crowd]) -> String {
    let lines = crowds.iter().map(|Crowd { threads, lookups_per_second, cpu_ns }| {
        let lookups = count(*lookups_per_second as u64);
        let plural = if *threads == 1 { "" } else { "s" };
        format!(
            "Auto, all in cache, {threads} thread{plural}: {lookups} absent keys a second, \
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
    fn counts_end_with_all() {
        let counts = thread_counts();
        assert_eq!(counts[0], 1);
        assert!(counts.windows(2).all(|pair| pair[0] < pair[1]), "{counts:?}");
    }

    #[test]
    fn threads_have_a_line_each() {
        let crowd = Crowd { threads: 2, lookups_per_second: 1_234_567.8, cpu_ns: 99.6 };
        let want = "2 threads: 1,234,567 absent keys a second, 100 ns of CPU time each";
        assert!(table(&[crowd]).contains(want));
        assert_eq!(table(&[]), "");
    }
}
