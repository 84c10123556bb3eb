//! Fedimint's backend tests, and tests of behavior that those do not cover.

use std::sync::Arc;

use fedimint_core::db::{
    self, Database, IDatabaseTransactionOps as _, IDatabaseTransactionOpsCore as _,
    IRawDatabase as _, IRawDatabaseTransaction as _,
};
use futures::StreamExt as _;
use sievedb::{Options, fs::RealFs};
use sievedb_doubles::{Call, Fault, FaultFs, Times};
use sievedb_fedimint::SieveDatabase;
use tempfile::TempDir;

fn open() -> (TempDir, SieveDatabase) {
    let dir = tempfile::tempdir().expect("a directory");
    let database = SieveDatabase::open(dir.path().join("store")).expect("a new store");
    (dir, database)
}

/// Runs Fedimint's tests, each on a new database.
///
/// Its `verify_string_prefix` is left out, as Fedimint does: it writes two keys and expects four.
macro_rules! fedimint {
    ($($test:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let (_dir, database) = open();
                db::$test(Database::new(database, Default::default())).await;
            }
        )*
    };
}

fedimint! {
    verify_insert_elements
    verify_remove_nonexisting
    verify_remove_existing
    verify_read_own_writes
    verify_prevent_dirty_reads
    verify_find_by_range
    verify_find_by_prefix
    verify_commit
    verify_rollback_to_savepoint
    verify_prevent_nonrepeatable_reads
    verify_snapshot_isolation
    verify_phantom_entry
    verify_remove_by_prefix
    verify_module_prefix
    expect_write_conflict
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_module_db() {
    let (_dir, database) = open();
    let (_other_dir, other) = open();
    let module = Database::new(other, Default::default()).with_prefix_module_id(1).0;
    db::verify_module_db(Database::new(database, Default::default()), module).await;
}

#[tokio::test]
async fn the_second_of_two_writers_fails_and_changes_nothing() -> anyhow::Result<()> {
    let (_dir, database) = open();
    let mut first = database.begin_transaction().await;
    let mut second = database.begin_transaction().await;
    first.raw_insert_bytes(b"a", b"1").await?;
    second.raw_insert_bytes(b"a", b"2").await?;
    second.raw_insert_bytes(b"b", b"2").await?;
    first.commit_tx().await?;
    assert!(second.commit_tx().await.is_err());
    let mut third = database.begin_transaction().await;
    assert_eq!(third.raw_get_bytes(b"a").await?.as_deref(), Some(&b"1"[..]));
    assert_eq!(third.raw_get_bytes(b"b").await?, None);
    Ok(())
}

#[tokio::test]
async fn prefixes_end_at_the_last_byte() -> anyhow::Result<()> {
    let (_dir, database) = open();
    let mut transaction = database.begin_transaction().await;
    for key in [&b"\xfe"[..], b"\xff", b"\xff\xff", b"\xff\xff\x00"] {
        transaction.raw_insert_bytes(key, b"v").await?;
    }
    for (prefix, count) in [(&b""[..], 4), (b"\xff", 3), (b"\xff\xff", 2)] {
        let ascending: Vec<_> = transaction.raw_find_by_prefix(prefix).await?.collect().await;
        let mut descending: Vec<_> =
            transaction.raw_find_by_prefix_sorted_descending(prefix).await?.collect().await;
        assert_eq!(ascending.len(), count);
        descending.reverse();
        assert_eq!(ascending, descending);
    }
    transaction.raw_remove_by_prefix(b"\xff\xff").await?;
    assert_eq!(transaction.raw_find_by_prefix(b"").await?.count().await, 2);
    Ok(())
}

#[tokio::test]
async fn a_savepoint_replaces_the_one_before() -> anyhow::Result<()> {
    let (_dir, database) = open();
    let mut transaction = database.begin_transaction().await;
    assert!(transaction.rollback_tx_to_savepoint().await.is_err());
    for key in [b"a", b"b", b"c"] {
        transaction.set_tx_savepoint().await?;
        transaction.raw_insert_bytes(key, b"v").await?;
    }
    for _ in 0..2 {
        transaction.rollback_tx_to_savepoint().await?;
        assert_eq!(transaction.raw_find_by_prefix(b"").await?.count().await, 2);
    }
    Ok(())
}

#[tokio::test]
async fn commits_survive_a_reopen_and_are_in_checkpoints() -> anyhow::Result<()> {
    let (dir, database) = open();
    let mut transaction = database.begin_transaction().await;
    transaction.raw_insert_bytes(b"a", b"1").await?;
    transaction.commit_tx().await?;
    let mut dropped = database.begin_transaction().await;
    dropped.raw_insert_bytes(b"b", b"1").await?;
    drop(dropped);
    database.checkpoint(&dir.path().join("backup"))?;
    drop(database);
    for name in ["store", "backup"] {
        let database = SieveDatabase::open(dir.path().join(name))?;
        let mut transaction = database.begin_transaction().await;
        assert_eq!(transaction.raw_get_bytes(b"a").await?.as_deref(), Some(&b"1"[..]));
        assert_eq!(transaction.raw_get_bytes(b"b").await?, None);
    }
    Ok(())
}

/// Fedimint runs the closure of a transaction again after each error of its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_fails_on_a_full_disk_is_not_visible() -> anyhow::Result<()> {
    const ENOSPC: i32 = 28;
    let dir = tempfile::tempdir()?;
    let fs = Arc::new(FaultFs::new(Arc::new(RealFs)));
    let database =
        SieveDatabase::new(Options::new().fs(fs.clone()).open(dir.path().join("store"))?);
    let mut transaction = database.begin_transaction().await;
    transaction.raw_insert_bytes(b"a", b"1").await?;
    fs.inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(".log"));
    assert!(transaction.commit_tx().await.is_err());
    fs.heal();
    let mut again = database.begin_transaction().await;
    assert_eq!(again.raw_get_bytes(b"a").await?, None);
    again.raw_insert_bytes(b"a", b"2").await?;
    again.commit_tx().await
}

#[tokio::test]
async fn a_transaction_may_write_20_mib() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let options = Options::new().memory_budget(256 << 20);
    let database = SieveDatabase::new(options.open(dir.path().join("store"))?);
    let mut transaction = database.begin_transaction().await;
    for key in 0..20 {
        transaction.raw_insert_bytes(&[key], &vec![0; 1 << 20]).await?;
    }
    transaction.commit_tx().await
}
