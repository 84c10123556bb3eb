//! Compares directories that RocksDB wrote with the entries of RocksDB's iterator.

use std::{fs, sync::Arc};

use sievedb_migrate::{Error, MergeOperator, Options, RocksDb};

use crate::{FIXTURES, copy, dump, fixture};

#[test]
fn entries_are_those_of_rocksdb() {
    for name in FIXTURES {
        let path = fixture(name);
        let want = fs::read_to_string(path.join("EXPECTED")).unwrap();
        let found = dump(&path, &Options::new());
        assert_eq!(found.unwrap(), want, "{name}");
        assert!(want.lines().count() > 15, "{name} has too few entries to test anything");
    }
}

#[test]
fn an_operator_of_the_caller_replaces_that_of_the_options() {
    #[derive(Debug)]
    struct Count;

    impl MergeOperator for Count {
        fn merge(&self, _: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
            Some(format!("{}+{}", usize::from(value.is_some()), operands.len()).into_bytes())
        }
    }

    let options = Options::new().merge_operator("default", Arc::new(Count));
    let db = options.open(fixture("merges")).unwrap();
    let values: Vec<_> = db.entries("default").unwrap().map(|entry| entry.unwrap().1).collect();
    let counts = values.iter().filter(|value| value.len() == 3 && value[1] == b'+').count();
    assert!(counts > 3, "{counts} of {}", values.len());
}

#[test]
fn logs_in_a_directory_of_their_own() {
    let (copy, logs) = (copy("transactions"), tempfile::tempdir().unwrap());
    let want = fs::read_to_string(copy.path().join("EXPECTED")).unwrap();
    for entry in fs::read_dir(copy.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::rename(&path, logs.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let options = Options::new().wal_dir(logs.path());
    assert_eq!(dump(copy.path(), &options).unwrap(), want);
    // Neither the caller nor the file OPTIONS names the directory of the logs.
    assert_ne!(dump(copy.path(), &Options::new()).unwrap(), want);
    fs::write(copy.path().join("OPTIONS-000099"), "[DBOptions]\n  wal_dir=/elsewhere\n").unwrap();
    let error = RocksDb::open(copy.path()).unwrap_err();
    assert!(error.to_string().contains("the logs are in /elsewhere"), "{error}");
}

#[test]
fn column_families() {
    let db = RocksDb::open(fixture("families")).unwrap();
    assert_eq!(db.column_families().collect::<Vec<_>>(), ["default", "one", "two"]);
    let dropped = db.entries("gone").unwrap_err();
    assert!(matches!(dropped, Error::NoColumnFamily { name } if name == "gone"));
}
