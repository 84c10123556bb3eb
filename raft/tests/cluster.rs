//! Three nodes in one process: a node that falls behind, one that is killed, and what was
//! acknowledged meanwhile. A transfer over a network that fails.

#[path = "support/cluster.rs"]
mod cluster;
mod support;

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use openraft::{BasicNode, LogId, ServerState};
use sievedb_tests::rng::Rng;
use tempfile::TempDir;
use tokio::io::AsyncSeekExt as _;

use cluster::{Lost, Network, Node, PATIENCE, Result, leader, put, start, stop};
use support::Request;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_lagging_node_and_a_killed_leader() -> Result<()> {
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir()).collect::<io::Result<_>>()?;
    let network = Network::default();
    let mut nodes = HashMap::new();
    for id in 0..3 {
        nodes.insert(id, start(id, dirs[id as usize].path(), &network).await?);
    }
    let members: BTreeMap<_, _> = (0..3).map(|id| (id, BasicNode::default())).collect();
    nodes[&0].raft.initialize(members).await?;
    let first = leader(&nodes[&0].raft, None).await?;
    for number in 0..20 {
        put(&nodes[&first].raft, number).await?;
    }

    // One node is away while the others write and purge their logs: it needs a snapshot.
    let away = (first + 1) % 3;
    stop(away, nodes.remove(&away).ok_or("missing")?, &network).await?;
    for number in 20..300 {
        put(&nodes[&first].raft, number).await?;
    }
    let purged = |metrics: &openraft::RaftMetrics<u64, BasicNode>| {
        metrics.purged.is_some_and(|purged| purged.index > 100)
    };
    nodes[&first].raft.wait(PATIENCE).metrics(purged, "the log is purged").await?;
    let back = start(away, dirs[away as usize].path(), &network).await?;
    let last = nodes[&first].raft.metrics().borrow().last_log_index;
    let caught_up = back.raft.wait(PATIENCE).applied_index_at_least(last, "all applied").await?;
    assert!(caught_up.snapshot.is_some(), "it received a snapshot");
    assert_eq!(back.db.keyspace("map")?.len()?, 300);
    nodes.insert(away, back);

    // The leader is killed: another one has all that was acknowledged, and goes on.
    stop(first, nodes.remove(&first).ok_or("missing")?, &network).await?;
    let second = leader(&nodes[&away].raft, Some(first)).await?;
    let state =
        |metrics: &openraft::RaftMetrics<u64, BasicNode>| metrics.state == ServerState::Leader;
    nodes[&second].raft.wait(PATIENCE).metrics(state, "it leads").await?;
    for number in 300..320 {
        put(&nodes[&second].raft, number).await?;
    }
    nodes[&second].raft.ensure_linearizable().await?;
    let back = start(first, dirs[first as usize].path(), &network).await?;
    let last = nodes[&second].raft.metrics().borrow().last_log_index;
    back.raft.wait(PATIENCE).applied_index_at_least(last, "all applied").await?;
    nodes.insert(first, back);
    for node in nodes.values() {
        node.raft.wait(PATIENCE).applied_index_at_least(last, "all applied").await?;
        let map = node.db.keyspace("map")?;
        assert_eq!(map.len()?, 320);
        for number in 0..320 {
            let value = map.get(format!("key {number}"))?;
            assert_eq!(value.as_deref(), Some(number.to_string().as_bytes()));
        }
    }
    for (id, node) in nodes {
        stop(id, node, &network).await?;
    }
    Ok(())
}

/// Loses requests and responses of a transfer in turn, and more in a row than it retries. Loses the
/// response to the last part, after the installation.
fn lose(number: u64, is_last: bool) -> Option<Lost> {
    match number {
        30..45 => Some(Lost::Response),
        60..66 => Some(Lost::Request),
        _ if is_last => Some(Lost::Response),
        _ if number.is_multiple_of(40) => Some(Lost::Response),
        _ if number % 40 == 20 => Some(Lost::Request),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_continues_where_it_was_interrupted() -> Result<()> {
    const KEYS: u64 = 150;
    let dirs = [tempfile::tempdir()?, tempfile::tempdir()?];
    let is_last_lost = AtomicBool::new(false);
    let losses = move |number: u64, is_last: bool| {
        let is_first = !is_last || !is_last_lost.swap(true, Ordering::Relaxed);
        is_first.then(|| lose(number, is_last)).flatten()
    };
    let mut network = Network::default();
    network.losses = Some(Arc::new(losses));
    let first = start(0, dirs[0].path(), &network).await?;
    first.raft.initialize(BTreeMap::from([(0, BasicNode::default())])).await?;
    leader(&first.raft, None).await?;
    let (mut random, mut last) = (Rng::new(1), LogId::default());
    for number in 0..KEYS {
        let value: String = (0..2500).map(|_| format!("{:08x}", random.number() as u32)).collect();
        let request = Request::Put { key: format!("key {number}"), value };
        last = first.raft.client_write(request).await?.log_id;
    }
    while first.raft.metrics().borrow().snapshot < Some(last) {
        // openraft ignores this while it builds another snapshot.
        first.raft.trigger().snapshot().await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    first.raft.trigger().purge_log(last.index).await?;
    first.raft.wait(PATIENCE).purged(Some(last), "the log is purged").await?;

    let second = start(1, dirs[1].path(), &network).await?;
    first.raft.add_learner(1, BasicNode::default(), true).await?;
    second.raft.wait(PATIENCE).snapshot(last, "it received the snapshot").await?;
    let last_index = first.raft.metrics().borrow().last_log_index;
    second.raft.wait(PATIENCE).applied_index_at_least(last_index, "all applied").await?;
    let content = |node: &Node| {
        let map = node.db.keyspace("map").expect("an open store");
        map.iter().collect::<sievedb::Result<Vec<_>>>()
    };
    let found = content(&second)?;
    assert!(found.len() as u64 == KEYS && found == content(&first)?, "{} keys", found.len());
    let mut current = second.raft.get_snapshot().await?.ok_or("no snapshot")?;
    let length = current.snapshot.seek(SeekFrom::End(0)).await?;
    let sent = network.part_bytes.lock().expect("no panic")[&current.meta.snapshot_id];
    drop(current);
    let parts = network.parts.load(Ordering::Relaxed);
    assert!(parts > 100, "{parts} parts");
    assert!(sent * 10 <= length * 11, "{sent} bytes were sent for {length}");
    // The file of the transfer has no name.
    assert!(!dirs[1].path().join("snapshots/incoming").exists());
    for (id, node) in [(0, first), (1, second)] {
        stop(id, node, &network).await?;
    }
    Ok(())
}
