//! Chooses the prefix and range filters in memory under a budget. Pure.
//!
//! The filters with the most measured probes per byte come first. Few measurements are corrected by
//! the expectation that scans of a run probe its tables in proportion to their keys. Point filters
//! can shrink, prefix and range filters cannot. Together these get the bytes that point filters
//! leave, and always up to half of the bound; less where lookups probe more often than scans.

/// Probes added to those measured: for a run by the keys of each table, and for all scans when
/// compared with lookups.
const SCANS_ASSUMED: f64 = 64.0;

/// Factor on the probes per byte of a filter in memory, which a replacement must exceed: loads cost
/// reads, and samples vary.
const RESIDENT_FACTOR: f64 = 1.5;

/// A prefix or range filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    /// Index of the keyspace.
    pub(super) keyspace: usize,
    /// Size of the filter in memory; 0 if there is none.
    pub(super) bytes: u64,
    /// Share of the keys of its run that its table has, from 0 to 1.
    pub(super) share: f64,
    /// Sampled scans that the filter could serve.
    pub(super) scans: f64,
    pub(super) is_resident: bool,
}

/// A bound on filters, of the store or of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bound {
    /// Maximum bytes of all filters.
    pub(super) bytes_max: u64,
    /// Bytes of all point filters if they were whole.
    pub(super) point_bytes: u64,
    /// Sampled lookups.
    pub(super) lookups: f64,
}

impl Bound {
    /// Returns the bytes for prefix and range filters with `scans` probes.
    fn scan_bytes_max(self, scans: f64) -> u64 {
        let left = self.bytes_max.saturating_sub(self.point_bytes);
        let (scans, lookups) = (scans + SCANS_ASSUMED, self.lookups + SCANS_ASSUMED);
        // Half of the bound, with as many probes as the others, or more.
        let half = self.bytes_max / 2;
        left.max((half as f64 * (2.0 * scans / (scans + lookups)).min(1.0)) as u64)
    }
}

/// Bytes for prefix and range filters.
#[derive(Debug)]
struct Limit {
    /// Limit of filters to load.
    bytes_max: u64,
    /// Limit of filters in memory: the other one changes with each sample and each flush, and a
    /// filter at the limit would be dropped and loaded again and again.
    resident_max: u64,
    taken: u64,
}

impl Limit {
    fn new(bound: Bound, scans: f64) -> Self {
        let bytes_max = bound.scan_bytes_max(scans);
        let resident_max = bytes_max.saturating_add(bytes_max / 8).min(bound.bytes_max);
        Self { bytes_max, resident_max, taken: 0 }
    }

    fn has_room(&self, candidate: &Candidate) -> bool {
        let max = if candidate.is_resident { self.resident_max } else { self.bytes_max };
        candidate.bytes <= max.saturating_sub(self.taken)
    }
}

impl Candidate {
    /// Returns the probes per byte.
    fn density(&self) -> f64 {
        let factor = if self.is_resident { RESIDENT_FACTOR } else { 1.0 };
        (self.scans + SCANS_ASSUMED * self.share) * factor / self.bytes.max(1) as f64
    }
}

