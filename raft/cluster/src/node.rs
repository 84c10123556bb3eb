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
//! | `GET /status`          | openraft's metrics and the process id as JSON                      |
//! | `GET /metrics`         | metrics as text for Prometheus                                    |
//!
//! A node that does not lead redirects requests to the leader with status 307. Status 504 means
//! that the effect of the request is unknown, 503 and 400 to 499 that it had none. After 504 a
//! change of the members may be partial: send it again. A value has at most 1 MiB. A node ends if
//! openraft stops, for example because its store failed.

use std::{
    collections::BTreeSet,
    error::Error,
    fs::File,
    future::pending,
    io::Read as _,
    net::SocketAddr,
    path::PathBuf,
    process,
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
    serve::ListenerExt as _,
};
use clap::value_parser;
use openraft::{
    BasicNode, Config, Raft, RaftMetrics, SnapshotPolicy,
    error::{CheckIsLeaderError, RaftError},
    metrics::WaitError,
    raft::{AppendEntriesRequest, InstallSnapshotRequest},
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::{
    Result, describe,
    map::Request,
    members::{add_member, initialize, remove_member},
    network::{Blocked, MapTypes, Network, SENDER, TARGET},
    storage::Storage,
};

/// The longest body of a request of a client. Entries of two such requests and 4 MiB of others fit
/// into a request between nodes: one that does not fit would end replication.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// The longest body of a request between nodes: entries or a part of a snapshot, and its envelope.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Default and maximum length of a part of a snapshot, in bytes. It fits into a request between
/// nodes.
const PART_BYTES_MAX: u64 = 4 << 20;

/// Options of a node, and arguments of a command that runs one.
#[derive(Debug, Clone, clap::Args)]
pub struct Settings {
    /// Id of the node in the cluster
    #[arg(long)]
    pub id: u64,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:7001")]
    pub listen: SocketAddr,
    /// Directory of the store
    #[arg(long)]
    pub dir: PathBuf,
    /// Entries after which a snapshot is built, and the log is purged
    #[arg(long, default_value_t = 10_000)]
    pub snapshot_entries: u64,
    /// Bytes of a part in which a snapshot is sent
    #[arg(long, default_value_t = PART_BYTES_MAX)]
    #[arg(value_parser = value_parser!(u64).range(1..=PART_BYTES_MAX))]
    pub snapshot_part_bytes: u64,
    /// Milliseconds without a leader after which the node starts an election, or up to twice as
    /// many. At least 101, one more than the interval of heartbeats
    #[arg(long, default_value_t = 400, overrides_with = "election_timeout")]
    pub election_timeout: u64,
    /// Stop at the end of standard input, so that the node does not outlive its parent
    #[arg(long)]
    pub child: bool,
    /// Accept requests that partition the cluster
    #[arg(long, hide = true)]
    pub faults: bool,
    /// A bug that a test plants: `stale-read`, `lost-vote`, `lost-entry` or `stopped-node`
    #[arg(long, hide = true)]
    pub planted_bug: Option<String>,
}

/// Time in which a majority must accept an entry. A leader of openraft 0.9 without a majority waits
/// for ever.
pub(crate) const COMMIT_PATIENCE: Duration = Duration::from_secs(10);

/// Timeout of building a snapshot, of a purge, and of a member that catches up.
pub(crate) const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(600);

/// Time for which a snapshot that is being built may delay the next one, before that is requested
/// again.
const SNAPSHOT_RETRY: Duration = Duration::from_millis(300);

pub(crate) struct Node<S: Storage> {
    pub(crate) id: u64,
    pub(crate) http: reqwest::Client,
    pub(crate) raft: Raft<S::Types>,
    storage: S,
    blocked: Blocked,
    stale_reads: bool,
}

pub(crate) type Shared<S> = State<Arc<Node<S>>>;

/// Runs a node with the store `S` until the process ends.
///
/// # Errors
///
/// If the store cannot be opened or belongs to another node, if the address is in use, and when
/// openraft stops.
pub async fn serve<S: Storage>(settings: Settings) -> Result<()> {
    if settings.child {
        thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            process::exit(0);
        });
    }
    let (storage, log, state_machine) = S::open(&settings)?;
    let config = Config {
        cluster_name: "sieve".to_owned(),
        heartbeat_interval: 100,
        election_timeout_min: settings.election_timeout,
        election_timeout_max: settings.election_timeout.saturating_mul(2),
        // The last part of a snapshot returns when it is installed.
        install_snapshot_timeout: 120_000,
        snapshot_max_chunk_size: settings.snapshot_part_bytes,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.snapshot_entries),
        max_in_snapshot_log_to_keep: settings.snapshot_entries / 10,
        ..Config::default()
    };
    let blocked = Blocked::default();
    let http = reqwest::Client::builder().no_proxy().build()?;
    let network = Network { id: settings.id, http: http.clone(), blocked: blocked.clone() };
    let config = Arc::new(config.validate()?);
    let raft = Raft::new(settings.id, config, network, log, state_machine).await?;
    let stale_reads = settings.planted_bug.as_deref() == Some("stale-read");
    let stopped = stopped(raft.clone());
    let planted_stop = planted_stop(raft.clone(), settings.clone());
    let node = Node { id: settings.id, http, raft, storage, blocked, stale_reads };
    let listener = tokio::net::TcpListener::bind(settings.listen).await;
    let listener = listener.map_err(|error| {
        format!("cannot listen on {}: {error}; use another address", settings.listen)
    })?;
    if !settings.child {
        eprintln!("node {} serves at {}", settings.id, listener.local_addr()?);
    }
    // A response in two parts would wait for a delayed acknowledgement of the first one.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    tokio::select! {
        served = axum::serve(listener, router(Arc::new(node), settings.faults)) => Ok(served?),
        reason = stopped => Err(format!("openraft stopped: {reason}").into()),
        () = planted_stop => Err("a planted bug has stopped the node".into()),
    }
}

