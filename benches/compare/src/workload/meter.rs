//! Sums up the costs of operations.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use sievedb_workload::clock::{now, process_cpu_time, thread_cpu_time};

use crate::{failure::Result, figures::Figures, process::Io};

/// Latencies from 1 ns to ten minutes, with three digits.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Clocks and counters of a measurement on one thread.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Operations in [`together`](Self::together).
    operations: u64,
    time: Duration,
    cpu: Duration,
    /// All operations measured.
    operations_all: u64,
    latencies: Histogram<u64>,
    /// Counters at the last [`start`](Self::start).
    started: Option<Started>,
    /// Reads and writes between starts and stops.
    io: Io,
    /// CPU time of the other threads between starts and stops.
    background_cpu: Duration,
}

/// Counters of the process at the start.
#[derive(Debug, Clone, Copy)]
struct Started {
    io: Io,
    background_cpu: Duration,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            operations: 0,
            time: Duration::ZERO,
            cpu: Duration::ZERO,
            operations_all: 0,
            latencies: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
                .expect("the bounds and digits are in range"),
            started: None,
            io: Io::default(),
            background_cpu: Duration::ZERO,
        }
    }

    /// Counts reads, writes and the CPU time of other threads from now on.
    pub(crate) fn start(&mut self) -> Result<()> {
        let background_cpu = background_cpu_time();
        self.started = Some(Started { io: Io::now()?, background_cpu });
        Ok(())
    }

    /// Stops counting until the next start. Does nothing if not started.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if let Some(started) = self.started.take() {
            self.io.add(Io::since(started.io)?);
            self.background_cpu += background_cpu_time().saturating_sub(started.background_cpu);
        }
        Ok(())
    }

    /// Runs `work` without counting it.
    pub(crate) fn apart(&mut self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let counts = self.started.is_some();
        self.stop()?;
        work()?;
        if counts { self.start() } else { Ok(()) }
    }

    /// Measures `work`, which performs `operations` operations.
    pub(crate) fn together<T>(
        &mut self,
        operations: usize,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let cpu_before = thread_cpu_time();
        let before = now();
        let result = work()?;
        self.time += before.elapsed();
        self.cpu += thread_cpu_time().saturating_sub(cpu_before);
        self.operations += operations as u64;
        self.operations_all += operations as u64;
        Ok(result)
    }

    /// As [`together`](Self::together), but also records the time as latency of one batch.
    pub(crate) fn batch<T>(
        &mut self,
        operations: usize,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = self.time;
        let result = self.together(operations, work)?;
        let latency = self.time.saturating_sub(before);
        self.record(latency);
        Ok(result)
    }

    /// Measures the latency of one operation. The mean excludes it, because the clock would distort
    /// the mean.
    pub(crate) fn single<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let before: Instant = now();
        let result = work()?;
        let latency = before.elapsed();
        self.record(latency);
        self.operations_all += 1;
        Ok(result)
    }

    /// Adds the operations measured by another thread.
    pub(crate) fn join(&mut self, other: &Self) {
        self.operations += other.operations;
        self.time += other.time;
        self.cpu += other.cpu;
        self.operations_all += other.operations_all;
        self.latencies += &other.latencies;
        // Already counted as background threads.
        self.background_cpu = self.background_cpu.saturating_sub(other.cpu);
    }

    fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX);
        self.latencies.saturating_record(ns);
    }

    /// Returns the figures measured. Memory, space, and times of opening and settling are 0.
    pub(crate) fn figures(&self) -> Figures {
        let per = |count: u128, operations: u64| count as f64 / operations.max(1) as f64;
        let of_all = |count: u64| per(count.into(), self.operations_all);
        let quantile = |quantile| self.latencies.value_at_quantile(quantile) as f64;
        Figures {
            operations: self.operations_all as f64,
            ns: per(self.time.as_nanos(), self.operations),
            cpu_ns: per(self.cpu.as_nanos(), self.operations),
            background_cpu_ns: per(self.background_cpu.as_nanos(), self.operations_all),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            read_calls: of_all(self.io.read_calls),
            read_bytes: of_all(self.io.read_bytes),
            device_read_bytes: of_all(self.io.device_read_bytes),
            write_calls: of_all(self.io.write_calls),
            write_bytes: of_all(self.io.write_bytes),
            device_write_bytes: of_all(self.io.device_write_bytes),
            ..Figures::default()
        }
    }

    /// Returns the number of all operations measured.
    pub(crate) fn operations_all(&self) -> u64 {
        self.operations_all
    }
}

/// Returns the CPU time of all threads except the calling one.
fn background_cpu_time() -> Duration {
    let own = thread_cpu_time();
    process_cpu_time().saturating_sub(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(ms: u64) -> Result<()> {
        std::thread::sleep(Duration::from_millis(ms));
        Ok(())
    }

    #[test]
    fn single_operations_count_for_latency_only() {
        let mut meter = Meter::new();
        meter.start().unwrap();
        meter.together(10, || wait(10)).unwrap();
        meter.single(|| wait(50)).unwrap();
        meter.stop().unwrap();
        let figures = meter.figures();
        assert_eq!(figures.operations, 11.0);
        assert!(figures.ns >= 1e6, "{}", figures.ns);
        assert!(figures.cpu_ns < figures.ns, "{}", figures.cpu_ns);
        assert!(figures.p50_ns > 49e6, "{}", figures.p50_ns);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes files")]
    fn untimed_work_is_not_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = || Ok(std::fs::write(file.path(), [1; 100_000])?);
        let mut meter = Meter::new();
        meter.start().unwrap();
        meter.together(1, write).unwrap();
        meter.apart(write).unwrap();
        meter.stop().unwrap();
        // Other tests of this process write too, but not so much.
        let bytes = meter.figures().write_bytes;
        assert!((100_000.0..190_000.0).contains(&bytes), "{bytes}");
    }

    #[test]
    fn figures_of_threads_are_added() {
        let mut whole = Meter::new();
        let mut parts = [Meter::new(), Meter::new()];
        for meter in &mut parts {
            meter.batch(1, || wait(2)).unwrap();
        }
        parts.iter().for_each(|part| whole.join(part));
        assert_eq!(whole.operations_all(), 2);
        assert!(whole.figures().ns >= 2e6);
    }
}
