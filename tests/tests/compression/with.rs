//! A build with the feature `zstd`.

use std::{fs, path::Path};

use sievedb::{Compression, Db, Error, KeyspaceOptions, VerifyProblemKind, describe};

use super::{block_of, forge, options, tables};
use crate::corruption::allocation;

const KEYS: u32 = 12_000;

/// Kind of the footer entry of the dictionary.
const DICTIONARY: u8 = 7;

/// A reader accepts dictionaries up to 1 MiB; zstd adds tables of about 30 KiB.
const ALLOCATION_BYTES_MAX: usize = 4 << 20;

/// LZ4 above, zstd with a dictionary in the last level. A table is larger than the training sample.
fn keyspace(bottommost: Compression) -> KeyspaceOptions {
    KeyspaceOptions::new()
        .block_bytes(1 << 10)
        .table_bytes(128 << 10)
        .bottommost_compression(bottommost)
}

const WITH_DICTIONARY: Compression = Compression::Zstd { level: 3, dictionary_bytes: 2 << 10 };

fn open(dir: &Path, bottommost: Compression) -> sievedb::Result<Db> {
    options(keyspace(bottommost)).open(dir)
}

fn key(number: u32) -> Vec<u8> {
    format!("customer/{number:08}").into_bytes()
}

/// Returns a record that profits from a dictionary: a single block is too short to learn the field
/// names.
fn record(number: u32, version: u32) -> Vec<u8> {
    let mixed = u64::from(number * 7 + version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        r#"{{"customer_number":{number},"display_name":"customer {}","balance_in_cents":{},"version":{version}}}"#,
        mixed % 10_007,
        mixed >> 40,
    )
    .into_bytes()
}

/// Returns the version of each key: every fifth was overwritten, every hundredth removed.
fn expected(number: u32, is_updated: bool) -> Option<Vec<u8>> {
    match is_updated {
        true if number.is_multiple_of(100) => None,
        true if number.is_multiple_of(5) => Some(record(number, 2)),
        _ => Some(record(number, 1)),
    }
}

fn fill(db: &Db) {
    (0..KEYS).for_each(|number| db.insert(key(number), record(number, 1)).unwrap());
}

fn update(db: &Db) {
    for number in (0..KEYS).step_by(5) {
        match expected(number, true) {
            Some(record) => db.insert(key(number), record).unwrap(),
            None => db.remove(key(number)).unwrap(),
        }
    }
}

/// Checks that all ways to read agree.
fn check(db: &Db, is_updated: bool) {
    let wanted = |number| expected(number, is_updated);
    let numbers = || (0..KEYS).map(|n| n * 7919 % KEYS);
    for number in numbers() {
        assert_eq!(db.get(key(number)).unwrap().map(Vec::from), wanted(number), "{number}");
    }
    let found = db.get_many(numbers().map(key)).unwrap();
    assert!(found.into_iter().map(|value| value.map(Vec::from)).eq(numbers().map(wanted)));
    let all = || (0..KEYS).filter_map(|number| Some((key(number), wanted(number)?)));
    let owned = |entry: sievedb::Result<(_, _)>| {
        let (key, value): (bytes::Bytes, bytes::Bytes) = entry.unwrap();
        (Vec::from(key), Vec::from(value))
    };
    assert!(db.iter().map(owned).eq(all()));
    assert!(db.iter().rev().map(owned).eq(all().collect::<Vec<_>>().into_iter().rev()));
    let report = db.verify().unwrap();
    assert!(report.is_good(), "{report}");
    assert_eq!(report.tables, db.stats().total().tables);
}

/// Returns the numbers of tables with a dictionary, with zstd blocks, and with LZ4 blocks.
fn kinds(dir: &Path) -> [usize; 3] {
    let (mut dictionaries, mut zstd, mut lz4) = (0, 0, 0);
    for path in tables(dir) {
        let text = describe(&path).unwrap().to_string();
        let has_dictionary = block_of(&path, DICTIONARY).is_some();
        assert_eq!(text.contains("zstd with the dictionary"), has_dictionary);
        dictionaries += usize::from(has_dictionary);
        zstd += usize::from(text.contains("zstd"));
        lz4 += usize::from(text.contains("LZ4"));
    }
    [dictionaries, zstd, lz4]
}

