//! One node: a store, openraft, and an HTTP server.
//!
//! | request                | effect                                                            |
//! |------------------------|-------------------------------------------------------------------|
//! | `GET /kv/KEY`          | linearizable read; `?local=true`: of this node, may be outdated    |
//! | `PUT /kv/KEY`          | stores the body                                                   |
//! | `POST /cas/KEY`        | compare-and-set: `{"expected": "1", "value": "2"}`                |
//! | `POST /members`        | starts the first cluster: `{"1": "127.0.0.1:7001", …}`            |
//! | `PUT /members/ID`      | adds the node whose address is the body                           |
//! | `DELETE /members/ID`   | removes a node                                                    |
//! | `POST /snapshot`       | builds a snapshot and purges the log                              |
//! | `GET /status`          | openraft's metrics as JSON                                        |
//! | `GET /metrics`         | metrics as text for Prometheus                                    |
//!
//! A node that does not lead redirects requests to the leader with status 307. Status 503 means that
//! the request had no effect, 504 that its effect is unknown.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    io::Read as _,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Query, State},
    http::{HeaderMap, StatusCode, Uri, header::LOCATION},
    response::{IntoResponse, Response as HttpResponse},
    routing::{get, post, put},
};
use openraft::{
    BasicNode, ChangeMembers, Config, Raft, RaftMetrics, SnapshotPolicy,
    error::{CheckIsLeaderError, ClientWriteError, InitializeError, RaftError},
};
use serde::{Deserialize, Serialize};
use sievedb::{Db, Keyspace};
use sievedb_raft::Reads;

use crate::{
    Result,
    map::{Map, Request, Types},
    network::{Blocked, Network, SENDER},
};

/// The longest body of a request: a part of a snapshot and its envelope.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Options of a node.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The id of the node in the cluster.
    pub id: u64,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The directory of the store and its snapshots.
    pub dir: PathBuf,
    /// Entries after which a snapshot is built and the log is purged.
    pub snapshot_entries: u64,
    /// Ends the process when standard input ends, so that a node does not outlive its parent.
    pub child: bool,
    /// Accepts requests that partition the cluster.
    pub faults: bool,
    /// A bug that a test plants: `stale-read` or `lost-vote`.
    pub planted_bug: Option<String>,
}

/// How long a snapshot may take.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(600);

struct Node {
    raft: Raft<Types>,
    reads: Reads,
    map: Keyspace,
    db: Db,
    blocked: Blocked,
    stale_reads: bool,
}

type Shared = State<Arc<Node>>;

/// Runs a node until the process ends.
///
/// # Errors
///
/// If the store cannot be opened, or the address is in use.
pub async fn serve(settings: Settings) -> Result<()> {
    if settings.child {
        thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
    }
    let db = Db::open(settings.dir.join("store"))?;
    let map = db.keyspace("map")?;
    let options = options(settings.planted_bug.as_deref())?;
    let (log, state_machine) =
        options.open(&db, settings.dir.join("snapshots"), Map(map.clone()))?;
    let config = Config {
        cluster_name: "sieve".to_owned(),
        heartbeat_interval: 100,
        election_timeout_min: 400,
        election_timeout_max: 800,
        // The last part of a snapshot returns when it is installed.
        install_snapshot_timeout: 120_000,
        snapshot_max_chunk_size: 4 << 20,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.snapshot_entries),
        max_in_snapshot_log_to_keep: settings.snapshot_entries / 10,
        ..Config::default()
    };
    let blocked = Blocked::default();
    let http = reqwest::Client::builder().no_proxy().build()?;
    let network = Network { id: settings.id, http, blocked: blocked.clone() };
    let config = Arc::new(config.validate()?);
    let reads = state_machine.reads();
    let raft = Raft::new(settings.id, config, network, log, state_machine).await?;
    let stale_reads = settings.planted_bug.as_deref() == Some("stale-read");
    let node = Arc::new(Node { raft, reads, map, db, blocked, stale_reads });
    let listener = tokio::net::TcpListener::bind(settings.listen).await?;
    Ok(axum::serve(listener, router(node, settings.faults)).await?)
}

#[cfg(feature = "planted-bugs")]
fn options(bug: Option<&str>) -> Result<sievedb_raft::Options> {
    let options = sievedb_raft::Options::default();
    match bug {
        Some("lost-vote") => Ok(options.planted_bug(sievedb_raft::PlantedBug::ForgetVote)),
        None | Some("stale-read") => Ok(options),
        Some(other) => Err(format!("unknown bug: {other}").into()),
    }
}

