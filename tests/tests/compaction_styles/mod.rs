//! Styles of compaction, changed while a store is open and across openings.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod fifo;
pub(crate) mod fifo_crash;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sievedb::{
    CompactionStyle, Db, Error, Fifo, HistoryLength, KeyspaceOptions, OlderValues, Options,
    SizeTiered,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::mix,
    settings::{STORE_DIR, small_keyspace, small_options},
};

fn open(fs: &Arc<MemoryFs>, style: impl Into<CompactionStyle>) -> Db {
    let keyspace = small_keyspace().compaction_style(style);
    small_options(Arc::clone(fs) as _).keyspace(keyspace).open(STORE_DIR).unwrap()
}

/// Opens the store with the options that its keyspace has.
fn reopen(fs: &Arc<MemoryFs>) -> Db {
    Options::new().fs(Arc::clone(fs) as _).worker_threads(0).open(STORE_DIR).unwrap()
}

/// Returns the sorted runs of the default keyspace by level.
fn runs_by_level(db: &Db) -> BTreeMap<u8, u64> {
    let levels = db.stats().keyspaces[0].levels.clone();
    levels.iter().map(|it| (it.level, it.runs)).filter(|&(_, runs)| runs > 0).collect()
}

fn set_style(db: &Db, style: impl Into<CompactionStyle>) -> sievedb::Result<()> {
    let keyspace = db.default_keyspace();
    keyspace.set_options(keyspace.options().compaction_style(style))
}

fn flush_round(db: &Db, round: usize, model: &mut BTreeMap<String, String>) {
    for number in 0..20 {
        let (key, value) = (format!("key{:03}", (number * 7 + round) % 50), format!("{round:030}"));
        if number % 5 == 4 {
            db.remove(&key).unwrap();
            model.remove(&key);
        } else {
            db.insert(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    db.flush().unwrap();
}

fn contents(db: &Db) -> BTreeMap<String, String> {
    let text = |bytes: bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    db.iter().map(|entry| entry.map(|(k, v)| (text(k), text(v))).unwrap()).collect()
}

#[test]
fn a_style_is_kept_and_a_change_rewrites_nothing() {
    let fs = Arc::new(MemoryFs::new());
    let mut model = BTreeMap::new();
    let tiered = SizeTiered::new().merge_runs_min(3);
    let db = open(&fs, tiered);
    for round in 0..20 {
        flush_round(&db, round, &mut model);
    }
    let shape = runs_by_level(&db);
    assert!(shape.keys().all(|level| [0, 6].contains(level)), "{shape:?}");
    assert!(shape.contains_key(&6), "a merge with the oldest run: {shape:?}");
    assert_eq!(contents(&db), model);
    db.close().unwrap();

    let db = reopen(&fs);
    assert_eq!(db.default_keyspace().options().get_compaction_style(), tiered.into());
    let merges = db.stats().background.compactions;
    set_style(&db, Fifo::new(1 << 30)).unwrap();
    assert_eq!(db.stats().background.compactions, merges);
    for round in 20..30 {
        flush_round(&db, round, &mut model);
    }
    assert!(runs_by_level(&db)[&0] >= 10, "nothing is merged");
    set_style(&db, CompactionStyle::Leveled).unwrap();
    db.wait_for_background().unwrap();
    assert!(runs_by_level(&db).get(&0).is_none_or(|&runs| runs < 8), "the change is due");
    assert_eq!(contents(&db), model);
    let text = "size-tiered compaction from 3 to 16 runs with size ratio 150 % and space 200 %";
    set_style(&db, tiered).unwrap();
    let options = db.default_keyspace().options().to_string();
    assert!(options.ends_with(text), "{options}");
    db.compact().unwrap();
    assert_eq!(runs_by_level(&db).keys().collect::<Vec<_>>(), [&6]);
    assert_eq!(contents(&db), model);
}

#[test]
fn wrong_parameters_are_refused() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, CompactionStyle::Leveled);
    let tiered = SizeTiered::new;
    let cases: [(CompactionStyle, &str); 7] = [
        (tiered().merge_runs_min(1).into(), "merge_runs_min"),
        (tiered().merge_runs_min(5).runs_max(4).into(), "runs_max"),
        (tiered().runs_max(257).into(), "runs_max"),
        (tiered().size_ratio_percent(99).into(), "size_ratio_percent"),
        (tiered().space_percent_max(9).into(), "space_percent_max"),
        (Fifo::new(4095).into(), "bytes_max"),
        (Fifo::new(4096).age_max(Duration::ZERO).into(), "age_max"),
    ];
    for (style, want) in cases {
        match set_style(&db, style) {
            Err(Error::InvalidOption { name: "compaction_style", allowed }) => {
                assert!(allowed.starts_with(want), "{want}: {allowed}");
            }
            other => panic!("{want}: {other:?}"),
        }
    }
    let history = KeyspaceOptions::new().keep_history(HistoryLength::Sequences(9));
    let both = db.keyspace_with("both", &history.compaction_style(Fifo::new(1 << 20)));
    assert!(matches!(both, Err(Error::InvalidOption { name: "keep_history", .. })), "{both:?}");
}

/// A small number of runs answers lookups, and filters are planned over all of them.
#[test]
fn the_runs_of_a_tiered_keyspace_are_bounded_and_have_filters() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, SizeTiered::new().runs_max(6));
    let key = |number: u64| mix(number).to_be_bytes();
    let mut most = 0;
    for round in 0..100 {
        (0..20).for_each(|at| db.insert(key(round * 20 + at), [round as u8; 40]).unwrap());
        db.flush().unwrap();
        most = most.max(db.stats().keyspaces[0].runs);
    }
    assert!((5..=6).contains(&most), "{most} runs");
    for number in 0..2000 {
        let want = vec![(number / 20) as u8; 40];
        assert_eq!(db.get(key(number)).unwrap(), Some(want.into()), "{number}");
    }
    let misses = 2_000;
    (0..misses).for_each(|number| assert_eq!(db.get(key(number + 2000)).unwrap(), None));
    let passed: u64 = db.stats().levels.iter().map(|level| level.filter_false_positives).sum();
    assert!(passed < misses / 5, "{passed} false positives");
}

#[test]
fn a_repair_finds_the_newest_values_of_tiered_runs() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, SizeTiered::new().merge_runs_min(3).runs_max(4));
    let mut model = BTreeMap::new();
    (0..23).for_each(|round| flush_round(&db, round, &mut model));
    db.close().unwrap();
    for name in fs.contents().keys().filter(|name| name.contains("MANIFEST-")) {
        sievedb::fs::Fs::unlink(&*fs, name.as_ref().as_ref()).unwrap();
    }
    let options = || small_options(Arc::clone(&fs) as _);
    options().repair(STORE_DIR, "data/new", OlderValues::LeaveOut).unwrap();
    let db = Options::new().fs(Arc::clone(&fs) as _).open("data/new").unwrap();
    assert_eq!(contents(&db), model);
}
