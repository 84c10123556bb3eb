//! One node: a store, openraft, and an HTTP server.
//!
//! | request                | effect                                                            |
//! |------------------------|-------------------------------------------------------------------|
//! | `GET /kv/KEY`          | linearizable read; `?local=true`: of this node, may be outdated    |
//! | `PUT /kv/KEY`          | stores the body                                                   |
//! | `POST /cas/KEY`        | compare-and-set: `{"expected": "1", "value": "2"}`                |
//! | `POST /members`        | starts the first cluster: `{"1": "127.0.0.1:7001", …}`            |
//! | `PUT /members/ID`      | adds the node whose address is the body, once it has caught up     |
//! | `DELETE /members/ID`   | removes a node, also one that has not caught up                   |
//! | `POST /snapshot`       | builds a snapshot and purges the log                              |
//! | `GET /status`          | openraft's metrics as JSON                                        |
//! | `GET /metrics`         | metrics as text for Prometheus                                    |
//!
//! A node that does not lead redirects requests to the leader with status 307. Status 504 means
//! that the effect of the request is unknown, 503 and 400 to 499 that it had none. A value has at
//! most 1 MiB. A node ends if openraft stops, for example because its store failed.

use std::{
    collections::BTreeSet,
    error::Error,
    io::Read as _,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
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
    BasicNode, Config, Raft, RaftMetrics, SnapshotPolicy,
    error::{CheckIsLeaderError, RaftError},
    metrics::WaitError,
};
use serde::{Deserialize, Serialize};
use sievedb::{Db, Durability, Keyspace};
use sievedb_raft::Reads;

use crate::{
    Result,
    map::{Map, Request},
    members::{add_member, initialize, remove_member},
    network::{Blocked, Network, SENDER, TARGET, Types},
};

/// The longest body of a request of a client. Entries of two such requests and 4 MiB of others fit
/// into a request between nodes: one that does not fit would end replication.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// The longest body of a request between nodes: entries or a part of a snapshot, and its envelope.
const BODY_BYTES_MAX: usize = 16 << 20;

/// The keyspace with the id of the node.
const IDENTITY: &str = "node";

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
    /// Milliseconds without a leader after which the node starts an election: this number to twice
    /// as many, at random. At least 101, one more than the interval of heartbeats.
    pub election_timeout: u64,
    /// Ends the process when standard input ends, so that a node does not outlive its parent.
    pub child: bool,
    /// Accepts requests that partition the cluster.
    pub faults: bool,
    /// A bug that a test plants: `stale-read` or `lost-vote`.
    pub planted_bug: Option<String>,
}

/// Timeout of building a snapshot, of a purge, and of a member that catches up.
pub(crate) const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(600);

/// Time for which a snapshot that is being built may delay the next one, before that is requested
/// again.
const SNAPSHOT_RETRY: Duration = Duration::from_millis(300);

pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) http: reqwest::Client,
    pub(crate) raft: Raft<Types>,
    reads: Reads,
    map: Keyspace,
    db: Db,
    blocked: Blocked,
    stale_reads: bool,
}

pub(crate) type Shared = State<Arc<Node>>;

/// Runs a node until the process ends.
///
/// # Errors
///
/// If the store cannot be opened or belongs to another node, if the address is in use, and when
/// openraft stops.
pub async fn serve(settings: Settings) -> Result<()> {
    if settings.child {
        thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
    }
    let db = Db::open(settings.dir.join("store"))?;
    check_identity(&db, settings.id)?;
    let map = db.keyspace("map")?;
    let options = options(settings.planted_bug.as_deref())?;
    let (log, state_machine) =
        options.open(&db, settings.dir.join("snapshots"), Map(map.clone()))?;
    let config = Config {
        cluster_name: "sieve".to_owned(),
        heartbeat_interval: 100,
        election_timeout_min: settings.election_timeout,
        election_timeout_max: settings.election_timeout.saturating_mul(2),
        // The last part of a snapshot returns when it is installed.
        install_snapshot_timeout: 120_000,
        snapshot_max_chunk_size: 4 << 20,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.snapshot_entries),
        max_in_snapshot_log_to_keep: settings.snapshot_entries / 10,
        ..Config::default()
    };
    let blocked = Blocked::default();
    let http = reqwest::Client::builder().no_proxy().build()?;
    let network = Network { id: settings.id, http: http.clone(), blocked: blocked.clone() };
    let config = Arc::new(config.validate()?);
    let reads = state_machine.reads();
    let raft = Raft::new(settings.id, config, network, log, state_machine).await?;
    let stale_reads = settings.planted_bug.as_deref() == Some("stale-read");
    let stopped = stopped(raft.clone());
    let node = Node { id: settings.id, http, raft, reads, map, db, blocked, stale_reads };
    let listener = tokio::net::TcpListener::bind(settings.listen).await?;
    tokio::select! {
        served = axum::serve(listener, router(Arc::new(node), settings.faults)) => Ok(served?),
        reason = stopped => Err(format!("openraft stopped: {reason}").into()),
    }
}

