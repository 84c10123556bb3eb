//! Requests of other nodes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
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
    identity::is_id,
    network::{CLUSTER, DIRECTORY, SENDER, TARGET},
    node::{Node, Shared, failed},
    report,
    storage::Storage,
};

/// Longest part of a header that is read and printed, in bytes.
const HEADER_MAX: usize = 64;

/// Time in which at most one reason of refusals is printed.
const PRINT_INTERVAL: Duration = Duration::from_secs(1);

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

/// Returns the begin of a header, or an empty string if it is missing. No id is longer.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.get(..HEADER_MAX).unwrap_or(value)
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
    if target.is_empty() {
        return Err(format!("the request to node {id} names no node"));
    }
    // A node that answers for another one would be counted twice in a majority.
    if target != id.to_string() {
        return Err(format!("this is node {id}, not {target}; correct the addresses of the nodes"));
    }
    if !is_id(cluster) {
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

/// Returns status 421. Prints the reason.
fn refused(reason: String) -> HttpResponse {
    static LAST: Mutex<Option<Printed>> = Mutex::new(None);

    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let next = Printed { reason: reason.clone(), at: Instant::now() };
    if next.is_to_print(last.as_ref()) {
        report(format_args!("refused requests of another node: {reason}"));
        *last = Some(next);
    }
    (StatusCode::MISDIRECTED_REQUEST, reason).into_response()
}

/// A reason of a refusal that is printed.
struct Printed {
    reason: String,
    at: Instant,
}

impl Printed {
    /// Returns `true` if the reason is not that of `last`, which was printed before
    /// [`PRINT_INTERVAL`].
    fn is_to_print(&self, last: Option<&Self>) -> bool {
        last.is_none_or(|last| self.reason != last.reason && self.at - last.at >= PRINT_INTERVAL)
    }
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

#[cfg(test)]
mod tests {
    use axum::http::header::CONNECTION;

    use super::*;

    #[test]
    fn a_new_reason_is_printed_after_an_interval() {
        let begin = Instant::now();
        let printed =
            |reason: &str, after| Printed { reason: reason.to_owned(), at: begin + after };
        let first = printed("a", Duration::ZERO);
        assert!(first.is_to_print(None));
        for (reason, after, expected) in [
            ("b", PRINT_INTERVAL / 2, false),
            ("a", PRINT_INTERVAL, false),
            ("b", PRINT_INTERVAL, true),
        ] {
            assert_eq!(printed(reason, after).is_to_print(Some(&first)), expected, "{reason}");
        }
    }

    #[test]
    fn the_begin_of_a_header_is_read() {
        let value = "a".repeat(HEADER_MAX + 1);
        let headers = HeaderMap::from_iter([(CONNECTION, value.parse().expect("a header"))]);
        assert_eq!(header(&headers, "connection").len(), HEADER_MAX);
        assert_eq!(header(&headers, TARGET), "");
    }
}
