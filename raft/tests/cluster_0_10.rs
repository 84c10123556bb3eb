//! Three nodes of openraft 0.10 in one process: responses to clients, a killed node, and a snapshot
//! for it.

#[path = "support/next.rs"]
mod support;

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    future::Future,
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use openraft_0_10::{
    BasicNode, Config, OptionalSend, Raft, RaftNetworkFactory, RaftNetworkV2, ReadPolicy,
    SnapshotPolicy,
    errors::{RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::{Backoff, RPCOption},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
    },
    type_config::alias::{SnapshotOf, VoteOf},
};
use sievedb::Db;
use sievedb_raft::{Options, SnapshotParts, SnapshotReceiver, SnapshotStream, StateMachine};
use tempfile::TempDir;

use support::{Map, Request, Types};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Node = Raft<Types, StateMachine<Types, Map>>;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// Length of a part of a snapshot, in bytes.
const PART_BYTES: usize = 500;

/// The nodes that run, with their receivers of snapshots. Requests to others fail.
#[derive(Clone, Default)]
struct Network {
    nodes: Arc<Mutex<HashMap<u64, (Node, SnapshotReceiver)>>>,
    /// Parts of snapshots that were sent, also lost ones.
    sent_parts: Arc<AtomicU64>,
    /// The bytes of these parts by the id of their snapshot: openraft may build another one during
    /// a transfer, and sends that after a failure.
    sent_bytes: Arc<Mutex<HashMap<String, u64>>>,
    /// The id and the length of the snapshot that was installed.
    installed: Arc<Mutex<Option<(String, u64)>>>,
}

impl Network {
    fn node(&self, id: u64) -> std::result::Result<(Node, SnapshotReceiver), Unreachable<Types>> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || Unreachable::new(&io::Error::from(io::ErrorKind::ConnectionRefused));
        nodes.get(&id).cloned().ok_or_else(none)
    }

    fn count(&self, id: &str, bytes: u64) {
        let mut sent = self.sent_bytes.lock().expect("no panic");
        *sent.entry(id.to_owned()).or_default() += bytes;
    }

    fn remove(&self, id: u64) -> Option<(Node, SnapshotReceiver)> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
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

fn unreachable(error: &(impl Error + 'static)) -> Unreachable<Types> {
    Unreachable::new(error)
}

impl RaftNetworkV2<Types> for Link {
    type SnapshotData = SnapshotStream;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> std::result::Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let (node, _) = self.network.node(self.target)?;
        Ok(node.append_entries(request).await.map_err(|error| unreachable(&error))?)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        _: RPCOption,
    ) -> std::result::Result<VoteResponse<Types>, RPCError<Types>> {
        let (node, _) = self.network.node(self.target)?;
        Ok(node.vote(request).await.map_err(|error| unreachable(&error))?)
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Types>,
        snapshot: SnapshotOf<Types, SnapshotStream>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> std::result::Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let (node, receiver) = self.network.node(self.target)?;
        let id = snapshot.snapshot.id().map_err(|error| unreachable(&error))?;
        let received = receiver.received_bytes(&id).map_err(|error| unreachable(&error))?;
        let parts = SnapshotParts::after(snapshot.snapshot, received, PART_BYTES).await;
        let mut parts = parts.map_err(|error| unreachable(&error))?;
        while let Some(part) = parts.next().await.map_err(|error| unreachable(&error))? {
            self.network.count(&id, part.bytes.len() as u64);
            let number = self.network.sent_parts.fetch_add(1, Ordering::Relaxed);
            let broken = unreachable(&io::Error::from(io::ErrorKind::ConnectionReset));
            if number % 30 == 10 {
                return Err(broken.into());
            }
            let received = receiver.receive(&id, &part).map_err(|error| unreachable(&error))?;
            if number % 30 == 20 {
                return Err(broken.into());
            }
            if let Some(received) = received {
                let (meta, length) = (snapshot.meta.clone(), part.offset + part.bytes.len() as u64);
                *self.network.installed.lock().expect("no panic") = Some((id.clone(), length));
                let snapshot = SnapshotOf::<Types, _> { meta, snapshot: received };
                let installed = node.install_full_snapshot(vote, snapshot).await;
                installed.map_err(|error| unreachable(&error))?;
                // The response to the last part is lost.
                return Err(broken.into());
            }
        }
        Ok(SnapshotResponse::new(vote))
    }

    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(std::iter::repeat(Duration::from_millis(10))))
    }
}

