//! `verify` reports each planted problem, and none in an intact store.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use sievedb::{
    FilterPolicy, KeyspaceOptions, Options, PrefixExtractor, PrefixFunction,
    VerifyProblemKind::{self, Damaged, FilterUnusable, FilterWrong},
    VerifyReport,
    fs::Fs,
};
use sievedb_doubles::{Loss, MemoryFs};

use super::{
    fixture::{KEYS, STORE_DIR, bloom, change, check, filled, options, paths},
    forge::{Forged, forge},
    rebuild::with_filter_files,
};
use crate::corruption::forge::{filter_place, filter_places};

fn copy(fs: &MemoryFs) -> Arc<MemoryFs> {
    Arc::new(fs.crash(fs.operations(), &Loss::Nothing))
}

/// Verifies a closed store.
fn verify(fs: &Arc<MemoryFs>) -> VerifyReport {
    Options::new().fs(fs.clone()).verify(STORE_DIR, |_| ()).unwrap()
}

/// Returns the kinds of all problems as text, which are unordered.
fn kinds(report: &VerifyReport) -> BTreeSet<String> {
    report.problems.iter().map(|found| format!("{:?}", found.kind)).collect()
}

#[test]
fn intact_store_has_no_problem() {
    for policy in [FilterPolicy::default(), bloom()] {
        let fs = filled(policy);
        let (mut last, mut calls) = (0, 0);
        let report = Options::new().fs(fs.clone()).verify(STORE_DIR, |progress| {
            assert!(progress.bytes_done >= last && progress.bytes_done <= progress.bytes_all);
            (last, calls) = (progress.bytes_done, calls + 1);
        });
        let report = report.unwrap();
        assert!(report.is_good(), "{report}");
        assert_eq!(last, 2 * report.table_bytes);
        assert!(calls > 10);
        let db = options(fs, policy, 0).open(STORE_DIR).unwrap();
        let before = db.stats().memory.block_cache_bytes;
        let open = db.verify().unwrap();
        assert!(open.is_good(), "{open}");
        assert_eq!(db.stats().memory.block_cache_bytes, before, "nothing enters the cache");
        assert_eq!((open.tables, open.entries), (report.tables, report.entries));
        // In an open store the loaded filters are probed too.
        assert_eq!(open.filter_probes, 2 * report.filter_probes);
        let keys = u64::from(KEYS / 4 * 3);
        assert!(report.filter_probes >= keys && report.filters == report.tables, "{report}");
    }
    let report = verify(&with_filter_files());
    assert!(report.is_good(), "no lookup uses the damaged filters in the tables: {report}");
    assert_eq!(report.unused_filters_damaged, report.tables, "{report}");
}

#[test]
fn each_forged_filter_is_reported() {
    let good = with_filter_files();
    for forged in Forged::ALL {
        let fs = copy(&good);
        let path = &paths(&fs, ".filter")[2];
        forge(&fs, path, forged);
        let kind = if forged == Forged::LacksAKey { FilterWrong } else { FilterUnusable };
        let report = verify(&fs);
        let problems: Vec<_> = report.problems.iter().filter(|found| found.kind == kind).collect();
        assert_eq!(problems.len(), 1, "{forged:?}: {report}");
        assert_eq!(&problems[0].path, path, "{forged:?}");
        assert_eq!(problems[0].offset, 64, "{forged:?}");
        assert_eq!(report.problems.len(), 1, "{forged:?}: {report}");
        // The same in an open store, before and after the background job.
        let db = options(fs.clone(), bloom(), 0).open(STORE_DIR).unwrap();
        let count = |report: &VerifyReport| {
            report.problems.iter().filter(|found| found.kind == kind).count()
        };
        let open = db.verify().unwrap();
        // A valid filter is probed twice: from its file and in memory.
        assert_eq!(count(&open), 1 + usize::from(kind == FilterWrong), "{forged:?}: {open}");
        db.wait_for_background().unwrap();
        let open = db.verify().unwrap();
        assert_eq!(count(&open) > 0, kind == FilterWrong, "{forged:?}: {open}");
        assert!(open.is_good() || kind == FilterWrong, "{forged:?}: {open}");
    }
}

