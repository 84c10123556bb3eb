//! Division of a memory budget into parts. Pure.
//!
//! The budget is one pool. Memtables, filters, indexes, buffers of workers and bookkeeping take
//! what they use; the block cache has the rest at any time. Three parts have ceilings:
//!
//! | part      | ceiling | covers                                               |
//! |-----------|---------|------------------------------------------------------|
//! | memtables | 1/4     | active and frozen memtables of all keyspaces         |
//! | filters   | 1/4     | filters of tables                                    |
//! | writing   | 1/8     | buffers of flushes and compactions, of all workers   |
//!
//! The ceiling of memtables is lowered, to 1/16 at least, while the block cache saves more: see
//! [`memory_pool`](crate::memory_pool).
//!
//! A limit set by hand replaces the ceiling, also that of the block cache. With a budget, the
//! ceilings must leave the block cache 1/16 of it, or `block_cache_bytes`. Without a budget, the
//! pool is the ceilings and 3/8 of the default, or unlimited if `block_cache_bytes` is set.

use crate::{
    Error, Result,
    default_budget::{BudgetSource, DefaultBudget},
    fs::Fs,
    text,
};

/// Minimum for each worker: its buffers, and the hashes of about 10,000 entries.
const WRITING_BYTES_MIN: u64 = 512 << 10;

/// Minimum for memtables: a few hundred entries, and a batch of 256 KiB.
const MEMTABLE_BYTES_MIN: u64 = 512 << 10;

/// Divisor of a configured budget for the minimum of the block cache, unless the bytes of the block
/// cache are set: 16 MiB of 256. With less, indexes would evict every block.
const BLOCK_CACHE_IN_BUDGET: u64 = 16;

/// Minimum of [`Options::memory_budget`](crate::Options::memory_budget): 8 MiB.
pub const MEMORY_BUDGET_MIN: u64 = 8 << 20;

/// Minimum of [`Options::memory_budget`](crate::Options::memory_budget) for each worker thread: 4
/// MiB, of which a worker needs 1/8.
pub const MEMORY_BUDGET_PER_WORKER_MIN: u64 = 8 * WRITING_BYTES_MIN;

/// The budget, and parts set by hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryBudget {
    pub(crate) bytes: Option<u64>,
    /// Used if `bytes` is missing.
    pub(crate) default: DefaultBudget,
    pub(crate) memtable_bytes_max: Option<u64>,
    pub(crate) filter_bytes_max: Option<u64>,
    pub(crate) block_cache_bytes: Option<u64>,
}

/// The pool of a budget and the ceilings of its parts, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryParts {
    pub(crate) memtables: u64,
    pub(crate) filters: u64,
    pub(crate) writing: u64,
    /// Limit of the block cache with the indexes of tables. The whole pool unless set by hand.
    pub(crate) block_cache: u64,
    /// Limit of all parts; `u64::MAX` if `block_cache_bytes` was set without a budget.
    pub(crate) pool: u64,
}

impl MemoryBudget {
    /// Reads the memory of the machine, if no budget is set.
    pub(crate) fn find_default(&mut self, fs: &dyn Fs) {
        if self.bytes.is_none() {
            self.default = DefaultBudget::of_machine(fs);
        }
    }

    pub(crate) fn source(&self) -> BudgetSource {
        self.bytes.map_or(self.default.source, |_| BudgetSource::Set)
    }

    /// Returns the minimum budget for the configured parts. 1/8 is for writing, 1/4 each for
    /// memtables and filters without configuration, and 1/16 for a block cache without
    /// configuration.
    fn least(&self) -> u64 {
        let parts = [self.memtable_bytes_max, self.filter_bytes_max, self.block_cache_bytes];
        let set: u128 = parts.into_iter().flatten().map(u128::from).sum();
        let sixteenths = [4, 4, 16 / u128::from(BLOCK_CACHE_IN_BUDGET)];
        let unset = parts.iter().zip(sixteenths).filter(|(part, _)| part.is_none());
        let left: u128 = 14 - unset.map(|(_, sixteenths)| sixteenths).sum::<u128>();
        u64::try_from((16 * set).div_ceil(left)).unwrap_or(u64::MAX)
    }

    fn least_parts(&self) -> String {
        let parts = [
            ("memtable_bytes_max", self.memtable_bytes_max, "a quarter of it for memtables"),
            ("filter_bytes_max", self.filter_bytes_max, "a quarter for filters"),
            ("block_cache_bytes", self.block_cache_bytes, "a sixteenth for the block cache"),
        ];
        let mut text = String::new();
        for (name, set, share) in parts {
            match set {
                Some(bytes) => text += &format!("{name} of {}, ", text::bytes(bytes)),
                None => text += &format!("{share}, "),
            }
        }
        text + "an eighth for writing"
    }

    /// Returns the budget with the bytes of a pool, if any.
    pub(crate) fn within(self, bytes: Option<u64>) -> Self {
        Self { bytes: bytes.or(self.bytes), ..self }
    }