async fn start(id: u64, dir: &Path, network: &Network) -> Result<Db> {
    let config = Config {
        heartbeat_interval: 100,
        // No election on a busy machine: no node takes over.
        election_timeout_min: 5_000,
        election_timeout_max: 10_000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(50),
        max_in_snapshot_log_to_keep: 0,
        ..Config::default()
    };
    let db = Db::open(dir.join("store"))?;
    let map = Map(db.keyspace("map")?);
    let (log, state_machine) = Options::default().open_0_10(&db, dir.join("snapshots"), map)?;
    let receiver = state_machine.receiver();
    let config = Arc::new(config.validate()?);
    let node = Raft::new(id, config, network.clone(), log, state_machine).await?;
    network.nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(id, (node, receiver));
    Ok(db)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_reach_a_node_that_needs_a_snapshot() -> Result<()> {
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir()).collect::<io::Result<_>>()?;
    let network = Network::default();
    let mut stores = Vec::new();
    for id in 0..3 {
        stores.push(start(id, dirs[id as usize].path(), &network).await?);
    }
    let members: BTreeMap<_, _> = (0..3).map(|id| (id, BasicNode::default())).collect();
    let (first, _) = network.node(0)?;
    first.initialize(members).await?;
    let found = first.wait(PATIENCE).metrics(|m| m.current_leader.is_some(), "a leader").await?;
    let leader = found.current_leader.ok_or("no leader")?;
    let away = (leader + 1) % 3;
    let (leader, _) = network.node(leader)?;
    // It takes writes when a majority has heard of it.
    while leader.ensure_linearizable(ReadPolicy::ReadIndex).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    // Each response belongs to its request.
    let put = |number: u64| Request::Put { key: "key".to_owned(), value: number.to_string() };
    for number in 0..20 {
        let before = leader.client_write(put(number)).await?.data.before;
        assert_eq!(before, number.checked_sub(1).map(|before| before.to_string()));
    }
    let (node, receiver) = network.remove(away).ok_or("missing")?;
    node.shutdown().await?;
    drop((node, receiver, std::mem::take(&mut stores)));
    for number in 20..300 {
        let request = Request::Put { key: format!("key {number}"), value: number.to_string() };
        leader.client_write(request).await?;
    }
    let purged = |m: &openraft_0_10::RaftMetrics<Types>| m.purged.is_some_and(|id| id.index > 100);
    leader.wait(PATIENCE).metrics(purged, "the log is purged").await?;
    // The snapshot has many parts.
    let is_last = |m: &openraft_0_10::RaftMetrics<Types>| {
        m.snapshot.as_ref().map(|id| id.index) >= m.last_log_index
    };
    while leader.wait(Some(Duration::from_millis(100))).metrics(is_last, "built").await.is_err() {
        // openraft ignores this while it builds another snapshot.
        leader.trigger().snapshot().await?;
    }

    let db = start(away, dirs[away as usize].path(), &network).await?;
    let last = leader.wait(PATIENCE).metrics(|_| true, "metrics").await?.last_log_index;
    let (back, _) = network.node(away)?;
    let applied = |m: &openraft_0_10::RaftMetrics<Types>| m.last_applied.map(|id| id.index) >= last;
    let caught_up = back.wait(PATIENCE).metrics(applied, "all applied").await?;
    assert!(caught_up.snapshot.is_some(), "it received a snapshot");
    let parts = network.sent_parts.load(Ordering::Relaxed);
    let installed = network.installed.lock().expect("no panic").take();
    let (id, length) = installed.ok_or("no snapshot was sent as a whole")?;
    let sent = network.sent_bytes.lock().expect("no panic")[&id];
    assert!(parts > 100, "{parts} parts");
    assert!(sent * 10 <= length * 11, "{sent} bytes were sent for {length}");
    let map = db.keyspace("map")?;
    assert_eq!(map.len()?, 281);
    assert_eq!(map.get("key")?.as_deref(), Some(&b"19"[..]));
    assert_eq!(map.get("key 299")?.as_deref(), Some(&b"299"[..]));
    for id in 0..3 {
        let (node, _receiver) = network.remove(id).ok_or("missing")?;
        node.shutdown().await?;
    }
    Ok(())
}