/// Records the id of the node in a new store.
///
/// A node that answers under the id of another one has two votes in an election.
///
/// # Errors
///
/// If the store has the state of another node.
fn check_identity(db: &Db, id: u64) -> Result<()> {
    let identity = db.keyspace(IDENTITY)?;
    match identity.get("id")? {
        None => {
            let mut batch = db.batch();
            batch.insert(&identity, "id", id.to_be_bytes())?;
            Ok(batch.commit(Durability::Disk)?)
        }
        Some(stored) if stored[..] == id.to_be_bytes() => Ok(()),
        Some(stored) => {
            let stored = <[u8; 8]>::try_from(&stored[..]).map(u64::from_be_bytes)?;
            Err(format!(
                "the directory is that of node {stored}, not of node {id}; pass --id {stored}, or \
                 another directory"
            )
            .into())
        }
    }
}

/// Waits until openraft stops, and returns why.
async fn stopped(raft: Raft<Types>) -> String {
    let failed = |metrics: &RaftMetrics<u64, BasicNode>| metrics.running_state.is_err();
    match raft.wait(None).metrics(failed, "openraft stops").await {
        Ok(metrics) => metrics.running_state.err().map_or_else(String::new, |e| e.to_string()),
        Err(WaitError::ShuttingDown | WaitError::Timeout(..)) => "it has ended".to_owned(),
    }
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
        .route("/metrics", get(metrics));
    let router = if faults { router.route("/faults/blocked", put(block)) } else { router };
    let peers = Router::new()
        .route("/raft/append", post(raft_append))
        .route("/raft/snapshot", post(raft_snapshot))
        .route("/raft/vote", post(raft_vote))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    router.layer(DefaultBodyLimit::max(VALUE_BYTES_MAX)).merge(peers).with_state(node)
}

impl Node {
    /// Returns a redirection to the leader, or `None` if this node takes itself for it.
    pub(crate) fn redirection(&self, uri: &Uri) -> Option<HttpResponse> {
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
pub(crate) fn redirect(node: Option<BasicNode>, uri: &Uri) -> HttpResponse {
    match node {
        Some(node) => {
            // The URI of a request through a proxy has a host.
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            let location = [(LOCATION, format!("http://{}{path}", node.addr))];
            (StatusCode::TEMPORARY_REDIRECT, location).into_response()
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "no leader").into_response(),
    }
}

pub(crate) fn failed(error: &impl ToString) -> HttpResponse {
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

async fn build_snapshot(State(node): Shared) -> HttpResponse {
    let Some(applied) = node.raft.metrics().borrow().last_applied else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let built = async {
        let contains = |metrics: &RaftMetrics<u64, BasicNode>| metrics.snapshot >= Some(applied);
        let deadline = Instant::now() + SNAPSHOT_PATIENCE;
        loop {
            // openraft ignores this while it builds another snapshot, which may contain less.
            node.raft.trigger().snapshot().await?;
            let wait = node.raft.wait(Some(SNAPSHOT_RETRY));
            match wait.metrics(contains, "the snapshot is built").await {
                Err(WaitError::Timeout(..)) if Instant::now() < deadline => {}
                built => {
                    built?;
                    break;
                }
            }
        }
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
    // A node that answers for another one would be counted twice in a majority.
    let target = headers.get(TARGET).and_then(|value| value.to_str().ok()?.parse().ok());
    if target.is_none_or(|target: u64| target != node.id) {
        let message = format!("this is node {}; correct the addresses of the nodes", node.id);
        return (StatusCode::MISDIRECTED_REQUEST, message).into_response();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_through_a_proxy_are_redirected_to_the_leader() {
        let leader = Some(BasicNode::new("127.0.0.1:7002"));
        for uri in ["/kv/a?local=true", "http://proxy:80/kv/a?local=true"] {
            let response = redirect(leader.clone(), &uri.parse().expect("a URI"));
            assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT);
            assert_eq!(response.headers()[LOCATION], "http://127.0.0.1:7002/kv/a?local=true");
        }
    }
}
