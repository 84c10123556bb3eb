//! Conditional writes, merges and expiring values keep their index correct.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use sievedb_doubles::MemoryFs;
use sievedb_typed::{
    Index, IndexChanges, Indexed, Integer, Schema, TypedKeyspace,
    sievedb::{Counter, Db, KeyspaceOptions, Options, TransactionOptions, clock::ManualClock},
    transaction,
};

use crate::{seed, store};

type Counts = Indexed<u32, i64, Integer>;
type ByCount = Index<i64, u32, i64, Integer>;

const SECOND: Duration = Duration::from_secs(1);

/// Opens counts, indexed by count.
fn open(db: &Db, options: &KeyspaceOptions) -> (Counts, ByCount) {
    let schema = Schema::new("count", 1);
    let counts = TypedKeyspace::open_with(db, "counts", options, schema).unwrap();
    let mut counts = Indexed::new(db, counts).unwrap();
    let by_count = counts.index("by count", 1, |_, count: &i64| [*count]).unwrap();
    (counts, by_count)
}

/// Checks that each value has one index entry, with its expiry, and that there are no others.
fn check(db: &Db, counts: &Counts, by_count: &ByCount) {
    let snapshot = db.snapshot();
    let data = counts.keyspace().at(&snapshot).unwrap();
    let mut values: Vec<_> = data.iter().map(|entry| entry.unwrap()).collect();
    values.sort_by_key(|(id, count)| (*count, *id));
    let found: Vec<_> =
        by_count.at(&snapshot).unwrap().iter().map(|entry| entry.unwrap()).collect();
    assert_eq!(found, values.into_iter().map(|(id, n)| (n, id, n)).collect::<Vec<_>>());
    let index = snapshot.keyspace(db.open_keyspace("by count").unwrap()).unwrap();
    for entry in index.iter().keys() {
        let entry = entry.unwrap();
        let (_, id): (i64, u32) = sievedb_typed::key::from_bytes(&entry).unwrap();
        assert_eq!(index.ttl(&entry).unwrap(), data.ttl(id).unwrap(), "{id}");
    }
    assert_eq!(counts.rebuild().unwrap(), IndexChanges::default());
}

fn options_with_clock(clock: &Arc<ManualClock>) -> Options {
    Options::new().clock(Arc::<ManualClock>::clone(clock)).worker_threads(0)
}

#[test]
fn conditional_writes_change_the_index() {
    let (_dir, db) = store();
    let counter = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
    let (counts, by_count) = open(&db, &counter);
    assert!(counts.insert_if_absent(1, 5).unwrap());
    assert!(!counts.insert_if_absent(1, 6).unwrap());
    assert_eq!(counts.compare_and_set(1, Some(&6), Some(&7)).unwrap(), Err(Some(5)));
    counts.compare_and_set(1, Some(&5), Some(&7)).unwrap().unwrap();
    counts.compare_and_set(2, None, Some(&7)).unwrap().unwrap();
    counts.compare_and_set(3, None, None).unwrap().unwrap();
    assert_eq!(by_count.get(7).count(), 2);
    assert_eq!(counts.fetch_add(1, 3).unwrap(), 7);
    counts.merge(2, 10).unwrap();
    counts.merge(4, -1).unwrap();
    let found: Vec<_> = by_count.keys().map(|key| key.unwrap()).collect();
    assert_eq!(found, [(-1, 4), (10, 1), (17, 2)]);
    assert!(!counts.remove_if(4, |count| *count > 0).unwrap());
    assert!(counts.remove_if(4, |count| *count < 0).unwrap());
    assert_eq!(counts.take(1).unwrap(), Some(10));
    assert_eq!(counts.take(1).unwrap(), None);
    counts.compare_and_set(2, Some(&17), None).unwrap().unwrap();
    assert_eq!(by_count.keys().count(), 0);

    transaction(&db, TransactionOptions::new(), |transaction| {
        counts.insert_in(transaction, 1, 1)?;
        counts.merge_in(transaction, 1, 2)?;
        assert_eq!(counts.update_fetch_in(transaction, 1, |n| n.map(|n| n * 2))?, Some(6));
        counts.insert_in(transaction, 2, 9)?;
        assert_eq!(counts.take_in(transaction, 2)?, Some(9));
        counts.remove_in(transaction, 3)
    })
    .unwrap();
    assert_eq!(by_count.keys().map(|key| key.unwrap()).collect::<Vec<_>>(), [(6, 1)]);
    check(&db, &counts, &by_count);
}