/// Waits until openraft stops, and returns why.
async fn stopped<C: MapTypes>(raft: Raft<C>) -> String {
    let failed = |metrics: &RaftMetrics<u64, BasicNode>| metrics.running_state.is_err();
    match raft.wait(None).metrics(failed, "openraft stops").await {
        Ok(metrics) => metrics.running_state.err().map_or_else(String::new, |e| describe(&e)),
        Err(WaitError::ShuttingDown | WaitError::Timeout(..)) => "it has ended".to_owned(),
    }
}

/// Returns if the planted bug `stopped-node` stops this node: once, so that a restart hides it.
async fn planted_stop<C: MapTypes>(raft: Raft<C>, settings: Settings) {
    if settings.planted_bug.as_deref() == Some("stopped-node") && settings.id == 1 {
        let applied = raft.wait(None).applied_index_at_least(Some(20), "entries for the bug").await;
        if applied.is_ok() && File::create_new(settings.dir.join("stopped")).is_ok() {
            return;
        }
    }
    pending::<()>().await;
}

fn router<S: Storage>(node: Arc<Node<S>>, faults: bool) -> Router {
    let router = Router::new()
        .route("/kv/{key}", get(read::<S>).put(write::<S>))
        .route("/cas/{key}", post(compare_and_set::<S>))
        .route("/members", post(initialize::<S>))
        .route("/members/{id}", put(add_member::<S>).delete(remove_member::<S>))
        .route("/snapshot", post(build_snapshot::<S>))
        .route("/status", get(status::<S>))
        .route("/metrics", get(metrics::<S>));
    let router = if faults { router.route("/faults/blocked", put(block::<S>)) } else { router };
    let peers = Router::new()
        .route("/raft/append", post(raft_append::<S>))
        .route("/raft/snapshot", post(raft_snapshot::<S>))
        .route("/raft/received", post(raft_received::<S>))
        .route("/raft/vote", post(raft_vote::<S>))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    router.layer(DefaultBodyLimit::max(VALUE_BYTES_MAX)).merge(peers).with_state(node)
}

impl<S: Storage> Node<S> {
    /// Returns a redirection to the leader, or `None` if this node leads, by its metrics.
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
        let write = self.raft.client_write(request);
        let Ok(written) = timeout(COMMIT_PATIENCE, write).await else { return no_majority() };
        match written {
            Ok(written) if written.data.stored => Json(written.data).into_response(),
            Ok(written) => (StatusCode::CONFLICT, Json(written.data)).into_response(),
            // The entry may be in the log of another node, which may lead next.
            Err(error) => unknown_effect(&error),
        }
    }
}

/// Returns status 307 to the leader `node`, or 503 if there is none.
fn redirect(node: Option<BasicNode>, uri: &Uri) -> HttpResponse {
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

/// Returns status 504 after [`COMMIT_PATIENCE`].
pub(crate) fn no_majority() -> HttpResponse {
    let reason = "no majority of the nodes has answered; the request may take effect later";
    (StatusCode::GATEWAY_TIMEOUT, reason).into_response()
}

pub(crate) fn unknown_effect(error: &(dyn Error + 'static)) -> HttpResponse {
    (StatusCode::GATEWAY_TIMEOUT, describe(error)).into_response()
}

pub(crate) fn failed(error: &(dyn Error + 'static)) -> HttpResponse {
    (StatusCode::INTERNAL_SERVER_ERROR, describe(error)).into_response()
}

#[derive(Deserialize)]
struct ReadOptions {
    #[serde(default)]
    local: bool,
}

async fn read<S: Storage>(
    State(node): Shared<S>,
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
                    return (StatusCode::SERVICE_UNAVAILABLE, describe(&error)).into_response();
                }
            }
        }
    }
    match node.storage.get(&key).await {
        Ok(Some(value)) => value.into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => failed(&*error),
    }
}

