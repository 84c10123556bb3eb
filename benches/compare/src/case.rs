//! Benchmark cases: a workload, the ratio of data to memory, and the number of threads.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Operations on a store.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Writes all keys in random order into a new store, in batches. The others read what it made.
    Load,
    /// Writes all keys in random order, one by one.
    LoadSingle,
    /// Writes keys in ascending order, one by one.
    LoadAscending,
    /// Writes new values of present keys, one by one, in random order.
    Overwrite,
    /// Removes present keys, one by one, in random order.
    Delete,
    /// Writes entries one by one, each of which is on the disk before the next one.
    SyncWrite,
    /// Opens the store.
    Open,
    /// Looks up present keys, all equally likely.
    Hit,
    /// Looks up present keys, some much more often than others.
    HitZipf,
    /// Looks up absent keys.
    Miss,
    /// Asks whether keys are present, in batches; none is.
    Contains,
    /// The same, when half of the keys are present.
    ContainsHalf,
    /// Reads everything in ascending order.
    Scan,
    /// Reads everything in descending order.
    ScanBack,
    /// Seeks a present key and reads 50 entries from there.
    ShortScan,
    /// YCSB A: half reads, half updates.
    YcsbA,
    /// YCSB B: 95 % reads, 5 % updates.
    YcsbB,
    /// YCSB C: reads.
    YcsbC,
    /// YCSB D: 95 % reads of the latest entries, 5 % inserts.
    YcsbD,
    /// YCSB E: 95 % short scans, 5 % inserts.
    YcsbE,
    /// YCSB F: half reads, half reads each followed by a write of the same key.
    YcsbF,
    /// Looks up absent keys while another thread writes new ones.
    MissWhileWriting,
    /// Looks up keys, 30 % of them absent, while another thread writes new ones.
    MixedWhileWriting,
    /// Scans over tombstones to the one live key behind them.
    Tombstones,
    /// Hits by threads on one store, beside as many processes on copies of it.
    ScaleHit,
    /// Misses, likewise.
    ScaleMiss,
}

/// The store of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// An empty store that remains: the main store of other workloads.
    Main,
    /// An empty store, removed afterwards.
    Empty,
    /// The main store, read-only.
    Shared,
    /// A copy of the main store, removed afterwards.
    Copy,
}

/// Workloads that share a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Writes,
    Reads,
    Scans,
    Ycsb,
}

impl Workload {
    /// All, in the order in which they are run.
    pub(crate) const ALL: [Self; 26] = [
        Self::Load,
        Self::LoadSingle,
        Self::LoadAscending,
        Self::Overwrite,
        Self::Delete,
        Self::SyncWrite,
        Self::Open,
        Self::Hit,
        Self::HitZipf,
        Self::Miss,
        Self::Contains,
        Self::ContainsHalf,
        Self::Scan,
        Self::ScanBack,
        Self::ShortScan,
        Self::YcsbA,
        Self::YcsbB,
        Self::YcsbC,
        Self::YcsbD,
        Self::YcsbE,
        Self::YcsbF,
        Self::MissWhileWriting,
        Self::MixedWhileWriting,
        Self::Tombstones,
        Self::ScaleHit,
        Self::ScaleMiss,
    ];

    /// Returns the name in a report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Load => "Load, random, in batches",
            Self::LoadSingle => "Load, random, one by one",
            Self::LoadAscending => "Load, ascending, one by one",
            Self::Overwrite => "Overwrite",
            Self::Delete => "Delete",
            Self::SyncWrite => "Write, each on the disk",
            Self::Open => "Open",
            Self::Hit => "Hit",
            Self::HitZipf => "Hit, Zipf 0.99",
            Self::Miss => "Miss",
            Self::Contains => "Contains, in batches, all absent",
            Self::ContainsHalf => "Contains, in batches, half present",
            Self::Scan => "Full scan",
            Self::ScanBack => "Full scan, descending",
            Self::ShortScan => "Short scan of 50 entries",
            Self::YcsbA => "YCSB A, half updates",
            Self::YcsbB => "YCSB B, 5 % updates",
            Self::YcsbC => "YCSB C, reads",
            Self::YcsbD => "YCSB D, reads of the latest, 5 % inserts",
            Self::YcsbE => "YCSB E, short scans, 5 % inserts",
            Self::YcsbF => "YCSB F, half read-modify-write",
            Self::MissWhileWriting => "Miss during writes",
            Self::MixedWhileWriting => "Lookup during writes, 30 % absent",
            Self::Tombstones => "Scan over tombstones",
            Self::ScaleHit => "Hit by threads",
            Self::ScaleMiss => "Miss by threads",
        }
    }

    /// Returns the unit of one operation.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Load | Self::LoadSingle | Self::LoadAscending | Self::Overwrite => "entry",
            Self::SyncWrite | Self::Scan | Self::ScanBack => "entry",
            Self::Open => "open",
            Self::Delete | Self::Hit | Self::HitZipf | Self::Miss => "key",
            Self::Contains | Self::ContainsHalf => "key",
            Self::MissWhileWriting | Self::MixedWhileWriting => "key",
            Self::ScaleHit | Self::ScaleMiss => "key",
            Self::ShortScan | Self::Tombstones => "scan",
            Self::YcsbA | Self::YcsbB | Self::YcsbC => "operation",
            Self::YcsbD | Self::YcsbE | Self::YcsbF => "operation",
        }
    }

    pub(crate) fn store(self) -> Store {
        match self {
            Self::Load => Store::Main,
            Self::LoadSingle | Self::LoadAscending => Store::Empty,
            Self::SyncWrite | Self::Tombstones => Store::Empty,
            Self::Overwrite | Self::Delete | Self::MissWhileWriting => Store::Copy,
            Self::MixedWhileWriting => Store::Copy,
            Self::YcsbA | Self::YcsbB | Self::YcsbD | Self::YcsbE | Self::YcsbF => Store::Copy,
            _ => Store::Shared,
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Self::Load | Self::LoadSingle | Self::LoadAscending => Family::Writes,
            Self::Overwrite | Self::Delete | Self::SyncWrite => Family::Writes,
            Self::Scan | Self::ScanBack | Self::ShortScan | Self::Tombstones => Family::Scans,
            Self::YcsbA | Self::YcsbB | Self::YcsbC => Family::Ycsb,
            Self::YcsbD | Self::YcsbE | Self::YcsbF => Family::Ycsb,
            _ => Family::Reads,
        }
    }

    /// Returns `true` if it is also measured with data larger than the memory.
    fn fits_both(self) -> bool {
        !matches!(
            self,
            Self::Load | Self::SyncWrite | Self::Tombstones | Self::ScaleHit | Self::ScaleMiss
        )
    }

    /// Returns the thread counts to measure on a machine with `cores` cores.
    fn threads(self, cores: usize) -> Vec<usize> {
        match self {
            Self::SyncWrite => vec![1, 8, 48],
            Self::ScaleHit | Self::ScaleMiss if cores > 2 => vec![2, cores],
            Self::ScaleHit | Self::ScaleMiss => vec![2],
            _ => vec![1],
        }
    }
}

