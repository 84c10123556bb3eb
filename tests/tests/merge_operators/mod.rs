//! Merge operands: written without a read, applied by reads, flushes and compactions.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod failing;
mod many;
mod rescue;

use std::{path::Path, sync::Arc, thread};

use bytes::Bytes;
use sievedb::{
    Append, Counter, Db, Durability, Error, KeyspaceOptions, MergeError, MergeOperator, Options,
    fs::Fs,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

/// Joins with the key between two parts. It has no partial merge.
#[derive(Debug)]
struct JoinByKey;

impl MergeOperator for JoinByKey {
    fn name(&self) -> &str {
        "join by key"
    }

    fn merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Ok(parts.join(key))
    }
}

fn options(fs: &Arc<MemoryFs>, operator: Arc<dyn MergeOperator>) -> Options {
    let fs = Arc::clone(fs) as Arc<dyn Fs>;
    small_options(fs).keyspace(small_keyspace().merge_operator(operator))
}

fn append() -> Arc<dyn MergeOperator> {
    Arc::new(Append::with_separator(","))
}

#[test]
fn eight_threads_lose_no_operand_beside_flushes_and_compactions() {
    const THREADS: i64 = 8;
    const ROUNDS: i64 = 1000;
    let fs = Arc::new(MemoryFs::new());
    let db = options(&fs, Arc::new(Counter)).worker_threads(2).open(STORE_DIR).unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    db.merge("shared", 1_i64.to_be_bytes()).unwrap();
                    db.merge(format!("of {}", round % 7), 2_i64.to_be_bytes()).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..20 {
                db.flush().unwrap();
                let snapshot = db.snapshot();
                let before = snapshot.get("shared").unwrap();
                db.compact().unwrap();
                assert_eq!(snapshot.get("shared").unwrap(), before);
            }
        });
    });
    let counter = |value: i64| Some(Bytes::copy_from_slice(&value.to_be_bytes()));
    assert_eq!(db.get("shared").unwrap(), counter(THREADS * ROUNDS));
    db.compact().unwrap();
    assert_eq!(db.get("shared").unwrap(), counter(THREADS * ROUNDS));
    assert_eq!(db.fetch_add("shared", 1).unwrap(), THREADS * ROUNDS);
    let others = db.prefix("of ").map(|entry| {
        let (_, value) = entry.unwrap();
        i64::from_be_bytes(value[..].try_into().unwrap())
    });
    assert_eq!(others.sum::<i64>(), 2 * THREADS * ROUNDS);
    assert_eq!(db.stats().keyspaces[0].merge_operands, 0);
}

/// Values, scans and snapshots are the same before and after a flush and compactions, with an
/// operator that cannot merge two operands.
#[test]
fn operands_are_applied_in_order_wherever_they_are() {
    for operator in [Arc::new(JoinByKey) as Arc<dyn MergeOperator>, append()] {
        let fs = Arc::new(MemoryFs::new());
        let db = options(&fs, Arc::clone(&operator)).open(STORE_DIR).unwrap();
        let (mut snapshots, mut want) = (Vec::new(), Vec::new());
        let read = |view: &sievedb::Snapshot| {
            let forward: Vec<_> = view.iter().map(Result::unwrap).collect();
            let mut backward: Vec<_> = view.iter().rev().map(Result::unwrap).collect();
            backward.reverse();
            assert_eq!(forward, backward);
            for (key, value) in &forward {
                assert_eq!(view.get(key).unwrap().as_ref(), Some(value));
            }
            forward
        };
        for round in 0..60_u32 {
            let key = format!("{}", round % 5);
            match (round * 7) % 11 {
                0 => db.insert(&key, format!("v{round}")).unwrap(),
                1 => db.remove(&key).unwrap(),
                _ => db.merge(&key, format!("m{round}")).unwrap(),
            }
            if round % 9 == 3 {
                snapshots.push(db.snapshot());
                want.push(read(&snapshots[snapshots.len() - 1]));
            }
            match round % 20 {
                5 | 11 => db.flush().unwrap(),
                17 => db.compact().unwrap(),
                _ => {}
            }
        }
        for (snapshot, want) in snapshots.iter().zip(&want) {
            assert_eq!(read(snapshot), *want, "{operator:?}");
        }
        let newest = read(&db.snapshot());
        drop(snapshots);
        db.compact().unwrap();
        assert_eq!(read(&db.snapshot()), newest, "{operator:?}");
        assert_eq!(db.stats().keyspaces[0].merge_operands, 0, "all are applied");
    }
}

#[test]
fn a_batch_applies_its_operands_in_order() {
    let fs = Arc::new(MemoryFs::new());
    let db = options(&fs, append()).open(STORE_DIR).unwrap();
    let mut batch = db.batch();
    batch.merge(&db, "key", "1").unwrap();
    batch.insert(&db, "key", "2").unwrap();
    batch.merge(&db, "key", "3").unwrap();
    batch.merge(&db, "other", "4").unwrap();
    batch.commit(Durability::Disk).unwrap();
    assert_eq!(db.get("key").unwrap(), Some("2,3".into()));
    drop(db);
    let db = options(&fs, append()).open(STORE_DIR).unwrap();
    assert_eq!(db.get_many(["key", "other"]).unwrap(), [Some("2,3".into()), Some("4".into())]);
}

