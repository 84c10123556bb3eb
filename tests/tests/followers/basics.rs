//! Each kind of change of a writer, one at a time.

use std::sync::Arc;

use sievedb::{Db, Durability, Error, KeyspaceOptions, MergeError, MergeOperator, Options};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::following;

/// Opens a writer and a follower of a new store.
fn both() -> (Arc<MemoryFs>, Db, Db) {
    let disk = Arc::new(MemoryFs::new());
    let writer = small_options(disk.clone()).open(STORE_DIR).unwrap();
    let follower = following(disk.clone()).open(STORE_DIR).unwrap();
    (disk, writer, follower)
}

/// Keeps the last operand.
#[derive(Debug)]
struct Last;

impl MergeOperator for Last {
    fn name(&self) -> &str {
        "last"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, all: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        Ok(all.last().map_or_else(Vec::new, |last| last.to_vec()))
    }
}

fn text(value: Option<impl AsRef<[u8]>>) -> Option<String> {
    value.map(|value| String::from_utf8(value.as_ref().to_vec()).unwrap())
}

#[test]
fn a_follower_sees_writes_after_a_refresh() {
    let (disk, writer, follower) = both();
    assert!(!follower.refresh().unwrap(), "nothing is new");
    writer.insert("key", "1").unwrap();
    assert_eq!(follower.get("key").unwrap(), None);
    let before = disk.operations();
    assert!(follower.refresh().unwrap());
    assert_eq!(text(follower.get("key").unwrap()).as_deref(), Some("1"));
    assert_eq!(disk.operations(), before, "it writes nothing");
    writer.remove("key").unwrap();
    writer.batch().commit(Durability::OsBuffer).unwrap();
    assert!(follower.refresh().unwrap());
    assert!(!follower.refresh().unwrap());
    assert!(!follower.contains_key("key").unwrap());
    assert_eq!(follower.snapshot().sequence(), writer.snapshot().sequence());
    assert!(!writer.refresh().unwrap(), "it follows none");
}

#[test]
fn a_follower_survives_flushes_compactions_and_log_rotations() {
    let (_, writer, follower) = both();
    for round in 0..40_u32 {
        for number in 0..40_u32 {
            writer.insert(number.to_be_bytes(), format!("{round:0100}")).unwrap();
        }
        match round % 5 {
            1 => writer.flush().unwrap(),
            3 => writer.compact().unwrap(),
            _ => {}
        }
        if round % 3 > 0 {
            assert!(follower.refresh().unwrap());
            let want = format!("{round:0100}");
            for number in 0..40_u32 {
                let found = text(follower.get(number.to_be_bytes()).unwrap());
                assert_eq!(found.as_ref(), Some(&want), "{round}: {number}");
            }
            assert_eq!(follower.iter().count(), 40);
            assert_eq!(follower.iter().rev().count(), 40);
        }
    }
}

#[test]
fn snapshots_and_iterators_of_a_follower_stay_as_they_are() {
    let (_, writer, follower) = both();
    let other = writer.keyspace("other").unwrap();
    let put = |round: u32| {
        for number in 0..30_u32 {
            writer.insert(number.to_be_bytes(), format!("{round:050}")).unwrap();
        }
        other.insert("round", format!("{round}")).unwrap();
    };
    put(0);
    follower.refresh().unwrap();
    let mut kept = Vec::new();
    for round in 1..30 {
        kept.push((round - 1, follower.snapshot(), follower.iter()));
        put(round);
        match round % 4 {
            0 => writer.compact().unwrap(),
            1 => writer.flush().unwrap(),
            2 => writer.remove_range::<&[u8]>(..).unwrap(),
            _ => other.clear().unwrap(),
        }
        assert!(follower.refresh().unwrap());
        if round % 7 == 0 {
            kept.remove(0);
        }
    }
    let other = follower.open_keyspace("other").unwrap();
    for (round, snapshot, iterator) in kept {
        // What the round of each snapshot left.
        let removed = round > 0 && round % 4 == 2;
        let cleared = round > 0 && round % 4 == 3;
        let want = if removed { 0 } else { 30 };
        assert_eq!(snapshot.iter().count(), want, "{round}");
        assert_eq!(iterator.count(), want, "{round}");
        for number in 0..30_u32 {
            let found = text(snapshot.get(number.to_be_bytes()).unwrap());
            assert_eq!(found, (!removed).then(|| format!("{round:050}")), "{round}: {number}");
        }
        let found = text(snapshot.keyspace(&other).unwrap().get("round").unwrap());
        assert_eq!(found, (!cleared).then(|| format!("{round}")), "{round}");
    }
}

/// The view before the first compaction is kept for the newer snapshot, and both read it.
#[test]
fn dropped_snapshot_does_not_change_an_older_one() {
    let (_, writer, follower) = both();
    let put = |round: u32| {
        for number in 0..30_u32 {
            writer.insert(number.to_be_bytes(), format!("{round}")).unwrap();
        }
    };
    put(0);
    follower.refresh().unwrap();
    let older = follower.snapshot();
    writer.insert("other", "1").unwrap();
    follower.refresh().unwrap();
    let newer = follower.snapshot();
    put(1);
    writer.compact().unwrap();
    follower.refresh().unwrap();
    drop(newer);
    put(2);
    writer.compact().unwrap();
    follower.refresh().unwrap();
    for number in 0..30_u32 {
        let found = text(older.get(number.to_be_bytes()).unwrap());
        assert_eq!(found.as_deref(), Some("0"), "{number}");
    }
}

