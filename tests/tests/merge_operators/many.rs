//! Operands that compactions must fold, however many there are.

use std::sync::Arc;

use sievedb::MergeOperator;
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace};

use super::{JoinByKey, append, options};

/// All operands are in one table, above the table of their value.
#[test]
fn compact_folds_all_operands_of_a_key() {
    for (operator, separator) in
        [(Arc::new(JoinByKey) as Arc<dyn MergeOperator>, "-"), (append(), ",")]
    {
        for count in [1024, 3000] {
            let large = small_keyspace().memtable_bytes(16 << 20).merge_operator(operator.clone());
            // So that the log causes no flush.
            let options = options(&Arc::new(MemoryFs::new()), operator.clone()).keyspace(large);
            let options = options.log_segment_bytes(1 << 20).log_bytes_max(8 << 20);
            let db = options.open(STORE_DIR).unwrap();
            db.insert("-", "base").unwrap();
            db.compact().unwrap();
            let mut want = vec!["base".to_owned()];
            for number in 0..count {
                db.merge("-", number.to_string()).unwrap();
                want.push(number.to_string());
            }
            db.compact().unwrap();
            assert_eq!(db.stats().keyspaces[0].merge_operands, 0, "of {count}");
            assert_eq!(db.get("-").unwrap(), Some(want.join(separator).into()));
        }
    }
}

#[test]
fn compact_folds_what_a_closed_snapshot_needed() {
    let db = options(&Arc::new(MemoryFs::new()), append()).open(STORE_DIR).unwrap();
    db.insert("key", "1").unwrap();
    let snapshot = db.snapshot();
    db.merge("key", "2").unwrap();
    db.compact().unwrap();
    assert_eq!(snapshot.get("key").unwrap(), Some("1".into()));
    assert_eq!(db.stats().keyspaces[0].merge_operands, 1);
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(db.stats().keyspaces[0].merge_operands, 0);
    assert_eq!(db.get("key").unwrap(), Some("1,2".into()));
}
