//! Memory of entries that are read and applied with openraft 0.10.

#[path = "support/next.rs"]
mod support;

use std::path::Path;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use openraft_0_10::{
    EntryPayload, RaftLogReader as _, RaftTypeConfig,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _},
    type_config::alias::{CommittedLeaderIdOf, LogIdOf},
    vote::RaftLeaderId as _,
};
use sievedb::Db;
use sievedb_raft::{LogStore, Options, StateMachine};

use support::{Map, Request, Types};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Entry = <Types as RaftTypeConfig>::Entry;
type Opened = (Db, LogStore<Types>, StateMachine<Types, Map>);

/// Entries of 1 MiB each.
const ENTRIES: u64 = 16;

fn open(dir: &Path) -> Result<Opened> {
    let db = Db::open(dir.join("store"))?;
    let map = Map(db.keyspace("map")?);
    let (log, state_machine) = Options::default().open_0_10(&db, dir.join("snapshots"), map)?;
    Ok((db, log, state_machine))
}

fn log_id(index: u64) -> LogIdOf<Types> {
    LogIdOf::<Types>::new(CommittedLeaderIdOf::<Types>::new(1, 0), index)
}

fn put(index: u64) -> Entry {
    let request = Request::Put { key: format!("key {index}"), value: "v".repeat(1 << 20) };
    Entry { log_id: log_id(index), payload: EntryPayload::Normal(request) }
}

#[tokio::test]
async fn a_stream_of_entries_reads_them_by_pieces() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (_db, mut log, _state_machine) = open(dir.path())?;
    log.blocking_append((0..ENTRIES).map(put)).await?;
    for (range, want) in [(3..7, 3..7), (0..ENTRIES + 9, 0..ENTRIES), (5..5, 5..5)] {
        let found: Vec<_> = log.entries_stream(range).await.try_collect().await?;
        assert!(found.iter().map(|entry| entry.log_id.index).eq(want.clone()), "{want:?}");
    }
    let mut other = log.clone();
    let mut entries = std::pin::pin!(other.entries_stream(..).await);
    assert!(entries.next().await.is_some());
    log.truncate_after(Some(log_id(ENTRIES / 2))).await?;
    // The rest of one piece.
    assert!(entries.count().await as u64 <= ENTRIES / 2);
    Ok(())
}

#[tokio::test]
async fn large_entries_are_applied_by_several_commits() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (db, _log, mut state_machine) = open(dir.path())?;
    let map = db.keyspace("map")?;
    let entries = (0..ENTRIES).map(|index| {
        let applied = map.len().expect("an open store");
        assert!(index - applied <= 5, "{applied} of {index} entries are committed");
        Ok((put(index), None))
    });
    state_machine.apply(stream::iter(entries)).await?;
    assert_eq!(map.len()?, ENTRIES);
    Ok(())
}
