//! Failures below the snapshots of a node.

mod support;

use std::{path::Path, sync::Arc};

use openraft::{
    CommittedLeaderId, Entry, EntryPayload, LogId, RaftSnapshotBuilder as _,
    storage::RaftStateMachine as _,
};
use sievedb::Db;
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_raft::{LogStore, StateMachine};
use sievedb_tests::settings::{STORE_DIR, small_options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use support::{Map, Request, Types};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Opened = (Db, LogStore<Types>, StateMachine<Types, Map>);

/// Error of the operating system: the process has too many open files.
const EMFILE: i32 = 24;

/// Error of the operating system: the disk is full.
const ENOSPC: i32 = 28;

/// Opens a node with one entry in its state machine.
async fn open(fs: &Arc<FaultFs>) -> Result<Opened> {
    let store = small_options(fs.clone());
    let db = store.clone().open(STORE_DIR)?;
    let map = Map(db.keyspace("map")?);
    let options = sievedb_raft::Options::new(store);
    let (log, mut state_machine) = options.open(&db, Path::new("data/snapshots"), map)?;
    if state_machine.applied_state().await?.0.is_none() {
        let request = Request::Put { key: "a".to_owned(), value: "1".to_owned() };
        let log_id = LogId::new(CommittedLeaderId::new(1, 0), 0);
        let payload = EntryPayload::Normal(request);
        state_machine.apply([Entry { log_id, payload }]).await?;
    }
    Ok((db, log, state_machine))
}

fn faulty_disk() -> Arc<FaultFs> {
    Arc::new(FaultFs::new(Arc::new(MemoryFs::new())))
}

#[tokio::test]
async fn an_open_that_fails_once_keeps_the_snapshot() -> Result<()> {
    let fs = faulty_disk();
    let mut node = open(&fs).await?;
    let built = node.2.get_snapshot_builder().await.build_snapshot().await?;
    let slot = (0..3).find(|slot| fs_lists(&fs, *slot)).ok_or("no slot with files")?;
    let meta = built.meta;
    drop((node, built.snapshot));
    let current = format!("data/snapshots/{slot}/CURRENT");
    fs.inject(Fault::new(EMFILE, Times::Once).calls(&[Call::Open]).suffix(&current[..]));
    let refused = open(&fs).await.err().ok_or("opened without the snapshot")?;
    assert_eq!(fs.failures(), 1, "{refused}");
    let mut node = open(&fs).await?;
    let current = node.2.get_current_snapshot().await?.ok_or("the snapshot is forgotten")?;
    assert_eq!(current.meta, meta);
    Ok(())
}

#[tokio::test]
async fn a_node_without_a_snapshot_opens_on_a_full_disk() -> Result<()> {
    let fs = faulty_disk();
    drop(open(&fs).await?);
    let full = Fault::new(ENOSPC, Times::ForGood).calls(&Call::GROWING);
    fs.inject(full.suffix("snapshots/0/CURRENT"));
    let mut node = open(&fs).await?;
    assert_eq!(fs.failures(), 1);
    assert!((0..3).all(|slot| !fs_lists(&fs, slot)));
    assert!(node.2.applied_state().await?.0.is_some());
    Ok(())
}

fn fs_lists(fs: &FaultFs, slot: u8) -> bool {
    use sievedb::fs::Fs as _;
    fs.list(Path::new(&format!("data/snapshots/{slot}"))).is_ok_and(|files| !files.is_empty())
}

#[tokio::test]
async fn a_panic_of_an_installation_is_an_error() -> Result<()> {
    let mut from = open(&faulty_disk()).await?.2;
    let mut sent = from.get_snapshot_builder().await.build_snapshot().await?;
    let mut bytes = Vec::new();
    sent.snapshot.read_to_end(&mut bytes).await?;
    let fs = faulty_disk();
    let mut to = open(&fs).await?.2;
    let mut received = to.begin_receiving_snapshot().await?;
    received.write_all(&bytes).await?;
    fs.inject(Fault::panic(Times::Once).calls(&[Call::Create]).suffix("CURRENT"));
    let error = to.install_snapshot(&sent.meta, received).await.err().ok_or("installed")?;
    assert!(error.to_string().contains("panicked"), "{error}");
    Ok(())
}
