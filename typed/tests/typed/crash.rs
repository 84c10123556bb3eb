//! Power cuts during migrations, and between writes of indexed entries.

use std::{collections::BTreeMap, sync::Arc};

use sievedb_doubles::{Loss, MemoryFs};
use sievedb_typed::{
    CodecError, Error, IndexChanges, Indexed, Postcard, Result, Schema, TypedKeyspace,
    sievedb::{Bytes, Db, Durability, Options, ReadOptions},
};

use crate::seed;

pub(crate) fn open(disk: &Arc<MemoryFs>) -> Db {
    Options::new().fs(Arc::<MemoryFs>::clone(disk)).worker_threads(0).open("db").unwrap()
}

/// Calls `check` with the disk after a power cut at each operation, starting at `first`.
pub(crate) fn for_each_crash(disk: &MemoryFs, first: usize, check: impl Fn(&Arc<MemoryFs>, &str)) {
    let seed = seed();
    let mut states = 0;
    for at in first..=disk.operations() {
        let random = Loss::Random { seed: seed.wrapping_add(at as u64), torn: at % 2 == 0 };
        for loss in [Loss::Nothing, Loss::Everything, random] {
            check(&Arc::new(disk.crash(at, &loss)), &format!("operation {at}, {loss:?}"));
            states += 1;
        }
    }
    assert!(states > 30, "only {states} states");
}

type Texts = TypedKeyspace<u32, String>;

#[test]
fn writes_of_a_handle_have_its_durability() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    let texts = |db: &Db| Texts::open(db, "texts", Schema::new("text", 1)).unwrap();
    let left = || {
        let crashed = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
        texts(&open(&crashed)).keys().collect::<Result<Vec<_>>>().unwrap()
    };
    let weak = texts(&db);
    let durable = weak.with_durability(Durability::Disk);
    weak.insert(1, "a".to_owned()).unwrap();
    assert_eq!(left(), []);
    durable.insert(2, "b".to_owned()).unwrap();
    assert_eq!(left(), [1, 2]);
    durable.with_read_options(ReadOptions::new()).remove(1).unwrap();
    assert_eq!(left(), [2]);
    let indexed = |texts: &Texts| Indexed::new(&db, texts.clone()).unwrap();
    indexed(&weak).insert(3, "c".to_owned()).unwrap();
    assert_eq!(left(), [2]);
    indexed(&weak).with_durability(Durability::Disk).insert(4, "d".to_owned()).unwrap();
    assert_eq!(left(), [2, 3, 4]);
    indexed(&durable).remove(3).unwrap();
    assert_eq!(left(), [2, 4]);
}

/// Appends a mark to a text. Two marks show that a value was rewritten twice.
fn mark(_key: &[u8], value: Bytes) -> std::result::Result<Option<Vec<u8>>, CodecError> {
    use sievedb_typed::Codec as _;

    let mut text: String = Postcard::decode(value)?;
    text.push('!');
    let mut bytes = Vec::new();
    Postcard::encode(&text, &mut bytes)?;
    Ok(Some(bytes))
}

#[test]
fn migration_after_a_power_cut_rewrites_each_value_once() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    let texts = Texts::open(&db, "texts", Schema::new("text", 1)).unwrap();
    // Two values fit into a batch.
    let long = "x".repeat(100_000);
    for id in 0..5 {
        texts.insert(id, &long).unwrap();
    }
    drop(texts);
    db.close().unwrap();

    let first = disk.operations();
    let schema = || Schema::new("text", 2).migrate_bytes(1, mark);
    let db = open(&disk);
    drop(Texts::open(&db, "texts", schema()).unwrap());
    db.close().unwrap();

    let want = format!("{long}!");
    for_each_crash(&disk, first, |disk, state| {
        let db = open(disk);
        // The old version reads all old values, or fails.
        match Texts::open(&db, "texts", Schema::new("text", 1)) {
            Ok(texts) => {
                assert!(texts.iter().all(|entry| entry.unwrap().1 == long), "{state}");
            }
            Err(Error::MigrationUnfinished { .. } | Error::SchemaMismatch { .. }) => {}
            Err(error) => panic!("{state}: {error}"),
        }
        let texts = Texts::open(&db, "texts", schema()).unwrap();
        let found: Vec<_> = texts.iter().map(Result::unwrap).collect();
        assert_eq!(found.len(), 5, "{state}");
        assert!(found.iter().all(|(_, text)| *text == want), "{state}");
    });
}

#[test]
fn index_agrees_with_its_data_after_a_power_cut() {
    let counts = |db: &Db| {
        let data = TypedKeyspace::<u8, u64>::open(db, "counts", Schema::new("count", 1)).unwrap();
        let mut counts = Indexed::new(db, data).unwrap();
        let by_count = counts.index("by count", 1, |_, count: &u64| [*count]).unwrap();
        (counts, by_count)
    };
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    let (written, by_count) = counts(&db);
    for number in 0..12 {
        written.update_fetch(number % 3, |count| Some(count.unwrap_or(0) + 1)).unwrap();
        if number % 5 == 4 {
            written.remove(number % 3).unwrap();
            db.flush().unwrap();
        }
    }
    drop((written, by_count));
    db.close().unwrap();

    for_each_crash(&disk, 0, |disk, state| {
        let (counts, by_count) = counts(&open(disk));
        let data: BTreeMap<_, _> = counts.keyspace().iter().map(Result::unwrap).collect();
        let index: BTreeMap<_, _> =
            by_count.iter().map(Result::unwrap).map(|(_, key, count)| (key, count)).collect();
        assert_eq!(index, data, "{state}");
        assert_eq!(counts.rebuild().unwrap(), IndexChanges::default(), "{state}");
    });
}
