//! Nodes of a cluster in one process.

use std::{
    collections::HashMap,
    error::Error,
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use openraft::{
    BasicNode, Config, OptionalSend, Raft, RaftNetwork, RaftNetworkFactory, Snapshot,
    SnapshotPolicy, Vote,
    error::{
        Fatal, InstallSnapshotError, RPCError, RaftError, RemoteError, ReplicationClosed,
        StreamingError, Unreachable,
    },
    network::{Backoff, RPCOption},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest,
        InstallSnapshotResponse, SnapshotResponse, VoteRequest, VoteResponse,
    },
};
use sievedb::Db;
use sievedb_raft::{SnapshotNetwork, SnapshotReceiver, send_snapshot};

use crate::support::{Map, Request, Types};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Failure<E = openraft::error::Infallible> = RPCError<u64, BasicNode, RaftError<u64, E>>;

/// A node that runs, with its receiver of snapshots.
type Running = (Raft<Types>, SnapshotReceiver);

/// Time in which a cluster must reach a state, on a busy machine.
pub(crate) const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// Entries after which a node builds a snapshot and purges its log.
const SNAPSHOT_ENTRIES: u64 = 50;

/// Decides by the number of a request with a part, and by whether that is the last one, what is
/// lost.
type Losses = Arc<dyn Fn(u64, bool) -> Option<Lost> + Send + Sync>;

/// What the network loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Request,
    Response,
}

/// The nodes that run. Requests to others fail.
#[derive(Clone, Default)]
pub(crate) struct Network {
    nodes: Arc<Mutex<HashMap<u64, Running>>>,
    pub(crate) losses: Option<Losses>,
    /// Requests with a part of a snapshot.
    pub(crate) parts: Arc<AtomicU64>,
    /// Bytes in these requests by the id of their snapshot: openraft may build another one during
    /// a transfer, and sends that after a failure.
    pub(crate) part_bytes: Arc<Mutex<HashMap<String, u64>>>,
}

impl Network {
    fn node(&self, id: u64) -> std::result::Result<Running, Unreachable> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || Unreachable::new(&io::Error::from(io::ErrorKind::ConnectionRefused));
        nodes.get(&id).cloned().ok_or_else(none)
    }

    fn count(&self, id: &str, bytes: u64) {
        let mut sent = self.part_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *sent.entry(id.to_owned()).or_default() += bytes;
    }

    fn set(&self, id: u64, node: Option<Running>) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        match node {
            Some(node) => drop(nodes.insert(id, node)),
            None => drop(nodes.remove(&id)),
        }
    }
}

pub(crate) struct Link {
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
        let (node, _) = self.network.node(self.target)?;
        node.append_entries(request).await.map_err(|error| self.failed(error))
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> std::result::Result<InstallSnapshotResponse<u64>, Failure<InstallSnapshotError>> {
        let (node, receiver) = self.network.node(self.target)?;
        let number = self.network.parts.fetch_add(1, Ordering::Relaxed);
        self.network.count(&request.meta.snapshot_id, request.data.len() as u64);
        let lost = self.network.losses.as_ref().and_then(|losses| losses(number, request.done));
        let broken = Unreachable::new(&io::Error::from(io::ErrorKind::ConnectionReset));
        if lost == Some(Lost::Request) {
            return Err(broken.into());
        }
        let installed = receiver.install_snapshot(&node, request).await;
        if lost == Some(Lost::Response) {
            return Err(broken.into());
        }
        installed.map_err(|error| self.failed(error))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> std::result::Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        send_snapshot(self, vote, snapshot, cancel, option).await
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(10)))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> std::result::Result<VoteResponse<u64>, Failure> {
        let (node, _) = self.network.node(self.target)?;
        node.vote(request).await.map_err(|error| self.failed(error))
    }
}

impl SnapshotNetwork<Types> for Link {
    async fn received_bytes(
        &mut self,
        id: &str,
        _: RPCOption,
    ) -> std::result::Result<u64, Failure<InstallSnapshotError>> {
        let (_, receiver) = self.network.node(self.target)?;
        Ok(receiver.received_bytes(id).expect("the file can be read"))
    }
}

pub(crate) struct Node {
    pub(crate) raft: Raft<Types>,
    pub(crate) db: Db,
}

pub(crate) async fn start(id: u64, dir: &Path, network: &Network) -> Result<Node> {
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
    let receiver = state_machine.receiver();
    let config = Arc::new(config.validate()?);
    let raft = Raft::new(id, config, network.clone(), log, state_machine).await?;
    network.set(id, Some((raft.clone(), receiver)));
    Ok(Node { raft, db })
}

/// Stops a node. Its store is closed when this returns.
pub(crate) async fn stop(id: u64, node: Node, network: &Network) -> Result<()> {
    network.set(id, None);
    node.raft.shutdown().await?;
    Ok(())
}

pub(crate) async fn put(leader: &Raft<Types>, number: u64) -> Result<()> {
    let request = Request::Put { key: format!("key {number}"), value: number.to_string() };
    leader.client_write(request).await?;
    Ok(())
}

/// Waits until `raft` reports a leader other than `old`.
pub(crate) async fn leader(raft: &Raft<Types>, old: Option<u64>) -> Result<u64> {
    let found = |metrics: &openraft::RaftMetrics<u64, BasicNode>| {
        metrics.current_leader.is_some() && metrics.current_leader != old
    };
    let metrics = raft.wait(PATIENCE).metrics(found, "a leader").await?;
    Ok(metrics.current_leader.ok_or("no leader")?)
}
