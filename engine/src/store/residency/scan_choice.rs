//! Which prefix and range filters are in memory under a budget. Pure.
//!
//! A scan asks one or two tables of each run, however large they are. So the filter of a small table saves
//! as many reads as that of a large one and takes fewer bytes: the largest give way first. Point filters
//! can shrink, and these cannot: together they get what point filters do not want, half of the budget in
//! any case, and no more.

/// A filter that scans ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Index of the keyspace.
    pub(super) keyspace: usize,
    /// What it takes in memory.
    pub(super) bytes: u64,
}

/// A bound on filters, of the store or of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    /// For all filters.
    pub(super) bytes_max: u64,
    /// All point filters, if they were whole.
    pub(super) point_bytes: u64,
}

impl Bound {
    /// What filters that scans ask may take.
    fn scan_bytes_max(self) -> u64 {
        self.bytes_max.saturating_sub(self.point_bytes).max(self.bytes_max / 2)
    }
}

/// Whether each of the candidates is to be in memory. Candidates of the same size go by their order.
pub(super) fn choose(candidates: &[Candidate], store: Bound, keyspaces: &[Bound]) -> Vec<bool> {
    let mut left = store.scan_bytes_max();
    let mut left_of: Vec<_> = keyspaces.iter().map(|bound| bound.scan_bytes_max()).collect();
    let mut order: Vec<_> = (0..candidates.len()).collect();
    order.sort_by_key(|&at| candidates[at].bytes);
    let mut chosen = vec![false; candidates.len()];
    for at in order {
        let Candidate { keyspace, bytes } = candidates[at];
        if bytes <= left.min(left_of[keyspace]) {
            left -= bytes;
            left_of[keyspace] -= bytes;
            chosen[at] = true;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_give_way_first() {
        const ALL: u64 = u64::MAX;
        // Sizes in two keyspaces, in turn.
        let sizes = [40, 10, 30, 20];
        type Case = (&'static str, (u64, u64), [(u64, u64); 2], [bool; 4]);
        let cases: [Case; 8] = [
            ("no bound", (ALL, 1_000), [(ALL, 500); 2], [true; 4]),
            ("room for all beside points", (150, 50), [(ALL, 0); 2], [true; 4]),
            ("not the largest", (149, 50), [(ALL, 0); 2], [false, true, true, true]),
            ("half, whatever points want", (120, 900), [(ALL, 0); 2], [false, true, true, true]),
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
        let bound = |(bytes_max, point_bytes)| Bound { bytes_max, point_bytes };
        for (name, store, keyspaces, want) in cases {
            let candidates: Vec<_> = (0..)
                .zip(sizes)
                .map(|(at, bytes): (usize, _)| Candidate { keyspace: at % 2, bytes })
                .collect();
            let found = choose(&candidates, bound(store), &keyspaces.map(bound));
            assert_eq!(found, want, "{name}");
        }
    }
}
