//! All calls of a typed keyspace, compared with a map.

use std::{collections::BTreeMap, ops::Bound};

use serde::{Deserialize, Serialize};
use sievedb_typed::{
    Entries, Error, Raw, Result, Schema, TypedKeyspace, TypedSnapshot,
    sievedb::{self, Bytes, Durability, KeyspaceOptions},
};

use crate::store;

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
struct User {
    name: String,
    logins: Option<u64>,
}

fn user(name: &str) -> User {
    User { name: name.into(), logins: Some(name.len() as u64) }
}

fn list<K: sievedb_typed::Key, V, C: sievedb_typed::Codec<V>>(
    entries: Entries<K, V, C>,
) -> Vec<(K, V)> {
    entries.collect::<Result<_>>().unwrap()
}

#[test]
fn entries_are_written_and_read() {
    let (_dir, db) = store();
    let users = TypedKeyspace::<u64, User>::open(&db, "users", Schema::new("user", 1)).unwrap();
    users.insert(7, user("anna")).unwrap();
    let bert = user("bert");
    users.insert(8, &bert).unwrap();
    assert_eq!(users.get(7).unwrap(), Some(user("anna")));
    assert_eq!(users.get(9).unwrap(), None);
    assert!(users.contains_key(8).unwrap() && !users.contains_key(9).unwrap());
    assert!(!users.insert_if_absent(7, user("carl")).unwrap());
    assert!(users.insert_if_absent(9, user("carl")).unwrap());
    let found = users.get_many([9, 1, 7]).unwrap();
    assert_eq!(found, [Some(user("carl")), None, Some(user("anna"))]);
    assert_eq!(users.contains_many([9, 1, 7]).unwrap(), [true, false, true]);
    users.remove(9).unwrap();
    assert_eq!(users.keys().collect::<Result<Vec<_>>>().unwrap(), [7, 8]);
    assert_eq!(users.keys().rev().collect::<Result<Vec<_>>>().unwrap(), [8, 7]);
    assert_eq!(users.get_with(7, <[u8]>::len).unwrap(), Some(7));
    assert_eq!(format!("{users:?}"), "TypedKeyspace { name: \"users\", .. }");
}

#[test]
fn a_value_that_would_not_be_read_back_is_refused() {
    #[derive(Serialize, Deserialize, Debug)]
    #[serde(untagged)]
    enum Untagged {
        Number(u32),
    }

    let (_dir, db) = store();
    let schema = Schema::new("untagged", 1);
    let numbers = TypedKeyspace::<u64, Untagged>::open(&db, "numbers", schema).unwrap();
    let error = numbers.insert(7, Untagged::Number(1)).unwrap_err();
    assert!(matches!(error, Error::Encode { .. }), "{error}");
    assert!(!numbers.contains_key(7).unwrap());
}

#[test]
fn asynchronous_writes_have_the_same_encodings() {
    let (_dir, db) = store();
    let users = TypedKeyspace::<u64, User>::open(&db, "users", Schema::new("user", 1)).unwrap();
    users.room().wait().unwrap();
    users.room_for(10_000).wait().unwrap();
    users.try_insert(7, user("anna")).unwrap();
    let sequence = users.insert_async(8, user("bert")).unwrap().wait().unwrap();
    assert_eq!(list(users.iter()), [(7, user("anna")), (8, user("bert"))]);
    users.try_remove(7).unwrap();
    assert_eq!(users.get(7).unwrap(), None);
    let removed = users.remove_async(8).unwrap();
    assert!(removed.sequence() > sequence);
    removed.wait().unwrap();
    assert_eq!(list(users.iter()), []);
    db.wait_durable(sequence).unwrap();
}

