//! Conditional writes, values that expire, merges and range deletes of typed keyspaces.

use std::{
    ops::RangeBounds,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use sievedb_typed::{
    Error, Integer, MergeValues, Raw, Result, Schema, TypedKeyspace,
    sievedb::{
        self, Counter, Db, Durability, KeyspaceOptions, Options, TimeToLive, TransactionOptions,
        clock::ManualClock,
    },
    transaction,
};

use crate::store;

type Names = TypedKeyspace<u32, String>;

fn names(db: &Db) -> Names {
    Names::open(db, "names", Schema::new("name", 1)).unwrap()
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// Returns a store with a manual clock.
fn store_with_clock() -> (tempfile::TempDir, Db, Arc<ManualClock>) {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new()));
    let db = Options::new()
        .clock(Arc::<ManualClock>::clone(&clock))
        .worker_threads(0)
        .open(dir.path())
        .unwrap();
    (dir, db, clock)
}

#[test]
fn conditional_writes_read_typed_values() {
    let (_dir, db) = store();
    let names = names(&db);
    let (anna, bert) = (text("anna"), text("bert"));
    names.compare_and_set(7, None, Some(&anna)).unwrap().unwrap();
    assert_eq!(names.compare_and_set(7, None, Some(&bert)).unwrap(), Err(Some(text("anna"))));
    assert_eq!(names.compare_and_set(8, Some(&bert), None).unwrap(), Err(None));
    names.compare_and_set(8, None, None).unwrap().unwrap();
    names.compare_and_set(7, Some(&anna), Some(&bert)).unwrap().unwrap();
    let longer = |name: Option<String>| name.map(|name| name + "a");
    assert_eq!(names.update_fetch(7, longer).unwrap(), Some(text("berta")));
    assert_eq!(names.update_fetch(8, longer).unwrap(), None);
    let doubled = |name: Option<&String>| name.map(|name| name.repeat(2));
    assert_eq!(names.fetch_update(7, doubled).unwrap(), Some(text("berta")));
    assert_eq!(names.fetch_update(8, doubled).unwrap(), None);
    assert_eq!(names.fetch_update(7, |_| Some(text("berta"))).unwrap(), Some(text("bertaberta")));
    assert!(!names.remove_if(7, |name| name == "anna").unwrap());
    assert!(names.remove_if(7, |name| name == "berta").unwrap());
    assert!(!names.remove_if(7, |_| true).unwrap());
    names.insert(9, text("carl")).unwrap();
    assert_eq!(names.take(9).unwrap(), Some(text("carl")));
    assert_eq!(names.take(9).unwrap(), None);
    for id in 1..4 {
        names.insert(id, id.to_string()).unwrap();
    }
    assert_eq!(names.first().unwrap(), Some((1, text("1"))));
    assert_eq!(names.last().unwrap(), Some((3, text("3"))));
    assert_eq!(names.pop_last().unwrap(), Some((3, text("3"))));
    assert_eq!(names.pop_first().unwrap(), Some((1, text("1"))));
    assert_eq!(names.pop_first().unwrap(), Some((2, text("2"))));
    assert_eq!(names.pop_first().unwrap(), None);
}

#[test]
fn undecodable_keys_are_kept_by_pops() {
    let (_dir, db) = store();
    let names = names(&db);
    names.insert(7, text("anna")).unwrap();
    let value = names.untyped().get([0, 0, 0, 7]).unwrap().unwrap();
    for key in [&[0][..], &[255; 9]] {
        names.untyped().insert(key, &value).unwrap();
    }
    for error in [names.pop_first(), names.pop_last()] {
        assert!(matches!(error, Err(Error::Key { .. })), "{error:?}");
    }
    assert_eq!(names.untyped().iter().count(), 3);
}

#[test]
fn undecodable_values_are_kept_by_conditional_writes() {
    let (_dir, db) = store();
    let names = names(&db);
    names.untyped().insert([0, 0, 0, 7], [9]).unwrap();
    let errors = [
        names.take(7).map(drop),
        names.remove_if(7, |_| true).map(drop),
        names.update_fetch(7, |_| None).map(drop),
        names.compare_and_set(7, None, None).map(drop),
        names.pop_first().map(drop),
        transaction(&db, TransactionOptions::new(), |transaction| {
            names.take_in(transaction, 7).map(drop)
        }),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::Value { .. })), "{error:?}");
    }
    assert!(names.contains_key(7).unwrap());
}