#[test]
fn index_entries_expire_with_their_value() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new()));
    let db = options_with_clock(&clock).open(dir.path()).unwrap();
    let (counts, by_count) = open(&db, &KeyspaceOptions::new());
    counts.insert_with_ttl(1, 10, SECOND).unwrap();
    counts.insert_with_ttl(2, 10, 3 * SECOND).unwrap();
    counts.insert_with_ttl(3, 10, Duration::ZERO).unwrap();
    counts.insert_with_ttl(4, 10, Duration::MAX).unwrap();
    counts.insert(5, 10).unwrap();
    check(&db, &counts, &by_count);
    let ids = || by_count.get(10).map(|entry| entry.unwrap().0).collect::<Vec<_>>();
    assert_eq!(ids(), [1, 2, 4, 5]);
    // The same index key with other expiries: longer, none, and one again.
    counts.insert_with_ttl(1, 10, 2 * SECOND).unwrap();
    check(&db, &counts, &by_count);
    assert!(counts.persist_key(2).unwrap());
    check(&db, &counts, &by_count);
    assert!(counts.expire_at(5, SystemTime::UNIX_EPOCH + 1_000_000 * SECOND).unwrap());
    check(&db, &counts, &by_count);
    assert!(counts.expire_after(5, 999_999 * SECOND).unwrap());
    check(&db, &counts, &by_count);
    let snapshot = db.snapshot();
    clock.advance(2 * SECOND);
    assert_eq!(ids(), [2, 4, 5]);
    check(&db, &counts, &by_count);
    assert_eq!(by_count.at(&snapshot).unwrap().get(10).count(), 4, "the clock of the snapshot");
    // A write after the expiry finds no old value.
    assert_eq!(counts.fetch_add(1, 1).unwrap(), 0);
    assert!(counts.expire_at(5, SystemTime::UNIX_EPOCH).unwrap());
    assert!(
        !counts.persist_key(5).unwrap() && !counts.expire_at(9, SystemTime::UNIX_EPOCH).unwrap()
    );
    assert_eq!(
        by_count.keys().map(|key| key.unwrap()).collect::<Vec<_>>(),
        [(1, 1), (10, 2), (10, 4)]
    );
    transaction(&db, TransactionOptions::new(), |transaction| {
        counts.insert_with_ttl_in(transaction, 6, 1, SECOND)?;
        counts.insert_expiring_at_in(transaction, 7, 1, SystemTime::UNIX_EPOCH)?;
        counts.insert_without_ttl_in(transaction, 8, 1)?;
        // Again, with the expiry that this transaction wrote.
        counts.insert_with_ttl_in(transaction, 6, 1, 2 * SECOND)?;
        assert!(counts.expire_after_in(transaction, 8, SECOND)?);
        counts.expire_at_in(transaction, 8, SystemTime::UNIX_EPOCH)?;
        counts.persist_key_in(transaction, 8)?;
        Ok(())
    })
    .unwrap();
    check(&db, &counts, &by_count);
    clock.advance(SECOND);
    assert_eq!(by_count.get(1).count(), 2);
    clock.advance(SECOND);
    assert_eq!(by_count.get(1).count(), 1);
    check(&db, &counts, &by_count);
    // Compactions free data and index.
    db.compact().unwrap();
    check(&db, &counts, &by_count);
}

#[test]
fn index_follows_a_default_ttl() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new()));
    let hour = KeyspaceOptions::new().default_ttl(Some(3600 * SECOND));
    let minute = KeyspaceOptions::new().default_ttl(Some(60 * SECOND));
    // The default options apply to neither the data, which has its own, nor the index.
    let db = options_with_clock(&clock).keyspace(hour).open(dir.path()).unwrap();
    let (counts, by_count) = open(&db, &minute.merge_operator(Arc::new(Counter)));
    counts.insert(1, 10).unwrap();
    counts.insert_without_ttl(2, 20).unwrap();
    counts.update_fetch(3, |_| Some(30)).unwrap();
    counts.merge(4, 40).unwrap();
    check(&db, &counts, &by_count);
    clock.advance(30 * SECOND);
    // Changes keep the expiry.
    counts.merge(4, 1).unwrap();
    assert_eq!(counts.fetch_add(3, 1).unwrap(), 30);
    counts.compare_and_set(1, Some(&10), Some(&11)).unwrap().unwrap();
    counts.fetch_update(2, |_| Some(21)).unwrap();
    assert!(counts.insert_if_absent_with_ttl(5, 50, 31 * SECOND).unwrap());
    assert!(!counts.insert_if_absent_with_ttl(5, 51, 99 * SECOND).unwrap());
    check(&db, &counts, &by_count);
    clock.advance(30 * SECOND);
    assert_eq!(by_count.keys().map(|key| key.unwrap()).collect::<Vec<_>>(), [(21, 2), (50, 5)]);
    clock.advance(7200 * SECOND);
    assert_eq!(by_count.keys().map(|key| key.unwrap()).collect::<Vec<_>>(), [(21, 2)]);
    check(&db, &counts, &by_count);
}