#[test]
fn batches_and_snapshots_span_keyspaces() {
    let (_dir, db) = store();
    let users = TypedKeyspace::<u64, User>::open(&db, "users", Schema::new("user", 1)).unwrap();
    let options = KeyspaceOptions::new();
    let schema = Schema::new("name", 1);
    let names = TypedKeyspace::<String, u64>::open_with(&db, "names", &options, schema).unwrap();
    let before = db.snapshot();
    let mut batch = db.batch();
    users.insert_in(&mut batch, 7, user("anna")).unwrap();
    names.insert_in(&mut batch, "anna", 7).unwrap();
    names.remove_in(&mut batch, "bert").unwrap();
    assert_eq!(users.get(7).unwrap(), None);
    batch.commit(Durability::OsBuffer).unwrap();
    assert_eq!(users.get(names.get("anna").unwrap().unwrap()).unwrap(), Some(user("anna")));
    let (then, now): (TypedSnapshot<_, _>, _) =
        (users.at(&before).unwrap(), users.at(&db.snapshot()).unwrap());
    users.remove(7).unwrap();
    assert_eq!(then.clone().get(7).unwrap(), None);
    assert_eq!(now.get(7).unwrap(), Some(user("anna")));
    assert_eq!(list(now.iter()), [(7, user("anna"))]);

    let (_other_dir, other) = store();
    let error = users.at(&other.snapshot()).unwrap_err();
    assert!(matches!(error.engine(), Some(sievedb::Error::ForeignKeyspace { .. })));
}

#[test]
fn ranges_and_prefixes_agree_with_a_map() {
    type Visit = (String, i16, u32);
    let (_dir, db) = store();
    let visits = TypedKeyspace::<Visit, u8>::open(&db, "visits", Schema::new("visit", 1)).unwrap();
    let mut model = BTreeMap::new();
    for (number, name) in ["", "a", "a\0", "a\0b", "ab", "b"].into_iter().enumerate() {
        for day in [-300, -1, 0, 1, 300] {
            let key = (name.to_owned(), day, u32::try_from(number).unwrap());
            visits.insert(&key, u8::try_from(number).unwrap()).unwrap();
            model.insert(key, u8::try_from(number).unwrap());
        }
    }
    let of = |keep: &dyn Fn(&Visit) -> bool| -> Vec<_> {
        model.clone().into_iter().filter(|(key, _)| keep(key)).collect()
    };
    assert_eq!(list(visits.iter()), of(&|_| true));
    assert_eq!(list(visits.prefix(("a",))), of(&|key| key.0 == "a"));
    assert_eq!(list(visits.prefix(("a\0", -1))), of(&|key| key.0 == "a\0" && key.1 == -1));
    assert_eq!(
        list(visits.range(("a", 0, 0)..("b", 0, 0))),
        of(&|key| ("a".to_owned(), 0, 0) <= *key && *key < ("b".to_owned(), 0, 0))
    );
    assert_eq!(
        list(visits.prefix_range(("a", -1)..=("a", 1))),
        of(&|key| key.0 == "a" && (-1..=1).contains(&key.1))
    );
    let after = (Bound::Excluded(("a",)), Bound::Unbounded);
    assert_eq!(list(visits.prefix_range(after)), of(&|key| *key.0 > *"a"));
    assert_eq!(list(visits.range(("b", 0, 0)..("a", 0, 0))), []);
    let mut backwards: Vec<_> = visits.prefix(("a",)).rev().collect::<Result<_>>().unwrap();
    backwards.reverse();
    assert_eq!(backwards, list(visits.prefix(("a",))));

    let mut range = visits.iter();
    range.seek(("ab", 0, 0));
    assert_eq!(range.next().unwrap().unwrap().0, ("ab".to_owned(), 0, 4));
    range.seek_back(("ab", 300, 9));
    assert_eq!(range.next_back().unwrap().unwrap().0, ("ab".to_owned(), 300, 4));
    assert!(!range.is_empty().unwrap());
    assert!(visits.prefix(("c",)).is_empty().unwrap());
}

#[test]
fn raw_values_are_stored_unchanged() {
    let (_dir, db) = store();
    let schema = Schema::new("bytes", 1);
    let raw = TypedKeyspace::<String, Bytes, Raw>::open(&db, "raw", schema).unwrap();
    raw.insert("a", Bytes::from_static(b"1")).unwrap();
    assert_eq!(raw.untyped().get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(raw.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(raw.prefix("a").keys().count(), 1);
}

#[test]
fn value_without_encoding_is_refused() {
    /// Fails to serialize.
    #[derive(Debug, Deserialize)]
    struct Refused;

    impl Serialize for Refused {
        fn serialize<S: serde::Serializer>(&self, _: S) -> std::result::Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("never"))
        }
    }

    let (_dir, db) = store();
    let schema = Schema::new("refused", 1);
    let refused = TypedKeyspace::<u8, Refused>::open(&db, "refused", schema).unwrap();
    let mut batch = db.batch();
    let error = refused.insert_in(&mut batch, 1, Refused).unwrap_err();
    assert!(matches!(error, Error::Encode { .. }) && batch.is_empty(), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}
