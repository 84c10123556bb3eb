//! Migrations of values with merge operands.

use std::{path::Path, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};
use sievedb_typed::{
    Error, MergeValues, Schema, TypedKeyspace,
    sievedb::{self, Db, KeyspaceOptions, Options},
};

/// The values of version 1 and 2.
type Old = String;
type New = (String, u64);

/// Keeps the newest operand.
fn last<V: Serialize + DeserializeOwned>() -> Arc<MergeValues<V>> {
    Arc::new(MergeValues::new("last", |_, operand| operand))
}

fn open_store<V: Serialize + DeserializeOwned + 'static>(path: &Path) -> Db {
    Options::new().merge_operator(last::<V>()).open(path).unwrap()
}

fn schema() -> Schema {
    Schema::new("text", 2).migrate(1, |text: Old| (text, 7_u64))
}

#[test]
fn operands_of_the_old_type_fail_before_a_value_is_migrated() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_store::<Old>(dir.path());
    let options = KeyspaceOptions::new().merge_operator(last::<Old>());
    let schema_1 = || Schema::new("text", 1);
    let texts = TypedKeyspace::<u32, Old>::open_with(&db, "texts", &options, schema_1()).unwrap();
    // More than a batch, then a value with an operand.
    let long = "x".repeat(100_000);
    for id in 0..5 {
        texts.insert(id, &long).unwrap();
    }
    texts.insert(9, "a".to_owned()).unwrap();
    texts.merge(9, "b".to_owned()).unwrap();
    drop(texts);
    db.close().unwrap();

    let db = open_store::<New>(dir.path());
    let error = TypedKeyspace::<u32, New>::open(&db, "texts", schema()).unwrap_err();
    assert!(matches!(error, Error::Engine(sievedb::Error::MergeFailed { .. })), "{error}");
    db.close().unwrap();
    // The release before still opens the keyspace.
    let db = open_store::<Old>(dir.path());
    let texts = TypedKeyspace::<u32, Old>::open(&db, "texts", schema_1()).unwrap();
    assert_eq!(texts.get(9).unwrap().as_deref(), Some("b"));
    drop(texts);
    // The operator of the old type folds the operands.
    TypedKeyspace::<u32, New>::open(&db, "texts", schema()).unwrap();
    db.close().unwrap();
    let db = open_store::<New>(dir.path());
    let texts = TypedKeyspace::<u32, New>::open(&db, "texts", schema()).unwrap();
    assert_eq!(
        texts.iter().filter(|entry| entry.as_ref().unwrap().1 == (long.clone(), 7)).count(),
        5
    );
    assert_eq!(texts.get(9).unwrap(), Some(("b".to_owned(), 7)));
    texts.merge(9, ("c".to_owned(), 8)).unwrap();
    assert_eq!(texts.get(9).unwrap(), Some(("c".to_owned(), 8)));
}
