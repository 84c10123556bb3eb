//! Entries that are large for the memory of the store, in the log and in the state machine.

mod support;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use openraft::{
    CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader as _, RaftSnapshotBuilder as _,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _},
};
use sievedb::Db;
use sievedb_raft::{LogStore, StateMachine};
use sievedb_tests::{hook_fs::HookFs, settings::STORE_DIR};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use support::{Map, Request, Types};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const MIB: u64 = 1 << 20;

struct Node {
    db: Db,
    log: LogStore<Types>,
    state_machine: StateMachine<Types, Map>,
}

impl Node {
    fn open(dir: &Path, budget_bytes: u64) -> Result<Self> {
        Self::open_with(dir, sievedb::Options::new().memory_budget(budget_bytes))
    }

    fn open_with(dir: &Path, store: sievedb::Options) -> Result<Self> {
        let db = store.clone().open(dir.join("store"))?;
        let map = Map(db.keyspace("map")?);
        let options = sievedb_raft::Options::new(store);
        let (log, state_machine) = options.open(&db, dir.join("snapshots"), map)?;
        Ok(Self { db, log, state_machine })
    }

    async fn applied(&mut self) -> Result<Option<u64>> {
        Ok(self.state_machine.applied_state().await?.0.map(|log_id| log_id.index))
    }
}

fn log_id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 0), index)
}

/// Returns entries that store values of `value_bytes` bytes.
fn puts(count: u64, value_bytes: u64) -> Vec<Entry<Types>> {
    let put = |index: u64| {
        let value = "v".repeat(value_bytes as usize);
        let request = Request::Put { key: format!("key {index}"), value };
        Entry { log_id: log_id(index), payload: EntryPayload::Normal(request) }
    };
    (0..count).map(put).collect()
}

#[tokio::test]
async fn a_small_store_applies_many_large_entries_at_once() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = Node::open(dir.path(), 64 * MIB)?;
    let responses = node.state_machine.apply(puts(8, MIB)).await?;
    assert_eq!(responses.len(), 8);
    assert_eq!(node.applied().await?, Some(7));
    assert_eq!(node.db.keyspace("map")?.len()?, 8);
    Ok(())
}

#[tokio::test]
async fn a_large_entry_is_appended_and_applied_again_after_a_reopen() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = Node::open(dir.path(), 256 * MIB)?;
    node.log.blocking_append(puts(1, 20 * MIB)).await?;
    node.log.save_committed(Some(log_id(0))).await?;
    drop(node);
    let mut node = Node::open(dir.path(), 256 * MIB)?;
    let entries = node.log.try_get_log_entries(..).await?;
    node.state_machine.apply(entries).await?;
    assert_eq!(node.applied().await?, Some(0));
    assert_eq!(node.db.keyspace("map")?.len()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_small_store_appends_many_large_entries_at_once() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = Node::open(dir.path(), 8 * MIB)?;
    node.log.blocking_append(puts(8, MIB / 2)).await?;
    drop(node);
    let mut node = Node::open(dir.path(), 8 * MIB)?;
    let entries = node.log.try_get_log_entries(..).await?;
    let indexes: Vec<_> = entries.iter().map(|entry| entry.log_id.index).collect();
    assert_eq!(indexes, (0..8).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn a_small_store_installs_a_snapshot_of_large_entries() -> Result<()> {
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut from = Node::open(first.path(), 8 * MIB)?;
    from.state_machine.apply(puts(6, MIB * 7 / 8)).await?;
    let mut built = from.state_machine.get_snapshot_builder().await.build_snapshot().await?;
    let mut bytes = Vec::new();
    built.snapshot.read_to_end(&mut bytes).await?;
    let mut to = Node::open(second.path(), 8 * MIB)?;
    let mut received = to.state_machine.begin_receiving_snapshot().await?;
    received.write_all(&bytes).await?;
    to.state_machine.install_snapshot(&built.meta, received).await?;
    assert_eq!(to.db.keyspace("map")?.len()?, 6);
    Ok(())
}

#[test]
fn an_append_that_waits_for_a_flush_does_not_block_its_thread() {
    let is_held = Arc::new(AtomicBool::new(false));
    let held = is_held.clone();
    let fs = HookFs::new(move |path: &Path| {
        while path.extension().is_some_and(|it| it == "sst") && held.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let store = sievedb::Options::new().fs(Arc::new(fs)).memory_budget(8 * MIB).worker_threads(2);
    let mut node = Node::open_with(Path::new(STORE_DIR), store).expect("a new store");
    is_held.store(true, Ordering::SeqCst);
    let (sender, receiver) = mpsc::channel();
    let release = is_held.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let append = node.log.blocking_append(puts(2, MIB * 6 / 5));
            let other = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                release.store(false, Ordering::SeqCst);
            };
            let (appended, ()) = tokio::join!(append, other);
            appended.expect("there is room after the flush");
        });
        sender.send(()).expect("the test waits");
    });
    let ended = receiver.recv_timeout(Duration::from_secs(120));
    is_held.store(false, Ordering::SeqCst);
    ended.expect("the other task runs while the append waits");
}
