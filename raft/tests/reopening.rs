//! What a node has after its store was closed and opened again, and snapshots between two nodes.

#![expect(clippy::disallowed_methods, reason = "lists the directory of snapshots")]

#[path = "support/node.rs"]
mod node;
mod support;

use std::sync::Arc;

use openraft::{
    Entry, EntryPayload, RaftLogReader as _, RaftSnapshotBuilder as _, Vote,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _},
};
use sievedb::{Durability, Error as StoreError, MergeError, MergeOperator};
use sievedb_raft::{Error, KEYSPACE, Options};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use node::{Node, Result, full_node, log_id, put, send, send_changed, slots_in_use};
use support::{Map, Request, Response, Types};

#[tokio::test]
async fn log_vote_and_state_remain() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = Node::open(dir.path())?;
    let entries = [put(0, "a", "1"), put(1, "b", "2"), put(2, "a", "3")];
    node.log.save_vote(&Vote::new_committed(1, 0)).await?;
    node.log.blocking_append(entries.clone()).await?;
    node.log.save_committed(Some(log_id(1))).await?;
    let responses = node.state_machine.apply(entries[..2].to_vec()).await?;
    assert_eq!(responses, vec![Response { before: None, stored: true }; 2]);
    node.log.purge(log_id(0)).await?;
    node.log.truncate(log_id(2)).await?;
    drop(node);

    let mut node = Node::open(dir.path())?;
    // Otherwise openraft would make the node the leader again without an election.
    assert_eq!(node.log.read_vote().await?, Some(Vote::new(1, 0)));
    let mut other = node.log.get_log_reader().await;
    node.log.save_vote(&Vote::new_committed(1, 0)).await?;
    assert_eq!(node.log.read_vote().await?, Some(Vote::new_committed(1, 0)));
    assert_eq!(other.read_vote().await?, Some(Vote::new_committed(1, 0)));
    assert_eq!(node.log.read_committed().await?, Some(log_id(1)));
    let state = node.log.get_log_state().await?;
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(log_id(0)), Some(log_id(1))));
    let found = node.log.try_get_log_entries(..).await?;
    assert_eq!(found.iter().map(|entry| entry.log_id).collect::<Vec<_>>(), [log_id(1)]);
    assert_eq!(node.state_machine.applied_state().await?.0, Some(log_id(1)));
    assert_eq!(node.get("a")?.as_deref(), Some("1"));
    Ok(())
}

#[tokio::test]
async fn the_store_of_another_release_series_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let db = Node::open(dir.path())?.db;
    let records = db.keyspace(KEYSPACE)?;
    let series = records.get("line")?.ok_or("no release series")?;
    for other in [Some("\u{3}0.8"), None] {
        match other {
            Some(other) => records.insert("line", other)?,
            None => records.remove("line")?,
        }
        records.insert("vote", "bytes of another series")?;
        let opened = sievedb_raft::open::<Types, _>(
            &db,
            dir.path().join("snapshots"),
            Map(db.keyspace("map")?),
        );
        assert!(matches!(opened, Err(Error::ReleaseSeries(_))), "{other:?}");
    }
    records.remove("vote")?;
    records.insert("line", series)?;
    drop((records, db));
    Node::open(dir.path())?;
    Ok(())
}

#[tokio::test]
async fn a_comparison_sees_the_entries_before_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = Node::open(dir.path())?;
    let set = |index, expected: Option<&str>, value: &str| Entry::<Types> {
        log_id: log_id(index),
        payload: EntryPayload::Normal(Request::CompareAndSet {
            key: "k".to_owned(),
            expected: expected.map(str::to_owned),
            value: value.to_owned(),
        }),
    };
    let entries = [set(0, None, "1"), set(1, None, "2"), set(2, Some("1"), "3")];
    let responses = node.state_machine.apply(entries.to_vec()).await?;
    let before: Vec<_> = responses.iter().map(|one| one.before.as_deref()).collect();
    assert_eq!(before, [None, Some("1"), Some("1")]);
    assert_eq!(node.get("k")?.as_deref(), Some("3"));
    Ok(())
}