#[test]
fn last_level_uses_zstd_and_reads_equal() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), WITH_DICTIONARY).unwrap();
    fill(&db);
    check(&db, false);
    db.compact().unwrap();
    check(&db, false);
    let [dictionaries, zstd, lz4] = kinds(dir.path());
    assert!(dictionaries > 1 && zstd >= dictionaries && lz4 == 0, "{dictionaries} {zstd} {lz4}");

    // A flush writes a table to level 0.
    update(&db);
    check(&db, true);
    db.flush().unwrap();
    drop(db);
    let db = open(dir.path(), WITH_DICTIONARY).unwrap();
    let [_, _, lz4] = kinds(dir.path());
    assert!(lz4 > 0);
    check(&db, true);
    db.compact().unwrap();
    check(&db, true);
    let [again, _, lz4] = kinds(dir.path());
    assert!(again > 1 && lz4 == 0, "{again} {lz4}");
    drop(db);

    // Options apply to new tables; a reader needs no options to read old ones.
    let db = open(dir.path(), Compression::Lz4).unwrap();
    check(&db, true);
    db.insert(key(6), record(6, 1)).unwrap();
    db.compact().unwrap();
    check(&db, true);
    let [_, _, lz4] = kinds(dir.path());
    assert!(lz4 > 0, "the table of the key is rewritten");
}

#[test]
fn zstd_saves_space_and_a_dictionary_saves_more() {
    let without = Compression::Zstd { level: 3, dictionary_bytes: 0 };
    let bytes = [Compression::Lz4, without, WITH_DICTIONARY].map(|bottommost| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), bottommost).unwrap();
        fill(&db);
        db.compact().unwrap();
        db.stats().total().bytes
    });
    assert!(bytes[1] < bytes[0] * 95 / 100 && bytes[2] < bytes[1] * 95 / 100, "{bytes:?}");
}

/// Creates a store whose second last table has a dictionary. Returns its place.
fn with_dictionary() -> (tempfile::TempDir, std::path::PathBuf, crate::corruption::forge::Part) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), WITH_DICTIONARY).unwrap();
    fill(&db);
    db.compact().unwrap();
    drop(db);
    let table = tables(dir.path()).into_iter().find(|path| block_of(path, DICTIONARY).is_some());
    let table = table.unwrap();
    let dictionary = block_of(&table, DICTIONARY).unwrap();
    (dir, table, dictionary)
}

#[test]
fn damaged_dictionary_is_reported_with_its_offset() {
    let (dir, table, dictionary) = with_dictionary();
    let good = fs::read(&table).unwrap();
    for at in dictionary.place().step_by(97) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&table, bytes).unwrap();
        let error = open(dir.path(), WITH_DICTIONARY).unwrap_err();
        let Error::Corrupt { path, offset, .. } = &error else { panic!("{error:?}") };
        assert_eq!((path, *offset), (&table, dictionary.place().start as u64), "byte {at}");
    }
    let report = options(keyspace(WITH_DICTIONARY)).verify(dir.path(), |_| ()).unwrap();
    let damaged = report.problems.iter().any(|problem| problem.kind == VerifyProblemKind::Damaged);
    assert!(damaged, "{report}");
    fs::write(&table, good).unwrap();
    check(&open(dir.path(), WITH_DICTIONARY).unwrap(), false);
}

/// With a forged dictionary and valid checksums, blocks decompress to other bytes or fail. Other
/// tables are unaffected.
#[test]
fn forged_dictionary_neither_panics_nor_allocates_much() {
    let (dir, table, dictionary) = with_dictionary();
    let good = fs::read(&table).unwrap();
    // Name, mask of the kept bits, bits to flip.
    let ways = [("flipped", 0xff, 1), ("zero", 0, 0), ("ones", 0, 0xff)];
    let (mut refused, mut failed) = (0, 0);
    let content = dictionary.place().len() - 5;
    // The dictionary starts with the tables of the entropy coders, where each byte matters.
    let places = (0..64).chain((64..content).step_by(251));
    for (at, (name, stays, turned)) in places.flat_map(|at| ways.map(|way| (at, way))) {
        let name = (name, at);
        fs::write(&table, &good).unwrap();
        forge(&table, &dictionary, |bytes| bytes[at] = bytes[at] & stays ^ turned);
        allocation::reset_largest();
        let error = match open(dir.path(), WITH_DICTIONARY) {
            Ok(db) => {
                let found: Vec<_> =
                    (0..KEYS).step_by(61).map(|number| db.get(key(number))).collect();
                found.into_iter().find_map(Result::err).inspect(|_| failed += 1)
            }
            Err(error) => Some(error).inspect(|_| refused += 1),
        };
        if let Some(error) = error {
            assert!(
                matches!(&error, Error::Corrupt { path, .. } if *path == table),
                "{name:?}: {error:?}"
            );
        }
        assert!(allocation::largest_bytes() <= ALLOCATION_BYTES_MAX, "{name:?}");
    }
    assert!(refused > 10 && failed > 10, "{refused} refused, {failed} failed");
    fs::write(&table, good).unwrap();
    check(&open(dir.path(), WITH_DICTIONARY).unwrap(), false);
}
