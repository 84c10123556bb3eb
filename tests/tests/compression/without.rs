//! A build without the feature `zstd`.

use sievedb::{Compression, Error, KeyspaceOptions, OlderValues};

use super::{block_of, forge, options, tables};

/// Kind of the footer entry of the properties.
const PROPERTIES: u8 = 2;

/// Tag of the property `compression`, its length, and LZ4.
const BY_LZ4: [u8; 3] = [18 * 2, 1, 1];

#[test]
fn options_without_their_feature_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let keyspaces = [
        ("compression", KeyspaceOptions::new().compression(Compression::ZSTD)),
        (
            "bottommost_compression",
            KeyspaceOptions::new().bottommost_compression(Compression::ZSTD),
        ),
    ];
    for (want, keyspace) in keyspaces {
        let error = options(keyspace).open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { name, .. } if name == want), "{error:?}");
        assert!(error.to_string().contains("feature `zstd`"), "{error}");
    }
    options(KeyspaceOptions::new()).open(dir.path()).unwrap();
}

/// The properties of the table claim zstd blocks.
#[test]
fn zstd_table_without_the_feature_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let db = options(KeyspaceOptions::new()).open(dir.path()).unwrap();
    db.insert("key", "value").unwrap();
    db.compact().unwrap();
    db.insert("later", "in the log").unwrap();
    drop(db);
    let all = tables(dir.path());
    let [table] = &all[..] else { panic!("{all:?}") };
    let properties = block_of(table, PROPERTIES).unwrap();
    forge(table, &properties, |bytes| {
        let found: Vec<_> =
            (0..bytes.len() - 3).filter(|&at| bytes[at..].starts_with(&BY_LZ4)).collect();
        let [at] = found[..] else { panic!("the field is not found: {found:?}") };
        bytes[at + 2] = 2;
    });
    let error = options(KeyspaceOptions::new()).open(dir.path()).unwrap_err();
    let Error::NeedsFeature { path, keyspace, feature } = &error else { panic!("{error:?}") };
    assert_eq!((path, keyspace.as_deref(), *feature), (table, Some("default"), "zstd"));
    assert!(error.to_string().contains("feature zstd"), "{error}");
    // Failed opens do not flush the log into another table each.
    assert_eq!(tables(dir.path()), all);

    let report = options(KeyspaceOptions::new()).verify(dir.path(), |_| ()).unwrap();
    assert!(report.to_string().contains("feature zstd"), "{report}");
    // The table is not lost: a build with the feature can read it.
    let new = tempfile::tempdir().unwrap();
    let repaired =
        options(KeyspaceOptions::new()).repair(dir.path(), new.path(), OlderValues::Keep);
    let Err(Error::NeedsFeature { path, .. }) = &repaired else { panic!("{repaired:?}") };
    assert_eq!(path, table);
    // `describe` works without the feature.
    let text = sievedb::describe(table).unwrap().to_string();
    assert!(text.contains("compression"), "{text}");
}