#[test]
fn damage_to_any_file_is_reported_with_its_offset() {
    let good = filled(bloom());
    let tables = paths(&good, ".sst");
    type Damage = fn(&mut Vec<u8>);
    let cases: [(&str, Damage, &[VerifyProblemKind]); 6] = [
        ("a data block", |bytes| bytes[100] ^= 1, &[Damaged]),
        ("the header", |bytes| bytes[20] ^= 1, &[Damaged]),
        ("the footer", |bytes| *bytes.last_mut().unwrap() ^= 1, &[Damaged]),
        ("cut", |bytes| bytes.truncate(bytes.len() / 2), &[Damaged, FilterUnusable]),
        ("longer", |bytes| bytes.push(0), &[Damaged]),
        (
            "the filter",
            |bytes| {
                let place = filter_place(bytes).unwrap();
                bytes[place.start] ^= 1;
            },
            &[FilterUnusable],
        ),
    ];
    for (name, damage, expected) in cases {
        for table in &tables {
            let fs = copy(&good);
            change(&fs, table, damage);
            let report = verify(&fs);
            let want: BTreeSet<_> = expected.iter().map(|kind| format!("{kind:?}")).collect();
            assert_eq!(kinds(&report), want, "{name}: {report}");
            assert!(report.problems.iter().all(|found| found.path == *table), "{name}: {report}");
            assert_eq!(report.tables as usize, tables.len(), "it goes on behind {name}");
        }
    }
    // With an entry that is not in a table: a clean close drops an unneeded log.
    options(good.clone(), bloom(), 0).open(STORE_DIR).unwrap().insert("logged", "").unwrap();
    let others = [("CURRENT", Damaged), ("MANIFEST-", Damaged), (".log", Damaged)];
    for (file, kind) in others {
        let fs = copy(&good);
        let Some(path) = paths(&fs, file).pop() else { panic!("no {file}") };
        change(&fs, &path, |bytes| bytes[70] ^= 1);
        let report = verify(&fs);
        assert_eq!(report.problems.len(), 1, "{file}: {report}");
        assert_eq!((report.problems[0].kind, &report.problems[0].path), (kind, &path), "{file}");
    }
}

/// A prefix extractor of configurable length with a constant name.
#[derive(Debug)]
struct SameName(usize);

impl PrefixFunction for SameName {
    fn name(&self) -> &str {
        "same"
    }

    fn prefix_length(&self, _: &[u8]) -> Option<usize> {
        Some(self.0)
    }

    fn determines_prefix(&self, start: &[u8]) -> bool {
        start.len() >= self.0
    }
}

#[test]
fn damage_to_scan_filters_is_reported() {
    let fs = Arc::new(MemoryFs::new());
    let verify = |fs: &Arc<MemoryFs>, function: Option<usize>| {
        let options = Options::new().fs(fs.clone());
        let options = match function {
            Some(bytes) => options.prefix_function(Arc::new(SameName(bytes))),
            None => options,
        };
        options.verify(STORE_DIR, |_| ()).unwrap()
    };
    let keyspace = KeyspaceOptions::new()
        .prefix_extractor(PrefixExtractor::Custom(Arc::new(SameName(3))))
        .range_filter_bits_per_key(10.0);
    let options = Options::new().fs(fs.clone()).worker_threads(0).keyspace(keyspace);
    let db = options.prefix_function(Arc::new(SameName(3))).open(STORE_DIR).unwrap();
    for number in 0..900_u32 {
        db.insert(super::fixture::key(number), "value").unwrap();
    }
    db.flush().unwrap();
    let open = db.verify().unwrap();
    assert!(open.is_good() && open.filters == 3, "{open}");
    // The point filter is probed from its file and in memory.
    assert_eq!(open.filter_probes, 4 * 900);
    drop(db);
    let good = verify(&fs, Some(3));
    assert!(good.is_good() && good.filter_probes == 3 * 900, "{good}");
    let unknown = verify(&fs, None);
    assert!(unknown.is_good() && unknown.filters == 2, "not probed without function: {unknown}");
    let other = verify(&fs, Some(2));
    assert_eq!(kinds(&other), BTreeSet::from(["FilterWrong".to_owned()]), "{other}");
    assert!(other.problems[0].message.contains("prefix filter rules out "), "{other}");
    let table = &paths(&fs, ".sst")[0];
    let places: Vec<_> = filter_places(&super::fixture::read(&fs, table)).collect();
    assert_eq!(places.len(), 3);
    for (kind, place) in places {
        for at in [place.start, usize::midpoint(place.start, place.end), place.end - 1] {
            let fs = copy(&fs);
            change(&fs, table, |bytes| bytes[at] ^= 1);
            let report = verify(&fs, Some(3));
            let unusable: Vec<_> =
                report.problems.iter().filter(|found| found.kind == FilterUnusable).collect();
            assert_eq!(unusable.len(), 1, "{kind} at {at}: {report}");
            assert_eq!(unusable[0].offset, place.start as u64, "{kind} at {at}: {report}");
        }
    }
}