async fn write<S: Storage>(
    State(node): Shared<S>,
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

async fn compare_and_set<S: Storage>(
    State(node): Shared<S>,
    Path(key): Path<String>,
    uri: Uri,
    Json(CompareAndSet { expected, value }): Json<CompareAndSet>,
) -> HttpResponse {
    node.write(Request::CompareAndSet { key, expected, value }, &uri).await
}

async fn build_snapshot<S: Storage>(State(node): Shared<S>) -> HttpResponse {
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
        Err(error) => failed(&*error),
    }
}

/// The body of a status.
#[derive(Serialize)]
struct Status {
    #[serde(flatten)]
    metrics: RaftMetrics<u64, BasicNode>,
    process_id: u32,
}

async fn status<S: Storage>(State(node): Shared<S>) -> HttpResponse {
    let (metrics, process_id) = (node.raft.metrics().borrow().clone(), process::id());
    Json(Status { metrics, process_id }).into_response()
}

async fn metrics<S: Storage>(State(node): Shared<S>) -> String {
    let raft = node.raft.metrics().borrow().clone();
    let index = |id: Option<openraft::LogId<u64>>| id.map_or(0, |id| id.index);
    let mut figures = vec![
        ("sieve_raft_term", "Current term", raft.current_term),
        ("sieve_raft_is_leader", "1 if this node leads", u64::from(raft.state.is_leader())),
        ("sieve_raft_last_log_index", "Last entry", raft.last_log_index.unwrap_or(0)),
        ("sieve_raft_applied_index", "Last applied entry", index(raft.last_applied)),
        ("sieve_raft_snapshot_index", "Last entry of the snapshot", index(raft.snapshot)),
        ("sieve_raft_purged_index", "Last purged entry", index(raft.purged)),
    ];
    figures.extend(node.storage.figures());
    let lines = figures.iter().map(|(name, help, value)| {
        format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n")
    });
    lines.collect()
}

async fn block<S: Storage>(State(node): Shared<S>, Json(nodes): Json<BTreeSet<u64>>) -> StatusCode {
    node.blocked.set(nodes);
    StatusCode::NO_CONTENT
}

/// Decodes a request of another node, calls `handle`, and encodes the response.
async fn answer<S: Storage, R: for<'a> Deserialize<'a>, T: Serialize>(
    node: &Node<S>,
    headers: &HeaderMap,
    body: &Bytes,
    handle: impl AsyncFnOnce(R) -> T,
) -> HttpResponse {
    let sender = headers.get(SENDER).and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(sender) = sender
        && node.blocked.contains(sender)
    {
        // As if the request were lost, but not until a timeout that outlasts the partition.
        node.blocked.end(sender).await;
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
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

async fn raft_append<S: Storage>(
    State(node): Shared<S>,
    headers: HeaderMap,
    body: Bytes,
) -> HttpResponse {
    answer(&node, &headers, &body, async |request| node.raft.append_entries(request).await).await
}

async fn raft_snapshot<S: Storage>(
    State(node): Shared<S>,
    headers: HeaderMap,
    body: Bytes,
) -> HttpResponse {
    let install = async |request: InstallSnapshotRequest<_>| {
        // For openraft 0.9 a part is no heartbeat: this node would begin an election, and end the
        // transfer, whenever its parts delay the heartbeats.
        let (vote, prev_log_id, entries, leader_commit) = (request.vote, None, Vec::new(), None);
        let heartbeat = AppendEntriesRequest { vote, prev_log_id, entries, leader_commit };
        // If it fails, the installation fails, too.
        let _ = node.raft.append_entries(heartbeat).await;
        node.storage.install_snapshot(&node.raft, request).await
    };
    answer(&node, &headers, &body, install).await
}

/// Returns the number of bytes received of a snapshot.
async fn raft_received<S: Storage>(
    State(node): Shared<S>,
    headers: HeaderMap,
    body: Bytes,
) -> HttpResponse {
    let received = async |id: String| node.storage.received_bytes(&id).await;
    answer(&node, &headers, &body, received).await
}

async fn raft_vote<S: Storage>(
    State(node): Shared<S>,
    headers: HeaderMap,
    body: Bytes,
) -> HttpResponse {
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