#[tokio::test]
async fn a_snapshot_replaces_the_state_of_another_node() -> Result<()> {
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut from = full_node(first.path()).await?;
    let mut to = Node::open(second.path())?;
    to.log.save_vote(&Vote::new(7, 2)).await?;
    to.state_machine.apply([put(0, "other", "1")]).await?;
    let (meta, received) = send(&mut from, &mut to, 1000).await?;
    to.state_machine.install_snapshot(&meta, received).await?;
    for _ in 0..2 {
        assert_eq!(to.get("other")?, None);
        assert_eq!(to.get("last")?.as_deref(), Some("1"));
        assert_eq!(to.db.keyspace("map")?.len()?, 2001);
        assert_eq!(to.state_machine.applied_state().await?.0, Some(log_id(2000)));
        // The vote is this node's own.
        assert_eq!(to.log.read_vote().await?, Some(Vote::new(7, 2)));
        let current = to.state_machine.get_current_snapshot().await?.ok_or("none")?;
        assert_eq!(current.meta, meta);
        drop(current);
        drop(to);
        to = Node::open(second.path())?;
    }
    // The next one replaces it.
    from.state_machine.apply([put(2001, "last", "2")]).await?;
    from.state_machine.get_snapshot_builder().await.build_snapshot().await?;
    let (meta, received) = send(&mut from, &mut to, 1 << 20).await?;
    to.state_machine.install_snapshot(&meta, received).await?;
    assert_eq!(to.get("last")?.as_deref(), Some("2"));
    // The files of the others are removed.
    assert_eq!(slots_in_use(&second.path().join("snapshots"))?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_never_see_half_of_a_snapshot() -> Result<()> {
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut from = full_node(first.path()).await?;
    let mut to = Node::open(second.path())?;
    to.state_machine.apply([put(0, "other", "1")]).await?;
    let (meta, received) = send(&mut from, &mut to, 1 << 20).await?;
    let (reads, map) = (to.state_machine.reads(), to.db.keyspace("map")?);
    let reader = tokio::spawn(async move {
        let mut lengths = vec![];
        while lengths.last() != Some(&2001) {
            let length = reads.read(|| map.len()).await.expect("no installation fails");
            lengths.push(length.expect("the store is open"));
        }
        lengths
    });
    to.state_machine.install_snapshot(&meta, received).await?;
    let lengths = reader.await?;
    assert!(lengths.iter().all(|length| [1, 2001].contains(length)), "{lengths:?}");
    Ok(())
}

#[tokio::test]
async fn an_interrupted_installation_ends_at_the_next_open() -> Result<()> {
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut from = full_node(first.path()).await?;
    let mut to = Node::open(second.path())?;
    let (meta, received) = send(&mut from, &mut to, 1 << 16).await?;
    to.state_machine.install_snapshot(&meta, received).await?;
    // The state in the middle: some keys are copied, the old id counts, the record exists.
    let records = to.db.keyspace(KEYSPACE)?;
    let current = records.get("snapshot")?.ok_or("no snapshot")?;
    let mut batch = to.db.batch();
    batch.insert(&records, "installing", current)?;
    batch.remove(&records, "applied")?;
    batch.remove(&records, "snapshot")?;
    batch.remove_range(to.db.keyspace("map")?, "key 5"..)?;
    batch.commit(Durability::Disk)?;
    drop((records, to));
    let mut to = Node::open(second.path())?;
    assert_eq!(to.db.keyspace("map")?.len()?, 2001);
    assert_eq!(to.state_machine.applied_state().await?.0, Some(log_id(2000)));
    assert!(!to.db.keyspace(KEYSPACE)?.contains_key("installing")?);
    Ok(())
}

#[tokio::test]
async fn a_log_without_entries_that_the_state_machine_needs_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = Node::open(dir.path())?;
    node.log.blocking_append([put(0, "a", "1"), put(1, "b", "2")]).await?;
    node.state_machine.apply([put(0, "a", "1"), put(1, "b", "2")]).await?;
    node.log.purge(log_id(1)).await?;
    node.db.keyspace(KEYSPACE)?.remove("applied")?;
    drop(node);
    let opened = Node::open(dir.path()).err().ok_or("opened")?;
    let error = opened.downcast_ref::<Error>();
    assert!(matches!(error, Some(Error::Incomplete { purged: 1, applied: None })), "{opened}");
    Ok(())
}

#[tokio::test]
async fn a_snapshot_whose_directory_is_another_one_is_forgotten() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = full_node(dir.path()).await?;
    node.log.purge(log_id(2000)).await?;
    drop(node);
    // The next open creates empty slots.
    std::fs::rename(dir.path().join("snapshots"), dir.path().join("kept"))?;
    let mut node = Node::open(dir.path())?;
    assert!(node.state_machine.get_current_snapshot().await?.is_none());
    // openraft builds another one at its start, as entries were purged.
    node.state_machine.get_snapshot_builder().await.build_snapshot().await?;
    drop(node);
    let mut node = Node::open(dir.path())?;
    assert!(node.state_machine.get_current_snapshot().await?.is_some());
    Ok(())
}