#[cfg(not(feature = "planted-bugs"))]
fn options(bug: Option<&str>) -> Result<sievedb_raft::Options> {
    match bug {
        None => Ok(sievedb_raft::Options::default()),
        Some(_) => Err("bugs need the feature planted-bugs".into()),
    }
}

fn router(node: Arc<Node>, faults: bool) -> Router {
    let router = Router::new()
        .route("/kv/{key}", get(read).put(write))
        .route("/cas/{key}", post(compare_and_set))
        .route("/members", post(initialize))
        .route("/members/{id}", put(add_member).delete(remove_member))
        .route("/snapshot", post(build_snapshot))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .route("/raft/append", post(raft_append))
        .route("/raft/snapshot", post(raft_snapshot))
        .route("/raft/vote", post(raft_vote));
    let router = if faults { router.route("/faults/blocked", put(block)) } else { router };
    router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(node)
}

impl Node {
    /// Returns a redirection to the leader, or `None` if this node takes itself for it.
    fn redirection(&self, uri: &Uri) -> Option<HttpResponse> {
        let metrics = self.raft.metrics().borrow().clone();
        match metrics.current_leader {
            Some(leader) if leader == metrics.id => None,
            Some(leader) => {
                let node = metrics.membership_config.membership().get_node(&leader).cloned();
                Some(redirect(node, uri))
            }
            None => Some(redirect(None, uri)),
        }
    }

    async fn write(&self, request: Request, uri: &Uri) -> HttpResponse {
        if let Some(redirection) = self.redirection(uri) {
            return redirection;
        }
        match self.raft.client_write(request).await {
            Ok(written) if written.data.stored => Json(written.data).into_response(),
            Ok(written) => (StatusCode::CONFLICT, Json(written.data)).into_response(),
            // The entry may be in the log of another node, which may lead next.
            Err(error) => (StatusCode::GATEWAY_TIMEOUT, error.to_string()).into_response(),
        }
    }
}

/// Returns status 307 to the leader `node`, or 503 if there is none.
fn redirect(node: Option<BasicNode>, uri: &Uri) -> HttpResponse {
    match node {
        Some(node) => {
            let location = [(LOCATION, format!("http://{}{uri}", node.addr))];
            (StatusCode::TEMPORARY_REDIRECT, location).into_response()
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "no leader").into_response(),
    }
}

fn failed(error: &impl ToString) -> HttpResponse {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
}

#[derive(Deserialize)]
struct ReadOptions {
    #[serde(default)]
    local: bool,
}

async fn read(
    State(node): Shared,
    Path(key): Path<String>,
    Query(options): Query<ReadOptions>,
    uri: Uri,
) -> HttpResponse {
    if !options.local {
        if let Some(redirection) = node.redirection(&uri) {
            return redirection;
        }
        if !node.stale_reads {
            match node.raft.ensure_linearizable().await {
                Ok(_) => {}
                Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(leader))) => {
                    return redirect(leader.leader_node, &uri);
                }
                Err(error) => {
                    return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response();
                }
            }
        }
    }
    match node.reads.read(|| node.map.get(&key)) {
        Ok(Ok(Some(value))) => value.to_vec().into_response(),
        Ok(Ok(None)) => StatusCode::NOT_FOUND.into_response(),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}

async fn write(
    State(node): Shared,
    Path(key): Path<String>,
    uri: Uri,
    value: String,
) -> HttpResponse {
    node.write(Request::Put { key, value }, &uri).await
}

/// The body of a compare-and-set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CompareAndSet {
    pub(crate) expected: Option<String>,
    pub(crate) value: String,
}

async fn compare_and_set(
    State(node): Shared,
    Path(key): Path<String>,
    uri: Uri,
    Json(CompareAndSet { expected, value }): Json<CompareAndSet>,
) -> HttpResponse {
    node.write(Request::CompareAndSet { key, expected, value }, &uri).await
}

async fn initialize(
    State(node): Shared,
    Json(members): Json<BTreeMap<u64, String>>,
) -> HttpResponse {
    let members: BTreeMap<_, _> =
        members.into_iter().map(|(id, address)| (id, BasicNode::new(address))).collect();
    match node.raft.initialize(members).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(RaftError::APIError(InitializeError::NotAllowed(error))) => {
            (StatusCode::CONFLICT, error.to_string()).into_response()
        }
        Err(error) => failed(&error),
    }
}