#[test]
fn concurrent_conditional_writes_lose_no_update() {
    let (_dir, db) = store();
    let schema = Schema::new("count", 1);
    let counts = TypedKeyspace::<u8, i64, Integer>::open(&db, "counts", schema).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    counts.update_fetch(1, |count| Some(count.unwrap_or(0) + 1)).unwrap();
                    counts.fetch_add(1, 1).unwrap();
                }
            });
        }
    });
    assert_eq!(counts.get(1).unwrap(), Some(800));
    counts.untyped().insert([2], [0; 7]).unwrap();
    let error = counts.fetch_add(2, 1).unwrap_err();
    assert!(matches!(error.engine(), Some(sievedb::Error::NotACounter { .. })), "{error}");
}

#[test]
fn values_expire() {
    let (_dir, db, clock) = store_with_clock();
    let names = names(&db);
    let second = Duration::from_secs(1);
    names.insert_with_ttl(1, text("a"), second).unwrap();
    names.insert_expiring_at(2, text("b"), SystemTime::UNIX_EPOCH + 100_000 * second).unwrap();
    names.insert_without_ttl(3, text("c")).unwrap();
    assert_eq!(names.ttl(1).unwrap(), Some(TimeToLive::Remaining(second)));
    assert!(matches!(names.ttl(2).unwrap(), Some(TimeToLive::Remaining(_))));
    assert_eq!(names.ttl(3).unwrap(), Some(TimeToLive::Unlimited));
    assert_eq!(names.ttl(4).unwrap(), None);
    let before = names.at(&db.snapshot()).unwrap();
    clock.advance(second);
    assert_eq!(names.get(1).unwrap(), None);
    assert_eq!(before.ttl(1).unwrap(), Some(TimeToLive::Remaining(second)));
    assert!(!names.persist_key(1).unwrap() && names.persist_key(2).unwrap());
    assert_eq!(names.ttl(2).unwrap(), Some(TimeToLive::Unlimited));
    assert!(names.expire_at(3, SystemTime::UNIX_EPOCH).unwrap());
    assert!(!names.expire_at(4, SystemTime::UNIX_EPOCH).unwrap());
    assert!(names.expire_after(2, 2 * second).unwrap() && !names.expire_after(4, second).unwrap());
    assert_eq!(names.ttl(2).unwrap(), Some(TimeToLive::Remaining(2 * second)));
    assert!(names.persist_key(2).unwrap());
    assert_eq!(names.keys().collect::<Result<Vec<_>>>().unwrap(), [2]);

    // Conditional writes keep the expiry.
    assert!(names.insert_if_absent_with_ttl(1, text("a"), second).unwrap());
    assert!(!names.insert_if_absent_with_ttl(1, text("b"), 2 * second).unwrap());
    names.update_fetch(1, |name| name.map(|name| name + "a")).unwrap();
    names.fetch_update(1, |_| Some(text("b"))).unwrap();
    names.compare_and_set(1, Some(&text("b")), Some(&text("c"))).unwrap().unwrap();
    transaction(&db, TransactionOptions::new(), |transaction| {
        names.update_fetch_in(transaction, 1, |_| Some(text("d"))).map(drop)
    })
    .unwrap();
    assert_eq!(names.ttl(1).unwrap(), Some(TimeToLive::Remaining(second)));
    assert_eq!(names.take(1).unwrap(), Some(text("d")));

    // In a batch and in a transaction.
    let mut batch = db.batch();
    names.insert_with_ttl_in(&mut batch, 5, text("e"), second).unwrap();
    names.insert_without_ttl_in(&mut batch, 6, text("f")).unwrap();
    batch.commit(Durability::OsBuffer).unwrap();
    transaction(&db, TransactionOptions::new(), |transaction| {
        names.insert_with_ttl_in(transaction, 7, text("g"), 2 * second)?;
        names.insert_expiring_at_in(transaction, 8, text("h"), SystemTime::UNIX_EPOCH)?;
        assert_eq!(names.ttl_in(transaction, 7)?, Some(TimeToLive::Remaining(2 * second)));
        assert!(names.persist_key_in(transaction, 7)? && !names.persist_key_in(transaction, 8)?);
        assert!(names.expire_after_in(transaction, 6, second)?);
        assert_eq!(names.ttl_in(transaction, 6)?, Some(TimeToLive::Remaining(second)));
        assert!(names.expire_at_in(transaction, 6, SystemTime::UNIX_EPOCH)?);
        Ok(())
    })
    .unwrap();
    clock.advance(second);
    assert_eq!(names.keys().collect::<Result<Vec<_>>>().unwrap(), [2, 7]);
}