#[test]
fn rebuild_corrects_expiries() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new()));
    let db = options_with_clock(&clock).open(dir.path()).unwrap();
    let (counts, by_count) = open(&db, &KeyspaceOptions::new());
    counts.insert_with_ttl(1, 10, SECOND).unwrap();
    counts.insert(2, 20).unwrap();
    // A write that bypasses the index.
    assert!(counts.keyspace().persist_key(1).unwrap());
    assert!(counts.keyspace().expire_at(2, SystemTime::UNIX_EPOCH + 9 * SECOND).unwrap());
    counts.keyspace().insert_with_ttl(3, 30, SECOND).unwrap();
    let changes = counts.rebuild().unwrap();
    assert_eq!(changes, IndexChanges { added: 1, removed: 0, expiries: 2 });
    check(&db, &counts, &by_count);
}

#[test]
fn operands_do_not_outlive_an_indexed_value() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new()));
    let db = options_with_clock(&clock).open(dir.path()).unwrap();
    let counter = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
    // Written before the index exists.
    let schema = Schema::new("count", 1);
    let data: TypedKeyspace<u32, i64, Integer> =
        TypedKeyspace::open_with(&db, "counts", &counter, schema).unwrap();
    data.insert_with_ttl(1, 10, SECOND).unwrap();
    data.merge(1, 5).unwrap();
    data.insert(2, 20).unwrap();
    data.merge(2, 5).unwrap();
    let (counts, by_count) = open(&db, &counter);
    let keys = || by_count.keys().map(|key| key.unwrap()).collect::<Vec<_>>();
    assert_eq!(keys(), [(15, 1), (25, 2)]);
    clock.advance(SECOND);
    assert_eq!(counts.keyspace().get(1).unwrap(), None);
    assert_eq!(keys(), [(25, 2)]);
    check(&db, &counts, &by_count);
}

/// Random writes with a moving clock, flushes, compactions and crashes.
#[test]
fn random_writes_keep_data_and_index_equal() {
    let seed = seed();
    let (disk, clock) = (Arc::new(MemoryFs::new()), Arc::new(ManualClock::new()));
    let open_store = |disk: &Arc<MemoryFs>| {
        let fs = Arc::<MemoryFs>::clone(disk);
        let db = options_with_clock(&clock).fs(fs).open("db").unwrap();
        let (counts, by_count) =
            open(&db, &KeyspaceOptions::new().merge_operator(Arc::new(Counter)));
        (db, counts, by_count)
    };
    let mut random = seed;
    let mut next = |below: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut kinds = BTreeMap::<u64, u32>::new();
    let (mut db, mut counts, mut by_count) = open_store(&disk);
    for step in 0..400 {
        let (id, count) = (next(8) as u32, next(4) as i64);
        let ttl = SECOND * next(5) as u32;
        let kind = next(13);
        *kinds.entry(kind).or_default() += 1;
        match kind {
            0 => counts.insert(id, count).unwrap(),
            1..=3 => counts.insert_with_ttl(id, count, ttl).unwrap(),
            4 => drop(counts.take(id).unwrap()),
            5 => drop(counts.fetch_add(id, 1).unwrap()),
            6 => counts.merge(id, count).unwrap(),
            7 => drop(counts.persist_key(id).unwrap()),
            8 => drop(counts.remove_if(id, |found| *found == count).unwrap()),
            9 => drop(counts.compare_and_set(id, Some(&count), Some(&1)).unwrap()),
            10 => clock.advance(SECOND),
            11 => db.flush().unwrap(),
            _ if step % 20 == 0 => {
                drop((counts, by_count));
                db.close().unwrap();
                (db, counts, by_count) = open_store(&disk);
            }
            _ => counts.insert_without_ttl(id, count).unwrap(),
        }
        if step % 5 == 0 {
            check(&db, &counts, &by_count);
        }
        if step % 100 == 99 {
            db.compact().unwrap();
        }
    }
    check(&db, &counts, &by_count);
    assert_eq!(kinds.len(), 13, "{kinds:?}");
}

#[test]
fn concurrent_writes_with_ttl_keep_the_index() {
    let (_dir, db) = store();
    let (counts, by_count) = open(&db, &KeyspaceOptions::new());
    thread::scope(|scope| {
        for writer in 0..3_u32 {
            let counts = &counts;
            scope.spawn(move || {
                for number in 0..100 {
                    let (id, ttl) = ((number + writer) % 4, SECOND * (number % 3) * 1000);
                    counts.insert_with_ttl(id, i64::from(number % 2), ttl).unwrap();
                    counts.fetch_add(id, 1).unwrap();
                }
            });
        }
    });
    check(&db, &counts, &by_count);
}