#[test]
fn an_operator_is_needed_and_cannot_be_changed() {
    let fs = Arc::new(MemoryFs::new());
    let db = small_options(fs.clone()).open(STORE_DIR).unwrap();
    let refused = |result: Result<(), Error>| match result {
        Err(Error::NoMergeOperator { keyspace }) => assert_eq!(keyspace, "default"),
        other => panic!("{other:?}"),
    };
    refused(db.merge("key", "1"));
    refused(db.batch().merge(&db, "key", "1"));
    let keyspace = db.default_keyspace();
    db.insert("key", "0").unwrap();
    keyspace.set_options(keyspace.options().merge_operator(append())).unwrap();
    db.merge("key", "1").unwrap();
    assert_eq!(keyspace.options().get_merge_operator_name(), Some("sieve.append:2c"));
    let fixed = |result: Result<(), Error>| match result {
        Err(Error::MergeOperatorFixed { keyspace, operator }) => {
            assert_eq!((&*keyspace, &*operator), ("default", "sieve.append:2c"));
        }
        other => panic!("{other:?}"),
    };
    fixed(keyspace.set_options(small_keyspace()));
    fixed(keyspace.set_options(keyspace.options().merge_operator(Arc::new(Counter))));
    keyspace.set_options(keyspace.options().block_bytes(2 << 10)).unwrap();
    drop(db);
    fixed(small_options(fs.clone()).open(STORE_DIR).map(drop));
    let db = options(&fs, append()).open(STORE_DIR).unwrap();
    assert_eq!(db.get("key").unwrap(), Some("0,1".into()));
}

/// Reads that apply many operands of a key cause a flush, which applies them once.
#[test]
fn reads_of_a_key_with_many_operands_make_a_flush_due() {
    const OPERANDS: i64 = 2_000;
    let fs = Arc::new(MemoryFs::new());
    let large = small_keyspace().memtable_bytes(16 << 20).merge_operator(Arc::new(Counter));
    let options = small_options(fs).keyspace(large);
    // So that the log causes no flush.
    let options = options.log_segment_bytes(1 << 20).log_bytes_max(8 << 20);
    let db = options.open(STORE_DIR).unwrap();
    for _ in 0..OPERANDS {
        db.merge("key", 1_i64.to_be_bytes()).unwrap();
    }
    let read = || db.get("key").unwrap();
    for _ in 0..60 {
        read();
    }
    db.insert("other", "").unwrap();
    assert_eq!(db.stats().background.flushes, 0, "reads have not paid for a flush");
    for _ in 0..10 {
        read();
    }
    db.insert("other", "").unwrap();
    assert_eq!(db.stats().background.flushes, 1);
    assert_eq!(read(), Some(Bytes::copy_from_slice(&OPERANDS.to_be_bytes())));
    let explanation = db.explain("key").unwrap();
    assert!(explanation.operands.is_empty(), "{explanation}");
}

/// A transaction applies its operands to what it sees, and conflicts with a later operand.
#[test]
fn a_transaction_applies_operands() {
    let fs = Arc::new(MemoryFs::new());
    let db = options(&fs, append()).open(STORE_DIR).unwrap();
    db.merge("key", "1").unwrap();
    let mut tx = db.begin();
    tx.merge(&db, "key", "2").unwrap();
    tx.merge(&db, "key", "3").unwrap();
    tx.merge(&db, "new", "4").unwrap();
    assert_eq!(tx.get(&db, "key").unwrap(), Some("1,2,3".into()));
    assert_eq!(db.get("key").unwrap(), Some("1".into()));
    tx.commit(None).unwrap();
    assert_eq!(db.get_many(["key", "new"]).unwrap(), [Some("1,2,3".into()), Some("4".into())]);
    let mut tx = db.begin();
    tx.merge(&db, "key", "5").unwrap();
    db.merge("key", "6").unwrap();
    match tx.commit(None) {
        Err(Error::Conflict { key, .. }) => assert_eq!(&*key, b"key"),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.get("key").unwrap(), Some("1,2,3,6".into()));
}

/// Returns the bytes of all files but the lock.
fn files(fs: &MemoryFs) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(STORE_DIR);
    let mut names = fs.list(folder).unwrap();
    names.retain(|name| name != "LOCK");
    names.sort();
    let read = |name: String| {
        let file = fs.open(&folder.join(&name)).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn an_unknown_operator_is_refused_and_nothing_is_changed() {
    let fs = Arc::new(MemoryFs::new());
    let plain = || small_options(Arc::clone(&fs) as Arc<dyn Fs>);
    let db = plain().open(STORE_DIR).unwrap();
    let own = KeyspaceOptions::new().merge_operator(Arc::new(JoinByKey));
    for name in ["dropped", "lists"] {
        let lists = db.keyspace_with(name, &own).unwrap();
        lists.merge("-", "1").unwrap();
        lists.flush().unwrap();
        lists.merge("-", "2").unwrap();
    }
    db.drop_keyspace("dropped").unwrap();
    drop(db);
    let before = files(&fs);
    for options in [plain(), plain().read_only(true), plain().merge_operator(append())] {
        match options.open(STORE_DIR) {
            Err(Error::UnknownMergeOperator { keyspace, operator }) => {
                assert_eq!((&*keyspace, &*operator), ("lists", "join by key"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(plain().verify(STORE_DIR, |_| {}).unwrap().problems.is_empty());
    assert_eq!(files(&fs), before);
    let registered = || plain().merge_operator(Arc::new(JoinByKey));
    for options in [registered().read_only(true), registered()] {
        let db: Db = options.open(STORE_DIR).unwrap();
        let lists = db.open_keyspace("lists").unwrap();
        assert_eq!(lists.get("-").unwrap(), Some("1-2".into()));
    }
}