/// Returns the id and all bytes of the current snapshot.
async fn content(node: &mut Node) -> Result<(String, Vec<u8>)> {
    let mut current = node.state_machine.get_current_snapshot().await?.ok_or("no snapshot")?;
    let mut content = Vec::new();
    current.snapshot.read_to_end(&mut content).await?;
    Ok((current.meta.snapshot_id, content))
}

#[tokio::test]
async fn a_snapshot_has_the_same_bytes_after_the_log_has_grown() -> Result<()> {
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut node = full_node(first.path()).await?;
    let (id, sent) = content(&mut node).await?;
    // The second round appends to another segment of the log.
    for round in 0..2 {
        let entries = (0..100).map(|number| put(2001 + 100 * round + number, "more", "2"));
        node.log.blocking_append(entries).await?;
        let (same_id, again) = content(&mut node).await?;
        assert!(id == same_id && sent == again, "{id}, round {round}: other bytes");
        drop(node);
        node = Node::open(first.path())?;
        assert!(content(&mut node).await? == (id.clone(), sent.clone()), "reopened: other bytes");
    }
    // A transfer that begins again.
    let mut to = Node::open(second.path())?;
    let mut received = to.state_machine.begin_receiving_snapshot().await?;
    for bytes in [sent, content(&mut node).await?.1] {
        received.seek(std::io::SeekFrom::Start(0)).await?;
        received.write_all(&bytes).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_log_of_a_store_has_one_owner() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = full_node(dir.path()).await?;
    let db = node.db.clone();
    let open = |snapshots: &str| {
        let map = Map(db.keyspace("map").expect("an open store"));
        sievedb_raft::open::<Types, _>(&db, dir.path().join(snapshots), map)
    };
    let is_refused = |snapshots| matches!(open(snapshots), Err(Error::InUse));
    assert!(is_refused("snapshots") && is_refused("other"));
    let (builder, log) = (node.state_machine.get_snapshot_builder().await, node.log.clone());
    let current = node.state_machine.get_current_snapshot().await?;
    drop(node);
    // Each handle may still write the log, or remove files of snapshots.
    assert!(is_refused("snapshots"));
    drop(builder);
    assert!(is_refused("snapshots"));
    drop(current);
    assert!(is_refused("snapshots"));
    drop(log);
    let (_, mut state_machine) = open("snapshots")?;
    assert_eq!(state_machine.applied_state().await?.0, Some(log_id(2000)));
    // Other stores are independent.
    let other = tempfile::tempdir()?;
    Node::open(other.path())?;
    Ok(())
}

/// An operator of an application, which each open of its store needs.
#[derive(Debug)]
struct Last;

impl MergeOperator for Last {
    fn name(&self) -> &str {
        "last"
    }

    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, MergeError> {
        Ok(operands.last().copied().or(base).unwrap_or_default().to_vec())
    }
}

#[test]
fn an_open_refuses_settings_that_no_snapshot_could_use() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let operator = Arc::new(Last);
    let store = sievedb::Options::new().merge_operator(operator.clone()).create_new(true);
    let db = store.clone().open(dir.path().join("store"))?;
    let keyspace = sievedb::KeyspaceOptions::new().merge_operator(operator);
    let map = db.keyspace_with("map", &keyspace)?;
    let open = |options: &Options, snapshots: &str| {
        options.open::<Types, _>(&db, dir.path().join(snapshots), Map(map.clone()))
    };
    let fitting = Options::new(store);
    let inside = open(&fitting, "store/snapshots").err();
    assert!(
        matches!(inside, Some(Error::Store(StoreError::DirectoriesOverlap { .. }))),
        "{inside:?}"
    );
    let without = open(&Options::default(), "snapshots").err();
    assert!(
        matches!(without, Some(Error::Store(StoreError::UnknownMergeOperator { .. }))),
        "{without:?}"
    );
    drop(open(&fitting, "snapshots")?);
    assert_eq!(slots_in_use(&dir.path().join("snapshots"))?, 0);
    Ok(())
}