async fn add_member(
    State(node): Shared,
    Path(id): Path<u64>,
    uri: Uri,
    address: String,
) -> HttpResponse {
    let added = async {
        node.raft.add_learner(id, BasicNode::new(address), true).await?;
        let voters = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        node.raft.change_membership(voters, false).await
    };
    changed(added.await, &uri)
}

async fn remove_member(State(node): Shared, Path(id): Path<u64>, uri: Uri) -> HttpResponse {
    let voters = ChangeMembers::RemoveVoters(BTreeSet::from([id]));
    changed(node.raft.change_membership(voters, false).await, &uri)
}

fn changed<T>(
    result: Result<T, RaftError<u64, ClientWriteError<u64, BasicNode>>>,
    uri: &Uri,
) -> HttpResponse {
    match result {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(leader))) => {
            redirect(leader.leader_node, uri)
        }
        Err(error) => failed(&error),
    }
}

async fn build_snapshot(State(node): Shared) -> HttpResponse {
    let Some(applied) = node.raft.metrics().borrow().last_applied else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let built = async {
        node.raft.trigger().snapshot().await?;
        let contains = |metrics: &RaftMetrics<u64, BasicNode>| metrics.snapshot >= Some(applied);
        node.raft.wait(Some(SNAPSHOT_PATIENCE)).metrics(contains, "the snapshot is built").await?;
        node.raft.trigger().purge_log(applied.index).await?;
        let purged = |metrics: &RaftMetrics<u64, BasicNode>| metrics.purged >= Some(applied);
        node.raft.wait(Some(SNAPSHOT_PATIENCE)).metrics(purged, "the log is purged").await?;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    match built.await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => failed(&error),
    }
}

async fn status(State(node): Shared) -> HttpResponse {
    Json(node.raft.metrics().borrow().clone()).into_response()
}

async fn metrics(State(node): Shared) -> String {
    let raft = node.raft.metrics().borrow().clone();
    let index = |id: Option<openraft::LogId<u64>>| id.map_or(0, |id| id.index);
    let stats = node.db.stats();
    let figures = [
        ("sieve_raft_term", "Current term", raft.current_term),
        ("sieve_raft_is_leader", "1 if this node leads", u64::from(raft.state.is_leader())),
        ("sieve_raft_last_log_index", "Last entry", raft.last_log_index.unwrap_or(0)),
        ("sieve_raft_applied_index", "Last applied entry", index(raft.last_applied)),
        ("sieve_raft_snapshot_index", "Last entry of the snapshot", index(raft.snapshot)),
        ("sieve_raft_purged_index", "Last purged entry", index(raft.purged)),
        ("sieve_memtable_bytes", "Bytes of memtables", stats.memory.memtable_bytes),
    ];
    let lines = figures.iter().map(|(name, help, value)| {
        format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n")
    });
    lines.collect()
}

async fn block(State(node): Shared, Json(nodes): Json<BTreeSet<u64>>) -> StatusCode {
    node.blocked.set(nodes);
    StatusCode::NO_CONTENT
}

/// Decodes a request of another node, calls `handle`, and encodes the response.
async fn answer<R: for<'a> Deserialize<'a>, T: Serialize>(
    node: &Node,
    headers: &HeaderMap,
    body: &Bytes,
    handle: impl AsyncFnOnce(R) -> T,
) -> HttpResponse {
    let sender = headers.get(SENDER).and_then(|value| value.to_str().ok()?.parse().ok());
    if sender.is_some_and(|sender| node.blocked.contains(sender)) {
        // The sender waits for its timeout, as if the request were lost.
        return std::future::pending().await;
    }
    let request = match postcard::from_bytes(body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    match postcard::to_stdvec(&handle(request).await) {
        Ok(bytes) => bytes.into_response(),
        Err(error) => failed(&error),
    }
}

async fn raft_append(State(node): Shared, headers: HeaderMap, body: Bytes) -> HttpResponse {
    answer(&node, &headers, &body, async |request| node.raft.append_entries(request).await).await
}

async fn raft_snapshot(State(node): Shared, headers: HeaderMap, body: Bytes) -> HttpResponse {
    answer(&node, &headers, &body, async |request| node.raft.install_snapshot(request).await).await
}

async fn raft_vote(State(node): Shared, headers: HeaderMap, body: Bytes) -> HttpResponse {
    answer(&node, &headers, &body, async |request| node.raft.vote(request).await).await
}