/// Ratio of data to memory.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fit {
    /// The engine's total holds all.
    Cached,
    /// The data are twice the total. The system's page cache is emptied again and again.
    TwoTimes,
    /// The data are 4 times the total, likewise.
    FourTimes,
    /// The data are 10 times the total, likewise.
    TenTimes,
}

impl Fit {
    /// All, in the order in which they are run.
    pub(crate) const ALL: [Self; 4] =
        [Self::Cached, Self::TwoTimes, Self::FourTimes, Self::TenTimes];

    /// Returns the ratio of data to total; `None` if the total is a setting.
    pub(crate) fn data_per_total(self) -> Option<u64> {
        match self {
            Self::Cached => None,
            Self::TwoTimes => Some(2),
            Self::FourTimes => Some(4),
            Self::TenTimes => Some(10),
        }
    }
}

/// A benchmark case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) fit: Fit,
    pub(crate) workload: Workload,
    pub(crate) threads: usize,
}

impl Case {
    /// Returns the case of one thread with all data in the cache.
    pub(crate) fn cached(workload: Workload) -> Self {
        Self { fit: Fit::Cached, workload, threads: 1 }
    }

    /// Returns all cases of `workloads` and `fits` on a machine with `cores` cores, in run order.
    pub(crate) fn all(workloads: &[Workload], fits: &[Fit], cores: usize) -> Vec<Self> {
        let mut cases = Vec::new();
        for fit in Fit::ALL.into_iter().filter(|fit| fits.contains(fit)) {
            let known = Workload::ALL.into_iter().filter(|known| workloads.contains(known));
            for workload in known.filter(|known| fit == Fit::Cached || known.fits_both()) {
                let threads = workload.threads(cores).into_iter();
                cases.extend(threads.map(|threads| Self { fit, workload, threads }));
            }
        }
        cases
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.workload.title())?;
        if self.threads > 1 {
            write!(f, ", {} threads", self.threads)?;
        }
        match self.fit.data_per_total() {
            None => Ok(()),
            Some(times) => write!(f, ", {times} × memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_case_runs_once_and_load_first() {
        for cores in [1, 2, 16] {
            let cases = Case::all(&Workload::ALL, &Fit::ALL, cores);
            assert_eq!(cases[0], Case::cached(Workload::Load), "{cores} cores");
            assert_eq!(cases.iter().collect::<HashSet<_>>().len(), cases.len(), "{cores} cores");
            let titles: HashSet<String> = cases.iter().map(Case::to_string).collect();
            assert_eq!(titles.len(), cases.len(), "{cores} cores");
            assert_eq!(
                cases.iter().any(|case| case.threads == 16),
                cores == 16,
                "{cores} cores: {cases:?}"
            );
        }
        assert_eq!(Workload::ALL.iter().collect::<HashSet<_>>().len(), Workload::ALL.len());
    }

    #[test]
    fn writing_cases_use_a_copy_of_the_main_store() {
        let changing = [Workload::Overwrite, Workload::YcsbA, Workload::MissWhileWriting];
        assert!(changing.iter().all(|workload| workload.store() == Store::Copy));
        assert_eq!(Workload::YcsbC.store(), Store::Shared);
        let main = Workload::ALL.iter().filter(|workload| workload.store() == Store::Main);
        assert_eq!(main.count(), 1);
    }
}