/// Returns a flag for each candidate: `true` if it should be in memory. Of equal ones the smaller
/// come first, then those of lower index.
pub(super) fn choose(candidates: &[Candidate], store: Bound, keyspaces: &[Bound]) -> Vec<bool> {
    let mut scans = vec![0.0; keyspaces.len()];
    for candidate in candidates {
        scans[candidate.keyspace] += candidate.scans;
    }
    let mut of_store = Limit::new(store, scans.iter().sum());
    let of_keyspaces = keyspaces.iter().zip(&scans);
    let mut of_keyspaces: Vec<_> =
        of_keyspaces.map(|(&bound, &scans)| Limit::new(bound, scans)).collect();
    let mut order: Vec<_> = (0..candidates.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&candidates[a], &candidates[b]);
        b.density().total_cmp(&a.density()).then(a.bytes.cmp(&b.bytes))
    });
    let mut chosen = vec![false; candidates.len()];
    for at in order {
        let candidate = &candidates[at];
        let of_keyspace = &mut of_keyspaces[candidate.keyspace];
        if of_store.has_room(candidate) && of_keyspace.has_room(candidate) {
            of_store.taken += candidate.bytes;
            of_keyspace.taken += candidate.bytes;
            chosen[at] = true;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = u64::MAX;

    fn bound((bytes_max, point_bytes): (u64, u64)) -> Bound {
        Bound { bytes_max, point_bytes, lookups: 0.0 }
    }

    /// Runs of one table each, of these sizes, in two keyspaces in turn.
    fn runs(sizes: [u64; 4]) -> [Candidate; 4] {
        let (scans, share) = (0.0, 1.0);
        std::array::from_fn(|at| Candidate {
            keyspace: at % 2,
            bytes: sizes[at],
            share,
            scans,
            is_resident: false,
        })
    }

    #[test]
    fn unmeasured_large_runs_make_way_first() {
        type Case = (&'static str, (u64, u64), [(u64, u64); 2], [bool; 4]);
        let cases: [Case; 8] = [
            ("no bound", (ALL, 1_000), [(ALL, 500); 2], [true; 4]),
            ("room for all beside points", (150, 50), [(ALL, 0); 2], [true; 4]),
            ("not the largest", (149, 50), [(ALL, 0); 2], [false, true, true, true]),
            (
                "half, whatever points could use",
                (120, 900),
                [(ALL, 0); 2],
                [false, true, true, true],
            ),
            ("a third of them", (79, 900), [(ALL, 0); 2], [false, true, false, true]),
            ("nothing", (0, 900), [(ALL, 0); 2], [false; 4]),
            (
                "a bound of the first keyspace",
                (ALL, 0),
                [(69, 0), (ALL, 0)],
                [false, true, true, true],
            ),
            ("both bounds", (80, 100), [(ALL, 0), (20, 0)], [false, true, true, false]),
        ];
        for (name, store, keyspaces, want) in cases {
            let found = choose(&runs([40, 10, 30, 20]), bound(store), &keyspaces.map(bound));
            assert_eq!(found, want, "{name}");
        }
    }

    #[test]
    fn probed_filters_stay() {
        // Room for the largest, or for the three others.
        let store = bound((120, 900));
        let none = [bound((ALL, 0)); 2];
        let mut all = runs([40, 10, 30, 20]);
        all[0].scans = 4_000.0;
        assert_eq!(choose(&all, store, &none), [true, true, false, false], "most probes");
        all[0].scans = 60.0;
        assert_eq!(choose(&all, store, &none), [false, true, true, true], "a few more probes");
        all[0].is_resident = true;
        assert_eq!(choose(&all, store, &none), [true, true, false, false], "already in memory");
        // A hundredth of a run gets a hundredth of its probes, for as many bytes.
        let mut parts = runs([10, 10, 10, 10]);
        parts[2].share = 0.01;
        let found = choose(&parts, bound((60, 900)), &none);
        assert_eq!(found, [true, true, false, true], "tables of large runs make way");
    }

    #[test]
    fn a_filter_in_memory_stays_while_its_limit_varies() {
        let cases = [
            // The limit is half of the bound.
            (120, [true, true]),
            (119, [false, true]),
            (108, [false, true]),
            (106, [false, false]),
        ];
        for (bytes_max, want) in cases {
            for (is_resident, want) in [false, true].into_iter().zip(want) {
                let candidate =
                    Candidate { keyspace: 0, bytes: 60, share: 1.0, scans: 0.0, is_resident };
                let found = choose(&[candidate], bound((bytes_max, 900)), &[bound((ALL, 0))]);
                assert_eq!(found, [want], "{bytes_max}, in memory: {is_resident}");
            }
        }
        // Never more than the bound.
        let candidate =
            Candidate { keyspace: 0, bytes: 101, share: 1.0, scans: 0.0, is_resident: true };
        assert_eq!(choose(&[candidate], bound((100, 0)), &[bound((ALL, 0))]), [false]);
    }

    #[test]
    fn lookups_and_scans_share_by_use() {
        let bytes = |lookups, scans| {
            Bound { bytes_max: 1_000, point_bytes: 5_000, lookups }.scan_bytes_max(scans)
        };
        assert_eq!(bytes(0.0, 0.0), 500, "nothing measured");
        assert_eq!(bytes(0.0, 1e6), 500, "points keep their half");
        assert_eq!(bytes(10_000.0, 10_000.0), 500);
        assert_eq!(bytes(1e6, 0.0), 0, "no scans at all");
        assert!((125..135).contains(&bytes(7_000.0, 1_000.0)), "{}", bytes(7_000.0, 1_000.0));
        let idle = Bound { bytes_max: 1_000, point_bytes: 700, lookups: 1e6 };
        assert_eq!(idle.scan_bytes_max(0.0), 300, "what points leave");
    }
}
