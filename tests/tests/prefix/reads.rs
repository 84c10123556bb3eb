//! Reads of a scan of one prefix.

use std::sync::Arc;

use sievedb::{Db, FilterPolicy, FilterPolicyKind, PrefixExtractor};
use sievedb_doubles::MemoryFs;

use super::{keyspace, open, options, sum};

const RUNS: u32 = 3;
const PREFIXES: u32 = 500;

/// Writes three runs with keys of even prefixes; multiples of 4 are in the newest run only.
fn fill(db: &Db) {
    for run in 0..RUNS {
        let prefixes = (0..PREFIXES).map(|prefix| 2 * prefix);
        for prefix in prefixes.filter(|prefix| (prefix % 4 == 0) == (run == RUNS - 1)) {
            for number in 0..4_u32 {
                let key = [prefix.to_be_bytes(), (number * RUNS + run).to_be_bytes()].concat();
                db.insert(key, [prefix as u8; 20]).unwrap();
            }
        }
        db.flush().unwrap();
    }
}

fn reads(db: &Db) -> u64 {
    db.stats().table_reads.calls
}

#[test]
fn absent_prefix_reads_blocks_only_on_false_positives() {
    for kind in [FilterPolicyKind::Bloom, FilterPolicyKind::Ribbon, FilterPolicyKind::Auto] {
        let fs = Arc::new(MemoryFs::new());
        let policy = FilterPolicy::new(kind);
        let keyspace = keyspace(Some(PrefixExtractor::FixedLength(4)))
            .memtable_bytes(1 << 20)
            .table_bytes(1 << 20)
            .base_level_bytes(1 << 30)
            .filter_policy(policy);
        let db = options(&fs).keyspace(keyspace).open(super::STORE_DIR).unwrap();
        fill(&db);
        assert_eq!(db.stats().keyspaces[0].runs, u64::from(RUNS));

        let before = reads(&db);
        for prefix in (0..PREFIXES).map(|prefix| 2 * prefix + 1) {
            assert_eq!(db.prefix(prefix.to_be_bytes()).count(), 0);
            assert_eq!(db.prefix(prefix.to_be_bytes()).rev().count(), 0);
            // Longer keys, and a range within the prefix.
            let bounds = [0_u32, 9].map(|end| [prefix.to_be_bytes(), end.to_be_bytes()].concat());
            assert_eq!(db.prefix(&bounds[0]).count(), 0);
            let [start, end] = bounds;
            assert_eq!(db.range(start..end).count(), 0);
        }
        let probes = sum(&db, |level| level.prefix_probes);
        let positives = probes - sum(&db, |level| level.prefix_negatives);
        // Bounds alone reject the first and the last prefixes.
        assert!(probes > 4 * 3 * 490, "{kind:?}: {probes} filters were probed");
        assert!(positives < probes / 20, "{kind:?}: {positives} positives of {probes}");
        let read = reads(&db) - before;
        // A position between two blocks reads both.
        assert!(read <= 2 * positives, "{kind:?}: {read} reads, {positives} false positives");

        // A prefix of the newest run reads a block of that run; filters reject the others.
        let [before, positives] = [reads(&db), positives];
        let present = (0..PREFIXES).map(|prefix| 2 * prefix).filter(|prefix| prefix % 4 == 0);
        let mut found = 0;
        for prefix in present {
            found += db.prefix(prefix.to_be_bytes()).count() as u64;
        }
        let asked = sum(&db, |level| level.prefix_probes) - probes;
        let negatives = sum(&db, |level| level.prefix_negatives);
        let now = asked + probes - negatives - positives;
        let read = reads(&db) - before;
        assert_eq!(found, u64::from(4 * PREFIXES / 2));
        // Four entries may span two blocks.
        assert!(read <= 2 * now && now < 300, "{kind:?}: {read} reads of {now} tables");
    }
}

/// A prefix that spans several tables of a run is probed at its ends, and read completely.
#[test]
fn prefix_may_span_several_tables() {
    const ENTRIES: u32 = 2_000;
    let db = open(&Arc::new(MemoryFs::new()), Some(PrefixExtractor::FixedLength(4)));
    for prefix in ["aaaa", "cccc", "eeee"] {
        for number in 0..ENTRIES {
            db.insert([prefix.as_bytes(), &number.to_be_bytes()].concat(), [1; 50]).unwrap();
        }
    }
    db.compact().unwrap();
    let stats = db.stats();
    assert!(stats.keyspaces[0].runs == 1 && stats.keyspaces[0].tables > 9, "{stats}");
    let all = ENTRIES as usize;
    for (prefix, want) in [("aaaa", all), ("bbbb", 0), ("cccc", all), ("eeee", all)] {
        let before = sum(&db, |level| level.prefix_probes);
        assert_eq!(db.prefix(prefix).count(), want, "{prefix}");
        assert_eq!(db.prefix(prefix).rev().count(), want, "{prefix}");
        let asked = sum(&db, |level| level.prefix_probes) - before;
        assert!(asked <= 4, "{prefix}: {asked} filters were probed");
    }
}

#[test]
fn policy_none_builds_no_prefix_filters() {
    let policies = [
        FilterPolicy::new(FilterPolicyKind::None),
        FilterPolicy::new(FilterPolicyKind::Auto).bits_per_key(0.0),
    ];
    for policy in policies {
        let extractor = PrefixExtractor::FixedLength(4);
        let keyspace = keyspace(Some(extractor)).filter_policy(policy);
        let db = options(&Arc::new(MemoryFs::new())).keyspace(keyspace);
        let db = db.open(super::STORE_DIR).unwrap();
        fill(&db);
        assert_eq!(db.prefix(8_u32.to_be_bytes()).count(), 4);
        assert_eq!(db.prefix(9_u32.to_be_bytes()).count(), 0);
        assert_eq!(db.stats().memory.filter_bytes, 0);
        assert_eq!(sum(&db, |level| level.prefix_probes + level.prefix_unusable), 0);
    }
}