#[tokio::test]
async fn a_directory_of_snapshots_has_one_owner() -> Result<()> {
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut node = full_node(first.path()).await?;
    let db = sievedb::Db::open(second.path())?;
    let open = || {
        let map = Map(db.keyspace("map").expect("an open store"));
        sievedb_raft::open::<Types, _>(&db, first.path().join("snapshots"), map)
    };
    let refused = open().err();
    assert!(matches!(refused, Some(Error::DirectoryInUse(_))), "{refused:?}");
    assert!(node.state_machine.get_current_snapshot().await?.is_some());
    // Files that are removed while the node runs.
    for slot in 0..3 {
        let current = first.path().join(format!("snapshots/{slot}/CURRENT"));
        if current.exists() {
            std::fs::remove_file(current)?;
        }
    }
    assert!(node.state_machine.get_current_snapshot().await.is_err());
    drop(node);
    open()?;
    Ok(())
}

#[tokio::test]
async fn no_entry_is_applied_twice() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = Node::open(dir.path())?;
    node.state_machine.apply([put(0, "a", "1"), put(1, "a", "2")]).await?;
    for entries in [vec![put(1, "a", "3")], vec![put(2, "a", "3"), put(2, "a", "4")]] {
        assert!(node.state_machine.apply(entries).await.is_err());
    }
    assert_eq!(node.get("a")?.as_deref(), Some("2"));
    assert_eq!(node.state_machine.applied_state().await?.0, Some(log_id(1)));
    Ok(())
}

#[tokio::test]
async fn a_damaged_snapshot_changes_nothing() -> Result<()> {
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut from = full_node(first.path()).await?;
    let mut to = Node::open(second.path())?;
    to.state_machine.apply([put(0, "other", "1")]).await?;
    // A part is missing, truncated, surplus, or changed in the header.
    for place in [0, 3, 9, 20] {
        let change = |bytes: &mut Vec<u8>| bytes[place..place + 3].fill(0xff);
        let (meta, received) = send_changed(&mut from, &mut to, 1 << 20, change).await?;
        assert!(to.state_machine.install_snapshot(&meta, received).await.is_err(), "{place}");
    }
    let too_much = |bytes: &mut Vec<u8>| bytes.extend(b"more");
    let (meta, mut received) = send_changed(&mut from, &mut to, 1 << 20, too_much).await?;
    // Not in order, or again with other bytes.
    let end = received.seek(std::io::SeekFrom::End(0)).await?;
    for (offset, byte) in [(end + 1, 0), (end - 1, 0)] {
        received.seek(std::io::SeekFrom::Start(offset)).await?;
        assert!(received.write_all(&[byte]).await.is_err(), "{offset} of {end}");
    }
    assert!(to.state_machine.install_snapshot(&meta, received).await.is_err());
    let received = to.state_machine.begin_receiving_snapshot().await?;
    assert!(to.state_machine.install_snapshot(&meta, received).await.is_err());
    assert_eq!(to.get("other")?.as_deref(), Some("1"));
    drop(to);
    let mut to = Node::open(second.path())?;
    assert_eq!(to.get("other")?.as_deref(), Some("1"));
    assert_eq!(to.state_machine.applied_state().await?.0, Some(log_id(0)));
    Ok(())
}

#[tokio::test]
async fn a_changed_byte_is_refused_unless_nothing_reads_it() -> Result<()> {
    const PLACES: u64 = 24;
    let first = tempfile::tempdir()?;
    let mut from = full_node(first.path()).await?;
    let want: Vec<_> = from.db.keyspace("map")?.iter().collect::<sievedb::Result<_>>()?;
    let mut refused = 0;
    for place in 0..PLACES {
        let second = tempfile::tempdir()?;
        let mut to = Node::open(second.path())?;
        to.state_machine.apply([put(0, "other", "1")]).await?;
        let change = |bytes: &mut Vec<u8>| {
            let at = bytes.len() as u64 * (2 * place + 1) / (2 * PLACES);
            bytes[at as usize] ^= 0xff;
        };
        let (meta, received) = send_changed(&mut from, &mut to, 1 << 20, change).await?;
        if to.state_machine.install_snapshot(&meta, received).await.is_err() {
            refused += 1;
            assert_eq!(to.get("other")?.as_deref(), Some("1"), "{place}");
            continue;
        }
        let found: Vec<_> = to.db.keyspace("map")?.iter().collect::<sievedb::Result<_>>()?;
        assert!(found == want, "{place}: other entries");
    }
    assert!(refused >= PLACES / 2, "{refused} of {PLACES} were refused");
    Ok(())
}
