//! Requests that change the members of the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use axum::{
    Json,
    extract::{Path, State},
    http::{StatusCode, Uri, uri::Authority},
    response::{IntoResponse, Response as HttpResponse},
};
use openraft::{
    BasicNode, ChangeMembers, RaftMetrics,
    error::{ChangeMembershipError, ClientWriteError, InitializeError, RaftError},
};
use tokio::time::timeout;

use crate::{
    Result, describe,
    node::{COMMIT_PATIENCE, SNAPSHOT_PATIENCE, Shared, failed, no_majority, unknown_effect},
    storage::Storage,
};

/// Timeout of the first request to a new member, and of its answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest status of a new member.
const STATUS_BYTES_MAX: usize = 1 << 20;

pub(crate) async fn initialize<S: Storage>(
    State(node): Shared<S>,
    Json(members): Json<BTreeMap<u64, String>>,
) -> HttpResponse {
    if let Err(error) = check_addresses(&members) {
        return (StatusCode::BAD_REQUEST, error.to_string()).into_response();
    }
    let members: BTreeMap<_, _> =
        members.into_iter().map(|(id, address)| (id, BasicNode::new(address))).collect();
    match node.raft.initialize(members).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(RaftError::APIError(InitializeError::NotAllowed(error))) => {
            (StatusCode::CONFLICT, error.to_string()).into_response()
        }
        Err(RaftError::APIError(error)) => {
            (StatusCode::BAD_REQUEST, error.to_string()).into_response()
        }
        Err(error) => failed(&error),
    }
}

pub(crate) async fn add_member<S: Storage>(
    State(node): Shared<S>,
    Path(id): Path<u64>,
    uri: Uri,
    address: String,
) -> HttpResponse {
    if let Some(redirection) = node.redirection(&uri) {
        return redirection;
    }
    let metrics = node.raft.metrics().borrow().clone();
    // openraft keeps the address of a known node.
    if let Some(known) = metrics.membership_config.membership().get_node(&id)
        && known.addr != address
    {
        let message = format!("node {id} is a member at {}; remove it first", known.addr);
        return (StatusCode::CONFLICT, message).into_response();
    }
    // openraft takes a node without an entry for one that has caught up, if the log is short.
    if let Err(error) = probe(&node.http, id, &address).await {
        let error = format!("no node {id} at {address}: {}", describe(&*error));
        return (StatusCode::BAD_REQUEST, error).into_response();
    }
    let added = node.raft.add_learner(id, BasicNode::new(address), false);
    let Ok(added) = timeout(COMMIT_PATIENCE, added).await else { return no_majority() };
    let learner = match added {
        Ok(learner) => Some(learner.log_id),
        Err(error) => return changed(Err::<(), _>(error)),
    };
    let caught_up = |metrics: &RaftMetrics<u64, BasicNode>| match &metrics.replication {
        Some(nodes) => id == node.id || nodes.get(&id).is_some_and(|known| *known >= learner),
        // Another node leads now. The next call reports it.
        None => true,
    };
    let wait = node.raft.wait(Some(SNAPSHOT_PATIENCE));
    if let Err(error) = wait.metrics(caught_up, "the node catches up").await {
        return unknown_effect(&error);
    }
    let voters = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
    let change = node.raft.change_membership(voters, false);
    let Ok(changed) = timeout(COMMIT_PATIENCE, change).await else { return no_majority() };
    match changed {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        // The node is a learner.
        Err(error) => unknown_effect(&error),
    }
}

pub(crate) async fn remove_member<S: Storage>(
    State(node): Shared<S>,
    Path(id): Path<u64>,
    uri: Uri,
) -> HttpResponse {
    if let Some(redirection) = node.redirection(&uri) {
        return redirection;
    }
    let members = node.raft.metrics().borrow().membership_config.clone();
    let is_voter = members.membership().voter_ids().any(|voter| voter == id);
    let ids = BTreeSet::from([id]);
    let change =
        if is_voter { ChangeMembers::RemoveVoters(ids) } else { ChangeMembers::RemoveNodes(ids) };
    let change = node.raft.change_membership(change, false);
    let Ok(result) = timeout(COMMIT_PATIENCE, change).await else { return no_majority() };
    match result {
        // Between the two steps of the removal of a voter, another change may begin.
        Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(
            error @ ChangeMembershipError::InProgress(_),
        ))) if is_voter => unknown_effect(&error),
        result => changed(result),
    }
}

/// Answers after the first change of the members.
fn changed<T>(result: Result<T, RaftError<u64, ClientWriteError<u64, BasicNode>>>) -> HttpResponse {
    match result {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error))) => {
            (StatusCode::CONFLICT, error.to_string()).into_response()
        }
        // The entry may be in the log of another node, which leads now.
        Err(error) => unknown_effect(&error),
    }
}

/// Checks the addresses of the members of a new cluster, which need not answer yet.
///
/// # Errors
///
/// If one is no address, or two are equal: a node that answers under two ids is counted twice in a
/// majority.
fn check_addresses(members: &BTreeMap<u64, String>) -> Result<()> {
    let mut ids = BTreeMap::new();
    for (id, address) in members {
        check_address(address).map_err(|error| format!("node {id} at {address:?}: {error}"))?;
        if let Some(other) = ids.insert(address, id) {
            return Err(format!("nodes {other} and {id} have the same address {address}").into());
        }
    }
    Ok(())
}

/// Checks that `address` is a host and a port, and nothing else.
fn check_address(address: &str) -> Result<()> {
    const EXPECTED: &str = "not an address such as 127.0.0.1:7001";
    let authority: Authority = address.parse().map_err(|_| EXPECTED)?;
    let has_host = !authority.host().is_empty() && !address.contains('@');
    if authority.as_str() == address && has_host && authority.port_u16() > Some(0) {
        return Ok(());
    }
    Err(EXPECTED.into())
}

/// Checks that `address` is that of the node `id`, within [`PROBE_TIMEOUT`].
async fn probe(http: &reqwest::Client, id: u64, address: &str) -> Result<()> {
    check_address(address)?;
    // Bounds the time until the last byte of the answer, redirections included.
    let request = http.get(format!("http://{address}/status")).timeout(PROBE_TIMEOUT);
    let status = read_status(request).await?;
    match status["id"].as_u64() {
        Some(found) if found == id => Ok(()),
        found => Err(format!("its id is {found:?}").into()),
    }
}

/// Sends `request`, and decodes the answer. Stops reading one that is too long.
async fn read_status(request: reqwest::RequestBuilder) -> Result<serde_json::Value> {
    let mut response = request.send().await?.error_for_status()?;
    let mut status = Vec::new();
    while let Some(piece) = response.chunk().await? {
        status.extend_from_slice(&piece);
        if status.len() > STATUS_BYTES_MAX {
            return Err(format!("its status has more than {STATUS_BYTES_MAX} bytes").into());
        }
    }
    Ok(serde_json::from_slice(&status)?)
}