#[test]
fn keyspaces_come_and_go() {
    let (_, writer, follower) = both();
    for round in 0..12_u32 {
        let space = writer.keyspace("a").unwrap();
        space.insert("round", format!("{round}")).unwrap();
        if round % 2 == 1 {
            writer.flush().unwrap();
        }
        follower.refresh().unwrap();
        let seen = follower.open_keyspace("a").unwrap();
        assert_eq!(text(seen.get("round").unwrap()), Some(format!("{round}")));
        // Names are exchanged within one refresh.
        let second = writer.keyspace("b").unwrap();
        second.insert("second", "1").unwrap();
        writer.rename_keyspace("a", "c").unwrap();
        writer.rename_keyspace("b", "a").unwrap();
        writer.rename_keyspace("c", "b").unwrap();
        follower.refresh().unwrap();
        assert_eq!(follower.keyspaces().unwrap(), ["a", "b", "default"]);
        assert_eq!(seen.name(), "b");
        assert_eq!(text(seen.get("round").unwrap()), Some(format!("{round}")));
        let renamed = follower.open_keyspace("a").unwrap();
        assert_eq!(text(renamed.get("second").unwrap()).as_deref(), Some("1"));
        assert_eq!(writer.drop_keyspaces(["a", "b"]).unwrap(), 2);
        follower.refresh().unwrap();
        assert_eq!(follower.keyspaces().unwrap(), ["default"]);
        assert!(matches!(seen.get("round"), Err(Error::KeyspaceDropped { .. })));
    }
}

#[test]
fn options_of_keyspaces_follow() {
    let (_, writer, follower) = both();
    let space = writer.keyspace("a").unwrap();
    follower.refresh().unwrap();
    let seen = follower.open_keyspace("a").unwrap();
    space.set_options(KeyspaceOptions::new().block_bytes(2 << 10)).unwrap();
    follower.refresh().unwrap();
    assert_eq!(format!("{:?}", seen.options()), format!("{:?}", space.options()));
}

#[test]
fn a_follower_survives_reopens_of_its_writer() {
    let (disk, mut writer, follower) = both();
    for round in 0..20_u32 {
        for number in 0..20_u32 {
            writer.insert(number.to_be_bytes(), format!("{round:050}")).unwrap();
        }
        if round % 3 == 0 {
            writer.flush().unwrap();
        }
        writer.close().unwrap();
        if round % 2 == 0 {
            follower.refresh().unwrap();
        }
        writer = small_options(disk.clone()).open(STORE_DIR).unwrap();
        writer.insert("last", format!("{round}")).unwrap();
        follower.refresh().unwrap();
        assert_eq!(text(follower.get("last").unwrap()), Some(format!("{round}")));
        assert_eq!(follower.iter().count(), 21);
    }
}

/// Buffered writes are not in the log yet.
#[test]
fn writes_in_memory_follow_when_they_are_written() {
    let (_, writer, follower) = both();
    let mut batch = writer.batch();
    batch.insert(&writer, "a", "1").unwrap();
    batch.commit(Durability::Memory).unwrap();
    assert!(!follower.refresh().unwrap());
    writer.persist(Durability::OsBuffer).unwrap();
    assert!(follower.refresh().unwrap());
    assert_eq!(text(follower.get("a").unwrap()).as_deref(), Some("1"));
}

#[test]
fn calls_that_a_follower_refuses_have_their_own_errors() {
    let (disk, writer, follower) = both();
    writer.insert("a", "1").unwrap();
    assert!(matches!(follower.insert("a", "2"), Err(Error::ReadOnly { .. })));
    assert!(matches!(follower.keyspace("new"), Err(Error::ReadOnly { .. })));
    assert!(matches!(follower.verify(), Err(Error::Following { .. })));
    assert!(matches!(follower.checkpoint("data/copy"), Err(Error::Following { .. })));
    let missing = Options::new().fs(disk).follow(true).open("data/missing");
    assert!(matches!(missing, Err(Error::NoStore { .. })), "{missing:?}");
    follower.close().unwrap();
    writer.close().unwrap();
}

/// Merge operands must be applied once, whether memtable or table has them.
#[test]
fn merge_operands_of_a_follower_count_once() {
    let disk = Arc::new(MemoryFs::new());
    let keyspace =
        KeyspaceOptions::new().merge_operator(Arc::new(sievedb::Counter)).memtable_bytes(4 << 10);
    let writer = small_options(disk.clone()).keyspace(keyspace).open(STORE_DIR).unwrap();
    let follower = Options::new().fs(disk).follow(true).open(STORE_DIR).unwrap();
    for number in 1..=500_u64 {
        writer.merge("sum", 1_u64.to_be_bytes()).unwrap();
        if number % 3 == 0 {
            follower.refresh().unwrap();
            let found = follower.get("sum").unwrap().unwrap();
            assert_eq!(found, writer.get("sum").unwrap().unwrap(), "{number}");
        }
        if number % 50 == 0 {
            writer.flush().unwrap();
        }
    }
}

/// Reads of its operands would fail as if they were damaged.
#[test]
fn operator_that_a_follower_lacks_is_named_by_the_refresh() {
    let (_, writer, follower) = both();
    let lists = writer.keyspace("lists").unwrap();
    lists.insert("key", "1").unwrap();
    follower.refresh().unwrap();
    lists.set_options(KeyspaceOptions::new().merge_operator(Arc::new(Last))).unwrap();
    lists.merge("key", "2").unwrap();
    lists.flush().unwrap();
    for _ in 0..2 {
        match follower.refresh() {
            Err(Error::UnknownMergeOperator { keyspace, operator }) => {
                assert_eq!((&*keyspace, &*operator), ("lists", "last"));
            }
            other => panic!("{other:?}"),
        }
        let seen = follower.open_keyspace("lists").unwrap();
        assert_eq!(text(seen.get("key").unwrap()).as_deref(), Some("1"));
    }
}
