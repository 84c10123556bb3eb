//! Requests of clients: reads, writes and snapshots.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::{Path, Query, State},
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response as HttpResponse},
};
use openraft::{
    RaftMetrics,
    error::{CheckIsLeaderError, RaftError},
    metrics::WaitError,
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::{
    describe,
    identity::Member,
    map::Request,
    members::reason,
    node::{COMMIT_PATIENCE, NO_MAJORITY, Node, SNAPSHOT_PATIENCE, Shared, failed, unknown_effect},
    storage::Storage,
};

/// Time for which a snapshot that is being built may delay the next one, before that is requested
/// again.
const SNAPSHOT_RETRY: Duration = Duration::from_millis(300);

impl<S: Storage> Node<S> {
    /// Replicates `request`.
    async fn replicate(&self, request: Request, uri: &Uri) -> HttpResponse {
        if let Some(redirection) = self.redirection(uri) {
            return redirection;
        }
        let write = self.raft.client_write(request);
        let Ok(written) = timeout(COMMIT_PATIENCE, write).await else {
            return unknown_effect(NO_MAJORITY.to_owned());
        };
        match written {
            Ok(written) if written.data.stored => Json(written.data).into_response(),
            Ok(written) => (StatusCode::CONFLICT, Json(written.data)).into_response(),
            // The entry may be in the log of another node, which may lead next.
            Err(error) => unknown_effect(reason(&error)),
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct ReadOptions {
    #[serde(default)]
    local: bool,
}

pub(crate) async fn read<S: Storage>(
    State(node): Shared<S>,
    Path(key): Path<String>,
    Query(options): Query<ReadOptions>,
    uri: Uri,
) -> HttpResponse {
    if !options.local {
        if let Some(redirection) = node.redirection(&uri) {
            return redirection;
        }
        let Ok(place) = node.reads.acquire().await else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        if !node.stale_reads
            && let Err(error) = node.raft.ensure_linearizable().await
        {
            let reason = match error {
                RaftError::APIError(CheckIsLeaderError::ForwardToLeader(leader)) => {
                    return node.redirect(leader.leader_node, &uri);
                }
                RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_)) => {
                    "no majority of the members has confirmed the leader; try again".to_owned()
                }
                RaftError::Fatal(error) => describe(&error),
            };
            return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
        }
        drop(place);
    }
    match node.storage.get(&key).await {
        Ok(Some(value)) => value.into_response(),
        Ok(None) => (StatusCode::NOT_FOUND, "no such key").into_response(),
        Err(error) => failed(&*error),
    }
}

pub(crate) async fn write<S: Storage>(
    State(node): Shared<S>,
    Path(key): Path<String>,
    uri: Uri,
    value: String,
) -> HttpResponse {
    node.replicate(Request::Put { key, value }, &uri).await
}

/// The body of a compare-and-set.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompareAndSet {
    pub(crate) expected: Option<String>,
    pub(crate) value: String,
}

pub(crate) async fn compare_and_set<S: Storage>(
    State(node): Shared<S>,
    Path(key): Path<String>,
    uri: Uri,
    Json(CompareAndSet { expected, value }): Json<CompareAndSet>,
) -> HttpResponse {
    node.replicate(Request::CompareAndSet { key, expected, value }, &uri).await
}

pub(crate) async fn build_snapshot<S: Storage>(State(node): Shared<S>) -> HttpResponse {
    let Some(applied) = node.raft.metrics().borrow().last_applied else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let built = async {
        let contains = |metrics: &RaftMetrics<u64, Member>| metrics.snapshot >= Some(applied);
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
        let purged = |metrics: &RaftMetrics<u64, Member>| metrics.purged >= Some(applied);
        node.raft.wait(Some(SNAPSHOT_PATIENCE)).metrics(purged, "the log is purged").await?;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    let Err(error) = built.await else { return StatusCode::NO_CONTENT.into_response() };
    // A failure stops openraft, and then a wait reports only that.
    match &node.raft.metrics().borrow().running_state {
        Ok(()) => failed(&*error),
        Err(stopped) => failed(stopped),
    }
}
