//! Explanations are compared with lookups.

use std::{path::Path, sync::Arc};

use sievedb::{
    Counter, Db, Error, KeyspaceOptions, Result, Stats,
    explain::{ExplainedAnswer, Explanation, FilterVerdict},
    fs::Fs as _,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, seed, small_options},
};

use super::{KEYS, grown, key, options};
use crate::corruption::forge::filter_place;

/// Returns the counters of lookups that an explanation states: filters probed, rejected keys,
/// blocks.
fn counted(stats: &Stats) -> [u64; 6] {
    let total = stats.total();
    [
        total.filter_probes(),
        total.true_positives + total.false_positives,
        total.data_block_requests,
        total.index_block_requests,
        total.blocks_read,
        total.bytes_read,
    ]
}

fn told(explanation: &Explanation) -> [u64; 6] {
    let cost = &explanation.cost;
    [
        cost.filters_probed,
        cost.tables_searched,
        cost.data_block_requests,
        cost.index_block_requests,
        cost.blocks_read,
        cost.bytes_read,
    ]
}

/// Compares the explanations of random keys with their lookups. Returns the number of each kind of
/// answer.
fn check(db: &Db, rng: &mut Rng, asked: u64) -> [u64; 3] {
    let mut answers = [0; 3];
    for _ in 0..asked {
        let key = key(rng.number() % (KEYS * 2));
        // Caches the blocks for both following reads.
        let value = db.get(key).unwrap();
        let before = db.stats();
        let explanation = db.explain(key).unwrap();
        let after = db.stats();
        assert_eq!(counted(&before), counted(&after), "an explanation is no lookup");
        assert_eq!(before.lookups, after.lookups);
        db.get(key).unwrap();
        let by_lookup = counted(&db.stats());
        let difference: Vec<_> =
            by_lookup.iter().zip(counted(&after)).map(|(a, b)| a - b).collect();
        assert_eq!(told(&explanation)[..], difference, "{explanation}");
        let text = explanation.to_string();
        assert!(!text.ends_with('\n') && !text.contains("\n\n"), "{text}");
        let blocks: Vec<_> = explanation.tables.iter().flat_map(|table| &table.blocks).collect();
        let is_index = blocks.iter().filter(|block| block.is_index).count() as u64;
        let cost = &explanation.cost;
        assert_eq!(is_index, cost.index_block_requests);
        assert_eq!(blocks.len() as u64 - is_index, cost.data_block_requests);
        let answer = match explanation.answer {
            ExplainedAnswer::Present { value_bytes } => {
                assert_eq!(value.unwrap().len() as u64, value_bytes);
                0
            }
            ExplainedAnswer::Removed => 1,
            _ => 2,
        };
        assert!(answer == 0 || db.get(key).unwrap().is_none(), "{explanation}");
        answers[answer] += 1;
    }
    answers
}

#[test]
fn explanation_matches_the_lookup() {
    let mut rng = Rng::new(seed("explained lookups", 1));
    let fs = Arc::new(MemoryFs::new());
    let db = grown(&fs);
    for number in 0..KEYS / 4 {
        db.remove(key(number * 4)).unwrap();
    }
    let answers = check(&db, &mut rng, 2_000);
    assert!(answers.iter().all(|&count| count > 20), "{answers:?}");
    for bytes in [4_000, 0] {
        db.set_filter_bytes_max(bytes).unwrap();
        check(&db, &mut rng, 500);
    }
}

#[test]
fn explain_reports_each_step() {
    let fs = Arc::new(MemoryFs::new());
    let db = grown(&fs);

    let fresh = db.explain(key(KEYS - 1)).unwrap();
    assert_eq!(fresh.memtables.len(), 1);
    let found = fresh.memtables[0].found.unwrap();
    assert!(!found.is_tombstone && found.value_bytes == 8);
    assert_eq!(found.sequence, db.stats().last_sequence);
    assert!(fresh.tables.iter().all(|table| table.is_skipped), "{fresh}");
    assert_eq!(fresh.cost.filters_probed, 0);

    let deep = db.explain(key(1)).unwrap();
    assert!(deep.tables.len() as u64 <= deep.runs && deep.tables.len() >= 2, "{deep}");
    let table = deep.tables.iter().find(|table| table.found.is_some()).unwrap();
    assert_eq!(table.filter.verdict, FilterVerdict::MayContain);
    assert!(*table.smallest <= key(1)[..] && key(1)[..] <= *table.largest);
    assert!(table.filter.kind.is_some() && table.filter.bits_per_key > 1.0, "{deep}");
    assert!((1e-6..0.5).contains(&table.filter.fpr_expected), "{deep}");
    let text = deep.to_string();
    for part in ["memtable, ", "level ", "filter: ", "data block at byte", "found sequence"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.ends_with("B)") && text.contains("present, a value of 8 bytes"), "{text}");

    // Cold again: the first read caches the blocks for the second.
    drop(db);
    let db = options(fs).open(STORE_DIR).unwrap();
    let cold = db.explain(key(1)).unwrap();
    let warm = db.explain(key(1)).unwrap();
    assert!(cold.cost.blocks_read > 0 && warm.cost.blocks_read == 0, "{cold}{warm}");
    assert!(cold.to_string().contains("read from the file"), "{cold}");
    assert!(warm.to_string().contains("from the cache"), "{warm}");

    let snapshot = db.snapshot();
    db.remove(key(1)).unwrap();
    let removed = db.explain(key(1)).unwrap();
    assert_eq!(removed.answer, ExplainedAnswer::Removed);
    assert!(removed.memtables[0].found.unwrap().is_tombstone, "{removed}");
    let earlier = snapshot.explain(key(1)).unwrap();
    assert_eq!(earlier.answer, ExplainedAnswer::Present { value_bytes: 8 });

    let empty = db.keyspace("empty").unwrap();
    let nothing = empty.explain("").unwrap();
    assert_eq!((nothing.answer, nothing.runs), (ExplainedAnswer::Absent, 0));
    db.drop_keyspace("empty").unwrap();
    assert!(empty.explain("").is_err());
}

