//! A node with its log and state machine, and snapshots between two nodes.

use std::path::Path;

use openraft::{
    CommittedLeaderId, Entry, EntryPayload, LogId, RaftSnapshotBuilder as _,
    storage::RaftStateMachine as _,
};
use sievedb::Db;
use sievedb_raft::{LogStore, StateMachine};
use sievedb_tests::rng::Rng;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use crate::support::{Map, Request, Types};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

pub(crate) struct Node {
    pub(crate) db: Db,
    pub(crate) log: LogStore<Types>,
    pub(crate) state_machine: StateMachine<Types, Map>,
}

impl Node {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let db = Db::open(dir.join("store"))?;
        let map = Map(db.keyspace("map")?);
        let (log, state_machine) = sievedb_raft::open(&db, dir.join("snapshots"), map)?;
        Ok(Self { db, log, state_machine })
    }

    pub(crate) fn get(&self, key: &str) -> Result<Option<String>> {
        let value = self.db.keyspace("map")?.get(key)?;
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }
}

pub(crate) fn log_id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 0), index)
}

pub(crate) fn put(index: u64, key: &str, value: &str) -> Entry<Types> {
    let request = Request::Put { key: key.to_owned(), value: value.to_owned() };
    Entry { log_id: log_id(index), payload: EntryPayload::Normal(request) }
}

/// Returns the number of slots in the directory `snapshots` that have files.
pub(crate) fn slots_in_use(snapshots: &Path) -> Result<usize> {
    let mut count = 0;
    for slot in std::fs::read_dir(snapshots)? {
        let slot = slot?.path();
        count += usize::from(slot.is_dir() && std::fs::read_dir(slot)?.next().is_some());
    }
    Ok(count)
}

pub(crate) type Received =
    (openraft::SnapshotMeta<u64, openraft::BasicNode>, Box<sievedb_raft::SnapshotStream>);

/// Sends the current snapshot of `from` to `to` in pieces of `bytes`, and returns its metadata.
pub(crate) async fn send(from: &mut Node, to: &mut Node, bytes: usize) -> Result<Received> {
    send_changed(from, to, bytes, |_| ()).await
}

/// As [`send`], after `change` has changed the bytes. The first piece is sent twice.
pub(crate) async fn send_changed(
    from: &mut Node,
    to: &mut Node,
    bytes: usize,
    change: impl FnOnce(&mut Vec<u8>),
) -> Result<Received> {
    let mut sent = from.state_machine.get_current_snapshot().await?.ok_or("no snapshot")?;
    let mut received = to.state_machine.begin_receiving_snapshot().await?;
    let mut content = Vec::new();
    sent.snapshot.read_to_end(&mut content).await?;
    assert_eq!(sent.snapshot.seek(std::io::SeekFrom::End(0)).await?, content.len() as u64);
    change(&mut content);
    for (number, piece) in content.chunks(bytes).enumerate() {
        for _ in 0..if number == 0 { 2 } else { 1 } {
            received.seek(std::io::SeekFrom::Start((number * bytes) as u64)).await?;
            received.write_all(piece).await?;
        }
    }
    Ok((sent.meta, received))
}

pub(crate) async fn full_node(dir: &Path) -> Result<Node> {
    let mut node = Node::open(dir)?;
    // Values that LZ4 cannot shorten: zeros, which nothing reads, fill the rest of a log's file.
    let mut random = Rng::new(1);
    let mut entry = |index| {
        let value: String = (0..12).map(|_| format!("{:08x}", random.number() as u32)).collect();
        put(index, &format!("key {index}"), &value)
    };
    let entries: Vec<_> = (0..2000).map(&mut entry).collect();
    node.state_machine.apply(entries).await?;
    node.db.flush()?;
    node.state_machine.apply([put(2000, "last", "1")]).await?;
    let snapshot = node.state_machine.get_snapshot_builder().await.build_snapshot().await?;
    assert_eq!(snapshot.meta.last_log_id, Some(log_id(2000)));
    Ok(node)
}
