//! Compares the fragments of range tombstones with their definition.

use std::collections::BTreeSet;

use sievedb_format::{RangeTombstone, SequenceNumber, TableBounds};

use crate::{
    compaction::{
        ranges::{RangeFragments, cut},
        stripes::Stripes,
    },
    table::TableMeta,
};

/// Random numbers from a seed.
struct Lots(u64);

impl Lots {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % bound // The low bits of such a generator repeat.
    }

    fn range(&mut self) -> RangeTombstone {
        let start = self.below(30) as u8;
        let end = start + 1 + self.below(12) as u8;
        let end: &[u8] = if self.below(8) > 0 { &[end] } else { &[] };
        RangeTombstone::new(&[start], end, 1 + self.below(12))
    }
}

fn seed() -> u64 {
    let seed = std::env::var("SIEVE_SEED").map_or(7, |seed| seed.parse().expect("a number"));
    eprintln!("SIEVE_SEED={seed}");
    seed
}

/// The newest range tombstone of each stripe over `key`.
fn newest(
    tombstones: &[RangeTombstone],
    snapshots: &BTreeSet<SequenceNumber>,
    key: &[u8],
) -> BTreeSet<SequenceNumber> {
    let readers = snapshots.iter().copied().chain([SequenceNumber::MAX]);
    let seen = |reader| {
        let covers = tombstones.iter().filter(move |it| it.sequence <= reader && it.covers(key));
        covers.map(|it| it.sequence).max()
    };
    readers.filter_map(seen).collect()
}

fn all() -> TableBounds {
    TableBounds::of_range(&[], &[])
}

/// Keys between and at all bounds.
fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..50_u8).flat_map(|key| [vec![key], vec![key, 0]])
}

fn kept(fragments: &[RangeTombstone], key: &[u8]) -> BTreeSet<SequenceNumber> {
    let covers: Vec<_> = fragments.iter().filter(|it| it.covers(key)).collect();
    let sequences: BTreeSet<_> = covers.iter().map(|it| it.sequence).collect();
    assert_eq!(sequences.len(), covers.len(), "those of a sequence number are disjoint");
    sequences
}

/// Each has a stripe of its own in the history.
#[test]
fn nested_range_tombstones_of_a_history_are_not_cut() {
    let key = |number: u16| number.to_be_bytes();
    let nested = |at: u16| RangeTombstone::new(&key(at), &key(4000 - at), u64::from(at) + 1);
    let tombstones: Vec<_> = (0..1000).map(nested).collect();
    let stripes = Stripes::new(Vec::new(), Some(0));
    let ranges = RangeFragments::new(&tombstones, &stripes, |_| false);
    assert_eq!(ranges.kept(), tombstones);
}

#[test]
fn fragments_keep_the_newest_range_tombstone_of_each_stripe() {
    let mut lots = Lots(seed());
    for _ in 0..300 {
        let tombstones: Vec<_> = (0..lots.below(12)).map(|_| lots.range()).collect();
        let snapshots: BTreeSet<_> = (0..lots.below(4)).map(|_| 1 + lots.below(12)).collect();
        let is_bottom = |bounds: &TableBounds| !bounds.holds(&[20]);
        let stripes = Stripes::new(snapshots.iter().copied().collect(), None);
        let mut ranges = RangeFragments::new(&tombstones, &stripes, is_bottom);
        let fragments = ranges.kept();
        let oldest = snapshots.first().copied().unwrap_or(SequenceNumber::MAX);
        for key in keys() {
            let newest = newest(&tombstones, &snapshots, &key);
            let kept = kept(&fragments, &key);
            let newer: BTreeSet<_> = newest.iter().copied().filter(|&it| it > oldest).collect();
            assert!(kept == newest || kept == newer, "{key:?}: {kept:?} of {newest:?}");
            assert!(key != [20] || kept == newest, "the range of the key is not at the bottom");
            for reader in 0..14 {
                let want = newest.range(..=reader).next_back().copied().unwrap_or(0);
                // A reader sees the newest of its own stripe, or one of an older stripe.
                let stripe_end = snapshots.range(reader..).next().copied();
                let at = stripe_end.unwrap_or(SequenceNumber::MAX);
                let cover = ranges.cover(&key, at);
                assert_eq!(cover, newest.range(..=at).next_back().copied().unwrap_or(0));
                assert!(cover >= want);
            }
        }
    }
}