/// Partly loaded, unloaded and damaged filters.
#[test]
fn filter_changes_are_reported() {
    let fs = Arc::new(MemoryFs::new());
    let db = grown(&fs);
    let verdicts = |db: &Db| -> Result<Vec<FilterVerdict>> {
        let explanation = db.explain(key(KEYS + 1))?;
        Ok(explanation.tables.into_iter().map(|table| table.filter.verdict).collect())
    };
    assert!(verdicts(&db).unwrap().contains(&FilterVerdict::Absent));
    let whole = db.stats().memory.filter_bytes;
    db.set_filter_bytes_max(whole * 7 / 10).unwrap();
    let in_part = |number: u64| {
        let tables = db.explain(key(number)).unwrap().tables.into_iter();
        tables.map(|table| table.filter).any(|filter| {
            filter.columns.is_some_and(|columns| Some(columns) < filter.columns_stored)
                && filter.bits_per_key < filter.bits_per_key_stored
        })
    };
    assert!((0..50).any(in_part), "no ribbon has lost columns");
    db.set_filter_bytes_max(0).unwrap();
    let explanation = db.explain(key(KEYS + 1)).unwrap();
    for table in &explanation.tables {
        assert_eq!(table.filter.verdict, FilterVerdict::NotResident, "{explanation}");
        assert_eq!((table.filter.bits_per_key, table.filter.fpr_expected), (0.0, 1.0));
        assert!(table.filter.kind.is_some() && !table.blocks.is_empty(), "{explanation}");
    }
    db.set_filter_bytes_max(u64::MAX).unwrap();
    db.flush().unwrap();
    drop(db);

    // Without workers no filter is rebuilt before the first write.
    let tables = fs.list(Path::new(STORE_DIR)).unwrap().into_iter();
    for name in tables.filter(|name| name.ends_with(".sst")) {
        let path = Path::new(STORE_DIR).join(name);
        let mut bytes = fs.read(path.to_str().unwrap()).unwrap().to_vec();
        let place = filter_place(&bytes).unwrap();
        bytes[usize::midpoint(place.start, place.end)] ^= 0x10;
        fs.replace(&path, bytes).unwrap();
    }
    let db = options(fs).open(STORE_DIR).unwrap();
    let verdicts = verdicts(&db).unwrap();
    let is_unusable = |verdict: &FilterVerdict| matches!(verdict, FilterVerdict::Unusable { reason } if !reason.is_empty());
    assert!(!verdicts.is_empty() && verdicts.iter().all(is_unusable), "{verdicts:?}");
    check(&db, &mut Rng::new(1), 100);
}

/// A damaged block below a merge operand is reported, not an error.
#[test]
fn damage_below_a_merge_operand_is_reported() {
    let fs = Arc::new(MemoryFs::new());
    let keyspace = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
    let options = || small_options(fs.clone()).keyspace(keyspace.clone());
    let db = options().open(STORE_DIR).unwrap();
    db.insert("visits", 1_i64.to_be_bytes()).unwrap();
    db.flush().unwrap();
    let tables = fs.list(Path::new(STORE_DIR)).unwrap().into_iter();
    let tables: Vec<_> = tables.filter(|name| name.ends_with(".sst")).collect();
    db.merge("visits", 1_i64.to_be_bytes()).unwrap();
    drop(db);
    let path = Path::new(STORE_DIR).join(&tables[0]);
    let mut bytes = fs.read(path.to_str().unwrap()).unwrap().to_vec();
    bytes[70] ^= 1;
    fs.replace(&path, bytes).unwrap();
    let db = options().open(STORE_DIR).unwrap();
    assert!(matches!(db.get("visits"), Err(Error::Corrupt { .. })));
    let explanation = db.explain("visits").unwrap();
    assert_eq!(explanation.answer, ExplainedAnswer::Unknown, "{explanation}");
    assert!(explanation.memtables[0].found.unwrap().is_operand, "{explanation}");
    let failure = explanation.older_failure.as_deref().unwrap_or_default();
    assert!(failure.contains(&tables[0]) && failure.contains("is corrupt"), "{explanation}");
    assert!(explanation.to_string().contains(failure), "{explanation}");
}
