//! Three nodes in one process: a node that falls behind, one that is killed, and what was
//! acknowledged meanwhile.

mod support;

use std::{
    collections::HashMap,
    error::Error,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use openraft::{
    BasicNode, Config, Raft, RaftNetwork, RaftNetworkFactory, ServerState, SnapshotPolicy,
    error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable},
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest,
        InstallSnapshotResponse, VoteRequest, VoteResponse,
    },
};
use sievedb::Db;
use tempfile::TempDir;

use support::{Map, Request, Types};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Failure<E = openraft::error::Infallible> = RPCError<u64, BasicNode, RaftError<u64, E>>;

/// Time in which a cluster must reach a state, on a busy machine.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// Entries after which a node builds a snapshot and purges its log.
const SNAPSHOT_ENTRIES: u64 = 50;

/// The nodes that run. Requests to others fail.
#[derive(Clone, Default)]
struct Network(Arc<Mutex<HashMap<u64, Raft<Types>>>>);

impl Network {
    fn node(&self, id: u64) -> std::result::Result<Raft<Types>, Unreachable> {
        let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || Unreachable::new(&io::Error::from(io::ErrorKind::ConnectionRefused));
        nodes.get(&id).cloned().ok_or_else(none)
    }

    fn set(&self, id: u64, node: Option<Raft<Types>>) {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match node {
            Some(node) => drop(nodes.insert(id, node)),
            None => drop(nodes.remove(&id)),
        }
    }
}

struct Link {
    network: Network,
    target: u64,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, _: &BasicNode) -> Link {
        Link { network: self.clone(), target }
    }
}

impl Link {
    fn failed<E: Error>(&self, error: RaftError<u64, E>) -> Failure<E> {
        RPCError::RemoteError(RemoteError::new(self.target, error))
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> std::result::Result<AppendEntriesResponse<u64>, Failure> {
        let node = self.network.node(self.target)?;
        node.append_entries(request).await.map_err(|error| self.failed(error))
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> std::result::Result<InstallSnapshotResponse<u64>, Failure<InstallSnapshotError>> {
        let node = self.network.node(self.target)?;
        node.install_snapshot(request).await.map_err(|error| self.failed(error))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> std::result::Result<VoteResponse<u64>, Failure> {
        let node = self.network.node(self.target)?;
        node.vote(request).await.map_err(|error| self.failed(error))
    }
}

struct Node {
    raft: Raft<Types>,
    db: Db,
}

async fn start(id: u64, dir: &Path, network: &Network) -> Result<Node> {
    let config = Config {
        heartbeat_interval: 100,
        // No election on a busy machine, unless the leader is stopped: the others wait for up to
        // twice the maximum.
        election_timeout_min: 2_000,
        election_timeout_max: 4_000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES),
        max_in_snapshot_log_to_keep: 0,
        snapshot_max_chunk_size: 10_000,
        ..Config::default()
    };
    let db = Db::open(dir.join("store"))?;
    let map = Map(db.keyspace("map")?);
    let (log, state_machine) = sievedb_raft::open(&db, dir.join("snapshots"), map)?;
    let config = Arc::new(config.validate()?);
    let raft = Raft::new(id, config, network.clone(), log, state_machine).await?;
    network.set(id, Some(raft.clone()));
    Ok(Node { raft, db })
}

/// Stops a node. Its store is closed when this returns.
async fn stop(id: u64, node: Node, network: &Network) -> Result<()> {
    network.set(id, None);
    node.raft.shutdown().await?;
    Ok(())
}

async fn put(leader: &Raft<Types>, number: u64) -> Result<()> {
    let request = Request::Put { key: format!("key {number}"), value: number.to_string() };
    leader.client_write(request).await?;
    Ok(())
}

/// Waits until `raft` reports a leader other than `old`.
async fn leader(raft: &Raft<Types>, old: Option<u64>) -> Result<u64> {
    let found = |metrics: &openraft::RaftMetrics<u64, BasicNode>| {
        metrics.current_leader.is_some() && metrics.current_leader != old
    };
    let metrics = raft.wait(PATIENCE).metrics(found, "a leader").await?;
    Ok(metrics.current_leader.ok_or("no leader")?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_lagging_node_and_a_killed_leader() -> Result<()> {
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir()).collect::<io::Result<_>>()?;
    let network = Network::default();
    let mut nodes = HashMap::new();
    for id in 0..3 {
        nodes.insert(id, start(id, dirs[id as usize].path(), &network).await?);
    }
    let members: std::collections::BTreeMap<_, _> =
        (0..3).map(|id| (id, BasicNode::default())).collect();
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