    /// Raises memtables, and the budget, for a write of `bytes` bytes that was too large.
    pub(crate) fn make_room_for(&mut self, bytes: u64) {
        // A write may take 3/4 of the limit that memtables of other keyspaces leave.
        self.memtable_bytes_max = Some(bytes.saturating_mul(2));
        let least = self.least();
        self.bytes = self.bytes.map(|bytes| bytes.max(least));
    }

    /// Returns the parts for a store with this number of workers.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`] if the budget is too small, or the parts do not fit.
    pub(crate) fn divide(&self, workers: usize) -> Result<MemoryParts> {
        let too_small = |what, bytes, bytes_min, made_of| {
            Err(Error::BudgetTooSmall { what, bytes, bytes_min, made_of })
        };
        let least = MEMORY_BUDGET_MIN.max(workers as u64 * MEMORY_BUDGET_PER_WORKER_MIN);
        let bytes = self.bytes.unwrap_or_else(|| self.default.bytes.max(least));
        if bytes < least {
            let made_of = match least {
                MEMORY_BUDGET_MIN => "the least for up to 2 worker_threads".to_owned(),
                _ => {
                    let each = text::bytes(MEMORY_BUDGET_PER_WORKER_MIN);
                    format!("{each} for each of {workers} worker_threads")
                }
            };
            return too_small("a memory_budget", bytes, least, made_of);
        }
        // More than any memory, without an overflow of the sum.
        let part = |bytes: Option<u64>, default| bytes.unwrap_or(default).min(u64::MAX / 8);
        let memtables = part(self.memtable_bytes_max, bytes / 4);
        if memtables < MEMTABLE_BYTES_MIN {
            let made_of = "a few hundred entries, or a batch of 256 KiB".to_owned();
            return too_small("a memtable_bytes_max", memtables, MEMTABLE_BYTES_MIN, made_of);
        }
        let filters = part(self.filter_bytes_max, bytes / 4);
        let writing = bytes / 8;
        let of_others = memtables + filters + writing;
        let pool = match (self.bytes, self.block_cache_bytes) {
            (Some(bytes), _) => bytes,
            (None, Some(_)) => u64::MAX,
            (None, None) => of_others + (bytes - (bytes / 4 + bytes / 4 + writing)),
        };
        let block_cache_min = part(self.block_cache_bytes, bytes / BLOCK_CACHE_IN_BUDGET);
        if pool < of_others + block_cache_min {
            let what = "beside the parts that were set, a memory_budget";
            return too_small(what, bytes, self.least(), self.least_parts());
        }
        let block_cache = part(self.block_cache_bytes, pool);
        Ok(MemoryParts { memtables, filters, writing, block_cache, pool })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const UNBOUNDED: u64 = u64::MAX;

    fn budget(bytes: u64) -> MemoryBudget {
        MemoryBudget { bytes: Some(bytes), ..MemoryBudget::default() }
    }

    #[test]
    fn parts_are_shares_or_as_they_were_set() {
        let all = budget(256 * MIB);
        let unset = MemoryBudget::default();
        let cases = [
            ("default", unset, [64, 64, 32, 256, 256]),
            (
                "a large cache",
                MemoryBudget { block_cache_bytes: Some(1024 * MIB), ..unset },
                [64, 64, 32, 1024, UNBOUNDED],
            ),
            ("small", budget(8 * MIB), [2, 2, 1, 8, 8]),
            (
                "memtables",
                MemoryBudget { memtable_bytes_max: Some(8 * MIB), ..all },
                [8, 64, 32, 256, 256],
            ),
            ("filters", MemoryBudget { filter_bytes_max: Some(0), ..all }, [64, 0, 32, 256, 256]),
            ("cache", MemoryBudget { block_cache_bytes: Some(0), ..all }, [64, 64, 32, 0, 256]),
            (
                "all of the cache",
                MemoryBudget { block_cache_bytes: Some(96 * MIB), ..all },
                [64, 64, 32, 96, 256],
            ),
            (
                "memtables that leave the least cache",
                MemoryBudget { memtable_bytes_max: Some(144 * MIB), ..all },
                [144, 64, 32, 256, 256],
            ),
            (
                "memtables that leave no cache, as set",
                MemoryBudget {
                    memtable_bytes_max: Some(160 * MIB),
                    block_cache_bytes: Some(0),
                    ..all
                },
                [160, 64, 32, 0, 256],
            ),
            (
                "memtables alone",
                MemoryBudget { memtable_bytes_max: Some(160 * MIB), ..unset },
                [160, 64, 32, 352, 352],
            ),
            (
                "small memtables alone",
                MemoryBudget { memtable_bytes_max: Some(MIB), ..unset },
                [1, 64, 32, 193, 193],
            ),
            (
                "filters alone",
                MemoryBudget { filter_bytes_max: Some(300 * MIB), ..unset },
                [64, 300, 32, 492, 492],
            ),
            (
                "no filters",
                MemoryBudget { filter_bytes_max: Some(0), ..unset },
                [64, 0, 32, 192, 192],
            ),
            (
                "memtables and filters",
                MemoryBudget {
                    memtable_bytes_max: Some(1024 * MIB),
                    filter_bytes_max: Some(512 * MIB),
                    ..unset
                },
                [1024, 512, 32, 1664, 1664],
            ),
            (
                "all parts",
                MemoryBudget {
                    memtable_bytes_max: Some(8 * MIB),
                    filter_bytes_max: Some(4 * MIB),
                    block_cache_bytes: Some(2 * MIB),
                    ..unset
                },
                [8, 4, 32, 2, UNBOUNDED],
            ),
        ];
        for (name, budget, [memtables, filters, writing, block_cache, pool]) in cases {
            let want = MemoryParts {
                memtables: memtables * MIB,
                filters: filters * MIB,
                writing: writing * MIB,
                block_cache: block_cache * MIB,
                pool: pool.saturating_mul(MIB),
            };
            assert_eq!(budget.divide(2).ok(), Some(want), "{name}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let all = budget(64 * MIB);
        let cases = [
            (
                "too small",
                budget(8 * MIB - 1),
                1,
                ["memory_budget", "the least for up to 2 worker_threads"],
            ),
            (
                "too small for its workers",
                budget(16 * MIB),
                5,
                [
                    "memory_budget",
                    "at least 20.0 MiB (20971520) are needed, 4.0 MiB for each of 5 worker_threads",
                ],
            ),
            (
                "memtables",
                MemoryBudget { memtable_bytes_max: Some(1), ..all },
                1,
                ["memtable_bytes_max", "a batch of 256 KiB"],
            ),
            (
                "filters",
                MemoryBudget { filter_bytes_max: Some(64 * MIB), ..all },
                1,
                [
                    "memory_budget",
                    "a quarter of it for memtables, filter_bytes_max of 64.0 MiB, a sixteenth for the block cache, \
                     an eighth for writing",
                ],
            ),
            (
                "cache",
                MemoryBudget { block_cache_bytes: Some(u64::MAX), ..all },
                1,
                ["memory_budget", "a quarter for filters, block_cache_bytes of "],
            ),
            (
                "memtables that leave no cache",
                MemoryBudget { memtable_bytes_max: Some(40 * MIB), ..all },
                1,
                ["memory_budget", "memtable_bytes_max of 40.0 MiB, a quarter for filters"],
            ),
            (
                "filters that leave less than the least cache",
                MemoryBudget { filter_bytes_max: Some(36 * MIB + 1), ..all },
                1,
                ["memory_budget", "filter_bytes_max of 36.0 MiB"],
            ),
        ];
        for (name, budget, workers, want) in cases {
            let error = budget.divide(workers).expect_err(name);
            let Error::BudgetTooSmall { bytes, bytes_min, .. } = error else {
                panic!("{name}: {error:?}");
            };
            assert!(bytes < bytes_min, "{name}");
            let text = error.to_string();
            assert!(want.iter().all(|part| text.contains(part)), "{name}: {text}");
        }
    }

    /// The minimum in the error suffices, and slightly less does not.
    #[test]
    fn the_least_budget_is_enough() {
        let parts = [None, Some(700 * MIB + 13)];
        for (memtables, filters) in parts.into_iter().flat_map(|it| parts.map(|other| (it, other)))
        {
            for cache in parts {
                let budget = |bytes| MemoryBudget {
                    bytes: Some(bytes),
                    memtable_bytes_max: memtables,
                    filter_bytes_max: filters,
                    block_cache_bytes: cache,
                    ..MemoryBudget::default()
                };
                let Err(Error::BudgetTooSmall { bytes_min, .. }) = budget(64 * MIB).divide(1)
                else {
                    assert_eq!((memtables, filters, cache), (None, None, None));
                    continue;
                };
                assert!(budget(bytes_min).divide(1).is_ok(), "{:?}", budget(bytes_min));
                assert!(budget(bytes_min - 16).divide(1).is_err(), "{:?}", budget(bytes_min));
            }
        }
    }

    #[test]
    fn ceilings_leave_the_block_cache_its_least_part() {
        for mib in 8..300 {
            let odd = mib * 7919;
            for memtables in [None, Some(MIB), Some(mib * MIB / 3)] {
                for filters in [None, Some(0), Some(mib * MIB / 5)] {
                    for cache in [None, Some(0), Some(mib * MIB / 7)] {
                        let budget = MemoryBudget {
                            bytes: Some(mib * MIB + odd),
                            memtable_bytes_max: memtables,
                            filter_bytes_max: filters,
                            block_cache_bytes: cache,
                            ..MemoryBudget::default()
                        };
                        let parts = budget.divide(2).expect("it fits");
                        assert_eq!(parts.pool, mib * MIB + odd);
                        let others = parts.memtables + parts.filters + parts.writing;
                        let cache_min = cache.unwrap_or(parts.pool / BLOCK_CACHE_IN_BUDGET);
                        assert!(others + cache_min <= parts.pool, "{budget:?}: {parts:?}");
                        assert!(parts.writing >= 2 * WRITING_BYTES_MIN);
                    }
                }
            }
        }
    }
}
