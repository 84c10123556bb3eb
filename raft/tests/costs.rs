//! Costs of an entry: switches of threads and tasks.

mod support;

use std::{
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use openraft::{
    CommittedLeaderId, Entry, EntryPayload, LogId,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _},
};
use sievedb_doubles::MemoryFs;
use sievedb_raft::{LogStore, StateMachine};
use sievedb_tests::settings::{STORE_DIR, small_options};

use support::{Map, Request, Types};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Node {
    log: LogStore<Types>,
    state_machine: StateMachine<Types, Map>,
}

fn open(disk: &Arc<MemoryFs>) -> Result<Node> {
    let store = small_options(disk.clone()).worker_threads(1);
    let db = store.clone().open(STORE_DIR)?;
    let map = Map(db.keyspace("map")?);
    let options = sievedb_raft::Options::new(store);
    let (log, state_machine) = options.open(&db, Path::new("data/snapshots"), map)?;
    Ok(Node { log, state_machine })
}

fn log_id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 0), index)
}

fn put(index: u64) -> Entry<Types> {
    let request = Request::Put { key: "a".to_owned(), value: index.to_string() };
    Entry { log_id: log_id(index), payload: EntryPayload::Normal(request) }
}

/// Returns the result of `call` if it needs no notification by another thread or task.
fn at_once<T>(call: impl Future<Output = T>) -> Result<T> {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Ok(result),
        Poll::Pending => Err("the call waits for another thread or task".into()),
    }
}

/// openraft 0.9 waits for each call, so another thread would only delay the next one.
#[tokio::test]
async fn entries_and_committed_ids_need_no_other_thread() -> Result<()> {
    let mut node = open(&Arc::new(MemoryFs::new()))?;
    at_once(node.log.blocking_append([put(0)]))??;
    at_once(node.log.save_committed(Some(log_id(0))))??;
    at_once(node.state_machine.apply([put(0)]))??;
    Ok(())
}

/// Among them are those that send the entries to other nodes.
#[tokio::test]
async fn other_tasks_run_between_appends() -> Result<()> {
    let mut node = open(&Arc::new(MemoryFs::new()))?;
    let has_run = Arc::new(AtomicBool::new(false));
    let other = tokio::spawn({
        let has_run = Arc::clone(&has_run);
        async move { has_run.store(true, Relaxed) }
    });
    let mut appends = 0;
    while !has_run.load(Relaxed) {
        if appends == 8 {
            return Err("no other task has run between 8 appends".into());
        }
        node.log.blocking_append([put(appends)]).await?;
        appends += 1;
    }
    Ok(other.await?)
}