/// A replaced filter does not excuse other damage in its table.
#[test]
fn replaced_filter_hides_no_other_damage() {
    let good = with_filter_files();
    let table = &paths(&good, ".sst")[0];
    let bytes = super::fixture::read(&good, table);
    let place = filter_place(&bytes).unwrap();
    // The first data block, the bytes after the footer, and the padding before the filter, if any.
    let padding = (place.start - 1..place.start).filter(|&at| bytes[at] == 0);
    for at in [70, bytes.len() - 1].into_iter().chain(padding) {
        let fs = copy(&good);
        change(&fs, table, |bytes| bytes[at] ^= 1);
        let report = verify(&fs);
        let is_padding = at + 1 == place.start;
        assert_eq!(report.is_good(), is_padding, "byte {at}: {report}");
        assert!(report.problems.iter().all(|found| found.path == *table), "{report}");
    }
    // With a replaced filter, only the checksum of the whole file covers the padding.
    let fs = filled(bloom());
    let table = &paths(&fs, ".sst")[0];
    let place = filter_place(&super::fixture::read(&fs, table)).unwrap();
    change(&fs, table, |bytes| bytes[place.start - 1] ^= 1);
    let report = verify(&fs);
    assert!(!report.is_good(), "{report}");
}

#[test]
fn verify_lists_all_problems() {
    let fs = filled(FilterPolicy::default());
    let tables = paths(&fs, ".sst");
    fs.unlink(&tables[0]).unwrap();
    // Tables of at least two blocks.
    let is_large =
        |path: &&std::path::PathBuf| fs.contents()[&*path.display().to_string()].len() > 3_000;
    let large: Vec<_> = tables[1..].iter().filter(is_large).collect();
    assert!(large.len() > 1, "{tables:?}");
    for table in &large {
        change(&fs, table, |bytes| {
            bytes[100] ^= 1;
            bytes[1_500] ^= 1;
        });
    }
    let report = verify(&fs);
    assert_eq!(report.problems[0].kind, Damaged, "{report}");
    for table in large {
        let of_table: Vec<_> =
            report.problems.iter().filter(|found| found.path == *table).collect();
        assert_eq!(of_table.len(), 2, "two blocks of {}: {report}", table.display());
        assert!(of_table[0].offset <= 100 && of_table[1].offset <= 1_500, "{report}");
        assert!(of_table[1].offset > 100, "{report}");
    }
}

#[test]
fn writes_may_run_during_verify() {
    let fs = filled(FilterPolicy::default());
    let db = options(fs, FilterPolicy::default(), 2).open(STORE_DIR).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_u32;
            while !stop.load(Relaxed) {
                for number in 0..300_u32 {
                    let key = [b"w", &(number % 97).to_be_bytes()[..]].concat();
                    db.insert(key, [round as u8; 40]).unwrap();
                }
                if round.is_multiple_of(3) {
                    db.compact().unwrap();
                } else {
                    db.flush().unwrap();
                }
                round += 1;
            }
        });
        for _ in 0..40 {
            let report = db.verify().unwrap();
            assert!(report.is_good(), "{report}");
        }
        stop.store(true, Relaxed);
    });
    check(&db);
}