/// The fragments of the parts of range tombstones are the parts of their fragments.
#[test]
fn cut_tombstones_cover_the_same_keys() {
    let mut lots = Lots(seed());
    for _ in 0..300 {
        let tombstones: Vec<_> = (0..lots.below(12)).map(|_| lots.range()).collect();
        let snapshots = (0..lots.below(4)).map(|_| 1 + lots.below(12)).collect();
        let stripes = Stripes::new(snapshots, None);
        let border = [lots.below(40) as u8];
        let parts = [TableBounds::of_range(&[], &border), TableBounds::of_range(&border, &[])];
        let mut whole = RangeFragments::new(&tombstones, &stripes, |_| false);
        for part in parts {
            let cut = cut(&tombstones, &part);
            assert!(cut.iter().all(|one| part.holds(&one.start)));
            let mut of_part = RangeFragments::new(&cut, &stripes, |_| false);
            for key in keys().filter(|key| part.holds(key)) {
                for reader in 0..14 {
                    assert_eq!(of_part.cover(&key, reader), whole.cover(&key, reader));
                }
            }
            let behind = of_part.kept();
            assert!(
                keys().filter(|key| !part.holds(key)).all(|key| kept(&behind, &key).is_empty())
            );
        }
    }
}

/// A history is as many snapshots, one at each of its sequence numbers.
#[test]
fn fragments_for_a_history_are_those_for_a_snapshot_of_each_version() {
    let mut lots = Lots(seed());
    for _ in 0..300 {
        let tombstones: Vec<_> = (0..lots.below(12)).map(|_| lots.range()).collect();
        let mut snapshots: Vec<_> = (0..lots.below(4)).map(|_| 1 + lots.below(12)).collect();
        let from = lots.below(14);
        let is_bottom = |bounds: &TableBounds| !bounds.holds(&[20]);
        let history = Stripes::new(snapshots.clone(), Some(from));
        let mut of_history = RangeFragments::new(&tombstones, &history, is_bottom);
        snapshots.extend(from..20);
        let mut of_each =
            RangeFragments::new(&tombstones, &Stripes::new(snapshots, None), is_bottom);
        assert_eq!(of_history.kept(), of_each.kept());
        for key in keys() {
            for reader in 0..14 {
                assert_eq!(of_history.cover(&key, reader), of_each.cover(&key, reader));
            }
        }
        let first = lots.below(30) as u8;
        let bounds = TableBounds::inclusive([first], [first + lots.below(6) as u8]);
        let (smallest_sequence, largest_sequence) = (lots.below(4), 4 + lots.below(4));
        let table = TableMeta { smallest_sequence, largest_sequence, ..table(bounds) };
        assert_eq!(of_history.hides(&table, &all()), of_each.hides(&table, &all()));
    }
}

#[test]
fn a_table_is_hidden_only_if_each_of_its_entries_is() {
    let mut lots = Lots(seed());
    let mut hidden = 0;
    for _ in 0..2000 {
        let tombstones: Vec<_> = (0..1 + lots.below(6)).map(|_| lots.range()).collect();
        let snapshots: BTreeSet<_> = (0..lots.below(2)).map(|_| 1 + lots.below(12)).collect();
        let stripes = Stripes::new(snapshots.iter().copied().collect(), None);
        let ranges = RangeFragments::new(&tombstones, &stripes, |_| false);
        let first = lots.below(30) as u8;
        let mut bounds = TableBounds::inclusive([first], [first + lots.below(6) as u8]);
        bounds.largest_excluded = lots.below(2) == 0 && bounds.smallest != bounds.largest;
        let smallest_sequence = lots.below(8);
        let largest_sequence = smallest_sequence + lots.below(4);
        let table = TableMeta { smallest_sequence, largest_sequence, ..table(bounds.clone()) };
        if !ranges.hides(&table, &all()) {
            continue;
        }
        hidden += 1;
        for key in keys().filter(|key| bounds.holds(key)) {
            for sequence in smallest_sequence..=largest_sequence {
                let reader = snapshots.range(sequence..).next().copied();
                let reader = reader.unwrap_or(SequenceNumber::MAX);
                let is_covered = newest(&tombstones, &snapshots, &key)
                    .range(..=reader)
                    .any(|&cover| cover > sequence);
                assert!(is_covered, "{key:?} @{sequence} of {table:?} in {tombstones:?}");
            }
        }
    }
    assert!(hidden > 20, "{hidden} tables were hidden");
}

fn table(bounds: TableBounds) -> TableMeta {
    TableMeta {
        id: 1,
        level: 1,
        run: 0,
        bytes: 1 << 20,
        checksum: 0,
        salt: 0,
        filter: None,
        prefix_filter: None,
        range_filter: None,
        global_sequence: None,
        bounds,
        entries: 100,
        tombstones: 0,
        range_tombstones: 0,
        smallest_sequence: 1,
        largest_sequence: 1,
        expiry: None,
        blob_files: Vec::new(),
        blob_depth: 0,
        written_ms: None,
    }
}
