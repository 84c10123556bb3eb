//! Requests of other nodes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    middleware::Next,
    response::{IntoResponse as _, Response as HttpResponse},
    routing::post,
};
use openraft::raft::{AppendEntriesRequest, InstallSnapshotRequest, VoteRequest};
use serde::{Deserialize, Serialize};

use crate::{
    forged::Check,
    network::{CLUSTER, DIRECTORY, SENDER, TARGET},
    node::{Node, Shared, failed},
    storage::Storage,
};

pub(crate) fn router<S: Storage>() -> Router<Arc<Node<S>>> {
    Router::new()
        .route("/raft/append", post(append::<S>))
        .route("/raft/snapshot", post(snapshot::<S>))
        .route("/raft/received", post(received::<S>))
        .route("/raft/vote", post(vote::<S>))
        .route("/raft/removed", post(removed::<S>))
}

/// Refuses a request before its body is read, unless it is for this node.
pub(crate) async fn admit<S: Storage>(
    State(node): Shared<S>,
    request: Request,
    next: Next,
) -> HttpResponse {
    if let Ok(sender) = header(request.headers(), SENDER).parse()
        && node.network.blocked.contains(sender)
    {
        // As if the request were lost, but not until a timeout that outlasts the partition.
        node.network.blocked.end(sender).await;
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if let Err(reason) = check_envelope(&node, request.headers()) {
        return refused(reason);
    }
    let Ok(_place) = node.peer_requests.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    next.run(request).await
}

/// Returns a header, or an empty string if it is missing.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Sets the nodes to and from which this node drops requests.
pub(crate) async fn block<S: Storage>(
    State(node): Shared<S>,
    Json(nodes): Json<BTreeSet<u64>>,
) -> StatusCode {
    node.network.blocked.set(nodes);
    StatusCode::NO_CONTENT
}

/// Checks that a request is for this node and this directory, and comes from its cluster, if it
/// has one.
///
/// # Errors
///
/// The reason why the request is refused.
fn check_envelope<S: Storage>(node: &Node<S>, headers: &HeaderMap) -> Result<(), String> {
    let id = node.identity.id;
    let header = |name| header(headers, name);
    let (target, cluster) = (header(TARGET), header(CLUSTER));
    // A node that answers for another one would be counted twice in a majority.
    if target != id.to_string() {
        return Err(format!("this is node {id}, not {target}; correct the addresses of the nodes"));
    }
    if cluster.is_empty() {
        return Err(format!("the request to node {id} names no cluster"));
    }
    // It lacks the vote and the entries that the member has promised.
    if header(DIRECTORY) != &*node.identity.directory {
        return Err(format!(
            "{} is not the directory with which node {id} is a member of cluster {cluster}; \
             restart node {id} with that directory, or remove it from the cluster and add this one",
            node.dir.display()
        ));
    }
    node.identity.check_cluster(cluster).map_err(|error| error.to_string())
}

/// Returns status 421. Prints a reason why requests are refused, once.
fn refused(reason: String) -> HttpResponse {
    static LAST: Mutex<String> = Mutex::new(String::new());

    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if *last != reason {
        eprintln!("refused requests of another node: {reason}");
        last.clone_from(&reason);
    }
    (StatusCode::MISDIRECTED_REQUEST, reason).into_response()
}

/// Decodes a request of another node, calls `handle`, and encodes the response. A new node joins
/// the cluster of the first request.
async fn answer<S: Storage, R: Check + for<'a> Deserialize<'a>, T: Serialize>(
    node: &Node<S>,
    headers: &HeaderMap,
    body: &Bytes,
    handle: impl AsyncFnOnce(R) -> T,
) -> HttpResponse {
    let cluster = header(headers, CLUSTER);
    let request: R = match postcard::from_bytes(body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let term = node.raft.metrics().borrow().current_term;
    if let Err(reason) = request.check(term) {
        return (StatusCode::BAD_REQUEST, reason).into_response();
    }
    if let Err(error) = node.identity.join(&node.storage, cluster) {
        return refused(error.to_string());
    }
    match postcard::to_stdvec(&handle(request).await) {
        Ok(bytes) => bytes.into_response(),
        Err(error) => failed(&error),
    }
}

async fn append<S: Storage>(
    State(node): Shared<S>,
    headers: HeaderMap,
    body: Bytes,
) -> HttpResponse {
    answer(&node, &headers, &body, async |request: AppendEntriesRequest<_>| {
        node.raft.append_entries(request).await
    })
    .await
}

async fn snapshot<S: Storage>(
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
async fn received<S: Storage>(
    State(node): Shared<S>,
    headers: HeaderMap,
    body: Bytes,
) -> HttpResponse {
    let received = async |id: String| node.storage.received_bytes(&id).await;
    answer(&node, &headers, &body, received).await
}

async fn vote<S: Storage>(State(node): Shared<S>, headers: HeaderMap, body: Bytes) -> HttpResponse {
    answer(&node, &headers, &body, async |request: VoteRequest<_>| node.raft.vote(request).await)
        .await
}

/// Ends this node: its cluster has removed it, and it would begin elections for ever.
async fn removed<S: Storage>(
    State(node): Shared<S>,
    headers: HeaderMap,
    body: Bytes,
) -> HttpResponse {
    answer(&node, &headers, &body, async |()| node.removed.notify_one()).await
}