#[test]
fn ranges_are_removed() {
    type Keys = TypedKeyspace<(String, i32), ()>;
    let (_dir, db) = store();
    let keys = Keys::open(&db, "keys", Schema::new("none", 1)).unwrap();
    let all = || keys.keys().collect::<Result<Vec<_>>>().unwrap();
    let fill = || {
        for name in ["a", "a\0", "b"] {
            for number in [-1, 0, 1] {
                keys.insert((name, number), ()).unwrap();
            }
        }
        all()
    };
    let expect = |remove: &dyn Fn(), is_removed: &dyn Fn(&(String, i32)) -> bool| {
        let mut want = fill();
        remove();
        want.retain(|key| !is_removed(key));
        assert_eq!(all(), want);
    };
    let bounds = ("a", 0)..("b", 0);
    let within = |key: &(String, i32)| (text("a"), 0) <= *key && *key < (text("b"), 0);
    let mid = ("a\0",)..=("b",);
    let batch = |add: &dyn Fn(&mut sievedb::Batch) -> Result<()>| {
        let mut batch = db.batch();
        add(&mut batch).unwrap();
        batch.commit(Durability::OsBuffer).unwrap();
    };
    expect(&|| keys.remove_range(bounds.clone()).unwrap(), &within);
    expect(&|| batch(&|batch| keys.remove_range_in(batch, bounds.clone())), &within);
    let is_a = |key: &(String, i32)| key.0 == "a";
    expect(&|| keys.remove_prefix(("a",)).unwrap(), &is_a);
    expect(&|| batch(&|batch| keys.remove_prefix_in(batch, ("a",))), &is_a);
    let is_mid = |key: &(String, i32)| ("a\0".."c").contains(&&*key.0);
    expect(&|| keys.remove_prefix_range(mid.clone()).unwrap(), &is_mid);
    expect(&|| batch(&|batch| keys.remove_prefix_range_in(batch, mid.clone())), &is_mid);
    fill();
    transaction(&db, TransactionOptions::new(), |transaction| {
        keys.remove_prefix_in(transaction, ("b",))?;
        keys.insert_in(transaction, ("b", 5), ())?;
        let of_b = || keys.prefix_in(transaction, ("b",));
        assert_eq!(of_b().keys().collect::<Result<Vec<_>>>()?, [(text("b"), 5)]);
        assert_eq!(of_b().keys().next_back().transpose()?, Some((text("b"), 5)));
        assert!(!of_b().is_empty()? && keys.prefix_in(transaction, ("c",)).is_empty()?);
        assert_eq!(of_b().count(), 1);
        assert_eq!(keys.range_in(transaction, ("a\0", 1)..).count(), 2);
        let last = keys.iter_in(transaction).next_back().transpose()?;
        assert_eq!(last, Some(((text("b"), 5), ())));
        assert!(!keys.contains_key_in(transaction, ("b", 0))?);
        Ok(())
    })
    .unwrap();
    assert_eq!(keys.prefix(("b",)).count(), 1);
}

