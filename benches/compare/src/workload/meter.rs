//! Adds up what operations cost.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use sievedb_workload::clock::{now, process_cpu_time, thread_cpu_time};

use crate::{failure::Result, figures::Figures, process::Reads};

/// Latencies from 1 ns to a minute, with three digits.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Clocks and counters of a measurement on one thread.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Operations in [`together`](Self::together).
    operations: u64,
    time: Duration,
    cpu: Duration,
    /// Operations measured in any way.
    operations_all: u64,
    latencies: Histogram<u64>,
    /// Reads before [`start`](Self::start); after [`stop`](Self::stop), those in between.
    reads: Reads,
    /// CPU time of the other threads, likewise.
    background_cpu: Duration,
    /// What another thread did meanwhile.
    pub(crate) writes_per_second: f64,
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
            reads: Reads::default(),
            background_cpu: Duration::ZERO,
            writes_per_second: 0.0,
        }
    }

    /// Counts reads and the CPU time of other threads from now on.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.background_cpu = background_cpu_time();
        self.reads = Reads::now()?;
        Ok(())
    }

    /// Counts them no longer.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.reads = Reads::since(self.reads)?;
        self.background_cpu = background_cpu_time().saturating_sub(self.background_cpu);
        Ok(())
    }

    /// Runs `work`, which does `operations`, between two looks at the clocks.
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

    /// As [`together`](Self::together), and takes its time for the latency of one batch.
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

    /// Runs one operation by itself, for its latency. The clock would spoil the mean: it is not in it.
    pub(crate) fn single<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let before: Instant = now();
        let result = work()?;
        let latency = before.elapsed();
        self.record(latency);
        self.operations_all += 1;
        Ok(result)
    }

    fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX);
        self.latencies.saturating_record(ns);
    }

    /// What was measured. Memory, space, and the times of opening and settling are left 0.
    pub(crate) fn figures(&self) -> Figures {
        let per = |count: u128, operations: u64| count as f64 / operations.max(1) as f64;
        let quantile = |quantile| self.latencies.value_at_quantile(quantile) as f64;
        Figures {
            operations: self.operations_all as f64,
            ns: per(self.time.as_nanos(), self.operations),
            cpu_ns: per(self.cpu.as_nanos(), self.operations),
            background_cpu_ns: per(self.background_cpu.as_nanos(), self.operations_all),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            read_calls: per(self.reads.calls.into(), self.operations_all),
            read_bytes: per(self.reads.bytes.into(), self.operations_all),
            device_bytes: per(self.reads.device_bytes.into(), self.operations_all),
            memory_peak_bytes: 0.0,
            memory_bytes: 0.0,
            memory_anonymous_bytes: 0.0,
            space_bytes: 0.0,
            open_ms: 0.0,
            settle_ms: 0.0,
            writes_per_second: self.writes_per_second,
        }
    }
}

/// CPU time of all threads but the calling one.
fn background_cpu_time() -> Duration {
    let own = thread_cpu_time();
    process_cpu_time().saturating_sub(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_operations_are_in_the_latencies_and_not_in_the_mean() {
        let mut meter = Meter::new();
        meter.start().unwrap();
        let wait = |ms| {
            std::thread::sleep(Duration::from_millis(ms));
            Ok(())
        };
        meter.together(10, || wait(10)).unwrap();
        meter.single(|| wait(50)).unwrap();
        meter.stop().unwrap();
        let figures = meter.figures();
        assert_eq!(figures.operations, 11.0);
        assert!((1e6..4e6).contains(&figures.ns), "{}", figures.ns);
        assert!(figures.cpu_ns < figures.ns, "{}", figures.cpu_ns);
        assert!(figures.p50_ns > 49e6, "{}", figures.p50_ns);
    }
}
