//! Measured figures, and the median of rounds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{case::Case, contestant::Contestant};

/// Figures of one case on one contestant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Figures {
    /// Operations measured.
    pub(crate) operations: f64,
    /// Real time per operation, in ns. With several threads: the mean time that a thread needs for
    /// one operation of its own.
    pub(crate) ns: f64,
    /// CPU time of the foreground thread per operation, in ns.
    pub(crate) cpu_ns: f64,
    /// CPU time of all other threads, per operation, in ns.
    pub(crate) background_cpu_ns: f64,
    /// Median latency of an operation, whole batch or full scan in ns, including the clock.
    pub(crate) p50_ns: f64,
    /// 99th percentile of the same latency.
    pub(crate) p99_ns: f64,
    /// 99.9th percentile of the same latency.
    pub(crate) p999_ns: f64,
    /// File read calls per operation. Excludes page faults in memory maps.
    pub(crate) read_calls: f64,
    /// Bytes returned by these calls, per operation.
    pub(crate) read_bytes: f64,
    /// Bytes read from the device per operation, including memory maps.
    pub(crate) device_read_bytes: f64,
    /// File write calls per operation.
    pub(crate) write_calls: f64,
    /// Bytes passed to these calls, per operation.
    pub(crate) write_bytes: f64,
    /// Bytes written to the device per operation, including memory maps.
    pub(crate) device_write_bytes: f64,
    /// Total memory of the engine, in bytes.
    pub(crate) total_bytes: f64,
    /// Peak resident memory in bytes, above that before the store was opened.
    pub(crate) memory_peak_bytes: f64,
    /// Resident memory at the end in bytes, including mapped files, above that before opening.
    pub(crate) memory_bytes: f64,
    /// The anonymous part of `memory_bytes`.
    pub(crate) memory_anonymous_bytes: f64,
    /// Disk space of the store's files in bytes, after closing.
    pub(crate) space_bytes: f64,
    /// Time to open the store, in ms.
    pub(crate) open_ms: f64,
    /// Time in ms until background work was idle: after the load and its flush, or after the
    /// warm-up.
    pub(crate) settle_ms: f64,
    /// Figures of some cases or engines only.
    pub(crate) more: BTreeMap<String, f64>,
}

impl Figures {
    /// Returns the [`median`] of each figure, but the maximum of peaks, which are limits. Requires
    /// a round.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure).collect());
        let names: BTreeSet<&String> = rounds.iter().flat_map(|round| round.more.keys()).collect();
        let more = names.into_iter().map(|name| {
            let figures = rounds.iter().filter_map(|round| round.more.get(name));
            (name.clone(), median(figures.copied().collect()))
        });
        Self {
            operations: of(|f| f.operations),
            ns: of(|f| f.ns),
            cpu_ns: of(|f| f.cpu_ns),
            background_cpu_ns: of(|f| f.background_cpu_ns),
            p50_ns: of(|f| f.p50_ns),
            p99_ns: of(|f| f.p99_ns),
            p999_ns: of(|f| f.p999_ns),
            read_calls: of(|f| f.read_calls),
            read_bytes: of(|f| f.read_bytes),
            device_read_bytes: of(|f| f.device_read_bytes),
            write_calls: of(|f| f.write_calls),
            write_bytes: of(|f| f.write_bytes),
            device_write_bytes: of(|f| f.device_write_bytes),
            total_bytes: of(|f| f.total_bytes),
            memory_peak_bytes: rounds.iter().map(|f| f.memory_peak_bytes).fold(0.0, f64::max),
            memory_bytes: of(|f| f.memory_bytes),
            memory_anonymous_bytes: of(|f| f.memory_anonymous_bytes),
            space_bytes: of(|f| f.space_bytes),
            open_ms: of(|f| f.open_ms),
            settle_ms: of(|f| f.settle_ms),
            more: more.collect(),
        }
    }
}

/// Returns the median, or the lower middle of an even number of figures. Requires a figure.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) / 2]
}

/// Report of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) contestant: Contestant,
    pub(crate) case: Case,
    pub(crate) round: u64,
    /// Shape of the store, as far as the engine reports it.
    pub(crate) shape: String,
    pub(crate) figures: Figures,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns figures that all equal `figure`.
    pub(crate) fn all(figure: f64) -> Figures {
        let names = serde_json::to_value(Figures::default()).unwrap();
        let figures = names.as_object().unwrap().iter();
        let figures = figures.map(|(name, old)| {
            (name.clone(), if old.is_object() { old.clone() } else { figure.into() })
        });
        serde_json::from_value(serde_json::Value::Object(figures.collect())).unwrap()
    }

    #[test]
    fn each_figure_has_its_own_median() {
        let more = |figure| BTreeMap::from([("a".to_owned(), figure)]);
        let one = Figures { cpu_ns: 9.0, more: more(3.0), ..all(1.0) };
        let two = Figures { cpu_ns: 8.0, ..all(3.0) };
        let three = Figures { cpu_ns: 1.0, more: more(4.0), ..all(2.0) };
        let want = Figures { cpu_ns: 8.0, memory_peak_bytes: 3.0, more: more(3.0), ..all(2.0) };
        assert_eq!(Figures::median(&[one, two, three]), want);
        let want = Figures { memory_peak_bytes: 2.0, ..all(1.0) };
        assert_eq!(Figures::median(&[all(1.0), all(2.0)]), want);
    }
}