#[test]
fn operands_are_merged() {
    let (_dir, db) = store();
    let options = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
    let schema = Schema::new("count", 1);
    let counts =
        TypedKeyspace::<u8, i64, Integer>::open_with(&db, "counts", &options, schema).unwrap();
    counts.merge(1, 5).unwrap();
    counts.fetch_add(1, 1).unwrap();
    let mut batch = db.batch();
    counts.merge_in(&mut batch, 1, -2).unwrap();
    batch.commit(Durability::OsBuffer).unwrap();
    transaction(&db, TransactionOptions::new(), |transaction| {
        counts.merge_in(transaction, 1, 10)?;
        assert_eq!(counts.fetch_add_in(transaction, 1, 1)?, 14);
        assert_eq!(counts.get_for_update_in(transaction, 1)?, Some(15));
        assert_eq!(counts.fetch_update_in(transaction, 1, |count| count.map(|n| n * 2))?, Some(15));
        assert_eq!(counts.update_fetch_in(transaction, 1, |count| count.map(|n| n + 1))?, Some(31));
        assert_eq!(counts.fetch_update_in(transaction, 1, |count| count.map(|n| n - 1))?, Some(31));
        assert_eq!(counts.take_in(transaction, 2)?, None);
        Ok(())
    })
    .unwrap();
    assert_eq!(counts.get(1).unwrap(), Some(30));

    // A function on typed values, applied by reads, flushes and compactions.
    let join = MergeValues::<Vec<String>>::new("join", |mut old, new| {
        old.extend(new);
        old
    });
    let options = KeyspaceOptions::new().merge_operator(Arc::new(join));
    let schema = Schema::new("words", 1);
    let words =
        TypedKeyspace::<u8, Vec<String>>::open_with(&db, "words", &options, schema).unwrap();
    for word in ["to", "be"] {
        words.merge(1, vec![text(word)]).unwrap();
        words.untyped().flush().unwrap();
    }
    assert_eq!(words.get(1).unwrap(), Some(vec![text("to"), text("be")]));
    words.untyped().compact().unwrap();
    words.merge(1, vec![text("or")]).unwrap();
    assert_eq!(words.get(1).unwrap().unwrap().concat(), "tobeor");
    words.untyped().merge([2], [9]).unwrap();
    let error = words.get(2).unwrap_err();
    assert!(matches!(error.engine(), Some(sievedb::Error::MergeFailed { .. })), "{error}");
    let error = names(&db).merge(1, text("a")).unwrap_err();
    assert!(matches!(error.engine(), Some(sievedb::Error::NoMergeOperator { .. })), "{error}");
}

#[test]
fn migration_keeps_the_expiry_of_each_value() {
    let second = Duration::from_secs(1);
    for default_ttl in [None, Some(5 * second)] {
        let (_dir, db, clock) = store_with_clock();
        let options = KeyspaceOptions::new().default_ttl(default_ttl);
        let open = |schema| Names::open_with(&db, "names", &options, schema).unwrap();
        let old = open(Schema::new("name", 1));
        old.insert_with_ttl(1, text("anna"), 10 * second).unwrap();
        old.insert_without_ttl(2, text("bert")).unwrap();
        drop(old);
        clock.advance(3 * second);
        let new = open(Schema::new("name", 2).migrate(1, |name: String| name + "a"));
        assert_eq!(new.ttl(1).unwrap(), Some(TimeToLive::Remaining(7 * second)));
        assert_eq!(new.ttl(2).unwrap(), Some(TimeToLive::Unlimited));
        assert_eq!(new.get_many([1, 2]).unwrap(), [Some(text("annaa")), Some(text("berta"))]);
    }
}

#[test]
fn default_options_do_not_apply_to_schemas() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new()));
    let day = Duration::from_secs(24 * 3600);
    let options = KeyspaceOptions::new().default_ttl(Some(day));
    let clock_of_store = Arc::<ManualClock>::clone(&clock);
    let db = Options::new()
        .keyspace(options)
        .clock(clock_of_store)
        .worker_threads(0)
        .open(dir.path())
        .unwrap();
    let names = names(&db);
    names.insert_without_ttl(1, text("anna")).unwrap();
    names.insert(2, text("bert")).unwrap();
    clock.advance(2 * day);
    assert_eq!(names.keys().collect::<Result<Vec<_>>>().unwrap(), [1]);
    let error = Names::open(&db, "names", Schema::new("other", 1)).unwrap_err();
    assert!(matches!(error, Error::SchemaMismatch { .. }), "{error}");
}

#[test]
fn bounds_of_removals_are_those_of_ranges() {
    fn check(keys: &TypedKeyspace<u32, Vec<u8>, Raw>, bounds: impl RangeBounds<u32> + Clone) {
        for key in 0..6 {
            keys.insert(key, Vec::new()).unwrap();
        }
        let mut want: Vec<_> = (0..6).collect();
        want.retain(|key| !bounds.contains(key));
        keys.remove_range(bounds).unwrap();
        assert_eq!(keys.keys().collect::<Result<Vec<_>>>().unwrap(), want);
    }

    let (_dir, db) = store();
    let keys = TypedKeyspace::open(&db, "keys", Schema::new("bytes", 1)).unwrap();
    check(&keys, 2..4);
    check(&keys, 2..=4);
    check(&keys, ..1);
    check(&keys, 4..);
    check(&keys, 4..4);
    check(&keys, ..);
}
