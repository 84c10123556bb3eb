//! Repeats short operations until enough are done or time is up.
//!
//! Most chunks of operations are timed as a whole, for the mean. Every eighth is timed operation by
//! operation, for the percentiles. Preparation and checks are not timed.

use sievedb_workload::clock::now;

use super::meter::Meter;
use crate::{failure::Result, page_cache::PageCache};

/// One in this many chunks is timed operation by operation.
const SINGLE_SHARE: u64 = 8;

/// Operations of one thread.
pub(crate) trait Operations {
    /// Maximum number of operations per chunk. Their keys and answers fit the processor's caches
    /// besides the engine's data.
    const CHUNK: usize;

    /// Prepares up to [`CHUNK`](Self::CHUNK) operations. Returns their number; 0 ends the run.
    fn prepare(&mut self) -> Result<usize>;

    /// Runs prepared operation number `index`.
    fn operate(&mut self, index: usize) -> Result<()>;

    /// Fails if an answer is wrong.
    fn check(&mut self) -> Result<()>;
}

/// Limit of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
}

/// Runs up to `limit`, but at least one chunk of each kind. Empties `page_cache` after each chunk.
pub(crate) fn drive<O: Operations>(
    operations: &mut O,
    limit: Limit,
    page_cache: Option<&PageCache>,
    meter: &mut Meter,
) -> Result<()> {
    let start = now();
    let chunks = limit.operations.div_ceil(O::CHUNK as u64).max(2);
    for chunk in 0..chunks {
        let count = operations.prepare()?;
        if count == 0 {
            break;
        }
        if chunk % SINGLE_SHARE == 1 {
            for index in 0..count {
                meter.single(|| operations.operate(index))?;
            }
        } else {
            meter.together(count, || (0..count).try_for_each(|index| operations.operate(index)))?;
        }
        operations.check()?;
        if let Some(page_cache) = page_cache {
            meter.apart(|| page_cache.empty())?;
        }
        if chunk > 0 && start.elapsed().as_secs_f64() > limit.seconds {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count {
        left: usize,
        ready: usize,
        done: usize,
        checked: usize,
    }

    impl Operations for Count {
        const CHUNK: usize = 10;

        fn prepare(&mut self) -> Result<usize> {
            self.ready = self.left.min(Self::CHUNK);
            self.left -= self.ready;
            Ok(self.ready)
        }

        fn operate(&mut self, _: usize) -> Result<()> {
            self.done += 1;
            Ok(())
        }

        fn check(&mut self) -> Result<()> {
            self.checked += self.ready;
            Ok(())
        }
    }

    #[test]
    fn each_operation_runs_once_and_is_checked() {
        let cases = [
            ("as many as requested", 1000, 95, 3600.0, 100),
            ("as many as there are", 95, 1000, 3600.0, 95),
            ("no time", 1000, 1000, 0.0, 20),
            ("none", 0, 1000, 3600.0, 0),
        ];
        for (name, left, operations, seconds, want) in cases {
            let mut count = Count { left, ..Count::default() };
            let mut meter = Meter::new();
            drive(&mut count, Limit { operations, seconds }, None, &mut meter).unwrap();
            assert_eq!((count.done, count.checked), (want, want), "{name}");
            assert_eq!(meter.operations_all(), want as u64, "{name}");
        }
    }
}
