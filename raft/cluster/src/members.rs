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
    ChangeMembers, RaftMetrics,
    error::{ChangeMembershipError, ClientWriteError, InitializeError, RaftError},
};
use tokio::time::timeout;

use crate::{
    Result, describe,
    identity::{Member, cluster_of, is_id},
    majority::check_majority,
    metrics::About,
    node::{
        COMMIT_PATIENCE, NO_ADDRESS, NO_MAJORITY, Node, SNAPSHOT_PATIENCE, Shared, failed,
        unknown_effect,
    },
    server::read_answer,
    storage::Storage,
};

/// Timeout of the first request to a new member, and of its answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the request that ends a removed node.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which the response to the removal of this node leaves it.
const LINGER: Duration = Duration::from_millis(300);

/// The longest status of a new member.
const STATUS_BYTES_MAX: usize = 1 << 20;

type ChangeError = RaftError<u64, ClientWriteError<u64, Member>>;

pub(crate) async fn initialize<S: Storage>(
    State(node): Shared<S>,
    Json(addresses): Json<BTreeMap<u64, String>>,
) -> HttpResponse {
    const MEMBER: &str = "this node is a member of a cluster already";
    match node.raft.is_initialized().await {
        Ok(false) => {}
        Ok(true) => return (StatusCode::CONFLICT, MEMBER).into_response(),
        Err(error) => return failed(&error),
    }
    let (mut members, mut clusters) = (BTreeMap::new(), BTreeMap::new());
    for (id, addr) in addresses {
        match probe(&node.network.http, id, &addr).await {
            Ok(About { directory, cluster, .. }) => {
                clusters.extend(cluster.map(|cluster| (id, cluster)));
                members.insert(id, Member { addr, directory });
            }
            Err(error) => return no_node(id, &addr, &*error),
        }
    }
    if !members.contains_key(&node.identity.id) {
        let message = format!("node {}, which this is, is not among the members", node.identity.id);
        return (StatusCode::BAD_REQUEST, message).into_response();
    }
    // Concurrent calls, and a call after a failed one, continue the same cluster.
    let cluster = match cluster_of(members.values()) {
        Ok(cluster) => cluster,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    if let Some((id, other)) = clusters.iter().find(|(_, other)| **other != cluster) {
        let message = format!("node {id} belongs to cluster {other} already");
        return (StatusCode::CONFLICT, message).into_response();
    }
    if let Err(error) = node.identity.join(&node.storage, &cluster) {
        return failed(&*error);
    }
    match node.raft.initialize(members).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {
            (StatusCode::CONFLICT, MEMBER).into_response()
        }
        Err(error) => failed(&error),
    }
}

pub(crate) async fn add<S: Storage>(
    State(node): Shared<S>,
    Path(id): Path<u64>,
    uri: Uri,
    addr: String,
) -> HttpResponse {
    if let Some(redirection) = node.redirection(&uri) {
        return redirection;
    }
    let members = node.raft.metrics().borrow().membership_config.clone();
    let known = members.membership().get_node(&id);
    // openraft takes a node without an entry for one that has caught up, if the log is short.
    let member = match (probe(&node.network.http, id, &addr).await, known) {
        (Ok(about), Some(known)) => check_member(&node, id, known, &addr, &about).await,
        (Ok(about), None) => {
            check_new(&node, id, &about).map(|()| Member { addr, directory: about.directory })
        }
        (Err(_), Some(known)) if known.addr != addr => Err(is_elsewhere(id, known)),
        (Err(error), _) => return no_node(id, &addr, &*error),
    };
    let member = match member {
        Ok(member) => member,
        Err(message) => return (StatusCode::CONFLICT, message).into_response(),
    };
    let mut voters: BTreeSet<_> = members.membership().voter_ids().collect();
    voters.insert(id);
    if let Err(message) = check_majority(&node, &voters).await {
        return (StatusCode::CONFLICT, message).into_response();
    }
    let added = node.raft.add_learner(id, member.clone(), false);
    let Ok(added) = timeout(COMMIT_PATIENCE, added).await else { return partial(NO_MAJORITY) };
    let learner = match added {
        // openraft keeps the member that a concurrent request has added.
        Ok(learner)
            if learner.membership.as_ref().and_then(|members| members.get_node(&id))
                != Some(&member) =>
        {
            let message = format!("another request has added node {id} at another address");
            return (StatusCode::CONFLICT, message).into_response();
        }
        Ok(learner) => Some(learner.log_id),
        Err(error) => return changed(Err::<(), _>(error)),
    };
    let caught_up = |metrics: &RaftMetrics<u64, Member>| match &metrics.replication {
        Some(nodes) => {
            id == node.identity.id || nodes.get(&id).is_some_and(|known| *known >= learner)
        }
        // Another node leads now. The next call reports it.
        None => true,
    };
    let wait = node.raft.wait(Some(SNAPSHOT_PATIENCE));
    if let Err(error) = wait.metrics(caught_up, "the node catches up").await {
        return partial(&describe(&error));
    }
    let voters = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
    let change = node.raft.change_membership(voters, false);
    let Ok(changed) = timeout(COMMIT_PATIENCE, change).await else { return partial(NO_MAJORITY) };
    match changed {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        // The node is a learner.
        Err(error) => partial(&reason(&error)),
    }
}

/// Checks that the node with the status `about`, at `addr`, is the known member `id`. Returns the
/// member as recorded: openraft keeps the address of a known node.
///
/// # Errors
///
/// The reason why it is not.
async fn check_member<S: Storage>(
    node: &Node<S>,
    id: u64,
    member: &Member,
    addr: &str,
    about: &About,
) -> Result<Member, String> {
    // Its own directory joins the cluster with its first request.
    let own = node.identity.cluster();
    if let Some(cluster) = &about.cluster
        && own.as_ref() != Some(cluster)
    {
        return Err(format!("{}; correct the address", is_foreign(id, cluster)));
    }
    if member.directory != about.directory {
        return Err(format!(
            "node {id} is a member with another directory, at {}; remove it first",
            member.addr
        ));
    }
    // The same address may have several names.
    if member.addr != addr {
        let recorded = probe(&node.network.http, id, &member.addr).await;
        if recorded.is_ok_and(|recorded| recorded.directory == member.directory) {
            return Ok(member.clone());
        }
        return Err(is_elsewhere(id, member));
    }
    Ok(member.clone())
}

fn is_elsewhere(id: u64, member: &Member) -> String {
    format!("node {id} is a member at {}; remove it first", member.addr)
}

/// Checks that the node `id` with the status `about` is new. An old directory contains another
/// history, or later votes, which would end the term of the leader.
///
/// # Errors
///
/// The reason why it is not.
fn check_new<S: Storage>(node: &Node<S>, id: u64, about: &About) -> Result<(), String> {
    let advice = format!("start node {id} with --new and an empty directory");
    match &about.cluster {
        None => Ok(()),
        Some(cluster) if node.identity.cluster().as_ref() == Some(cluster) => Err(format!(
            "node {id} was removed from this cluster, or its addition was lost, and its directory \
             is outdated; {advice}"
        )),
        Some(cluster) => Err(format!("{}; {advice}", is_foreign(id, cluster))),
    }
}

fn is_foreign(id: u64, cluster: &str) -> String {
    format!("the node {id} at this address belongs to another cluster, {cluster}")
}

pub(crate) async fn remove<S: Storage>(
    State(node): Shared<S>,
    Path(id): Path<u64>,
    uri: Uri,
) -> HttpResponse {
    if let Some(redirection) = node.redirection(&uri) {
        return redirection;
    }
    let members = node.raft.metrics().borrow().membership_config.clone();
    let Some(member) = members.membership().get_node(&id).cloned() else {
        return (StatusCode::NOT_FOUND, format!("node {id} is no member")).into_response();
    };
    let mut voters: BTreeSet<_> = members.membership().voter_ids().collect();
    let is_voter = voters.remove(&id);
    // openraft refuses to remove the last voter.
    if is_voter
        && !voters.is_empty()
        && let Err(message) = check_majority(&node, &voters).await
    {
        return (StatusCode::CONFLICT, message).into_response();
    }
    let ids = BTreeSet::from([id]);
    let change =
        if is_voter { ChangeMembers::RemoveVoters(ids) } else { ChangeMembers::RemoveNodes(ids) };
    let change = node.raft.change_membership(change, false);
    let Ok(result) = timeout(COMMIT_PATIENCE, change).await else { return partial(NO_MAJORITY) };
    if result.is_ok() {
        tokio::spawn(async move { end(&node, id, &member).await });
    }
    match result {
        // Between the two steps of the removal of a voter, another change may begin.
        Err(
            error @ RaftError::APIError(ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::InProgress(_),
            )),
        ) if is_voter => partial(&reason(&error)),
        result => changed(result),
    }
}

/// Ends a removed node, which would begin elections for ever. One that does not answer continues:
/// the others refuse their votes, because its log is outdated.
async fn end<S: Storage>(node: &Node<S>, id: u64, member: &Member) {
    if id == node.identity.id {
        tokio::time::sleep(LINGER).await;
        node.removed.notify_one();
    } else {
        let request = node.network.request("removed", id, member);
        let _ = request.timeout(END_TIMEOUT).send().await;
    }
}

/// Answers after the first change of the members.
fn changed<T>(result: Result<T, ChangeError>) -> HttpResponse {
    match result {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(error @ RaftError::APIError(ClientWriteError::ChangeMembershipError(_))) => {
            (StatusCode::CONFLICT, reason(&error)).into_response()
        }
        // The entry may be in the log of another node, which leads now.
        Err(error) => partial(&reason(&error)),
    }
}

/// Returns status 504 for a change of the members that may be partial. Only a repetition completes
/// it: a removal whose two steps had an effect answers 404 then.
fn partial(reason: &str) -> HttpResponse {
    let advice = "repeat the request until it answers 204, or 404 for a removed node";
    unknown_effect(format!("{reason}; {advice}"))
}

/// Returns the reason why a write has failed.
pub(crate) fn reason(error: &ChangeError) -> String {
    let error = match error {
        RaftError::APIError(error) => error,
        RaftError::Fatal(error) => return describe(error),
    };
    match error {
        ClientWriteError::ForwardToLeader(_) => {
            "this node has stopped leading before the request was committed; it may take effect"
                .to_owned()
        }
        ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_)) => {
            "another change of the members is in progress; try again".to_owned()
        }
        ClientWriteError::ChangeMembershipError(ChangeMembershipError::EmptyMembership(_)) => {
            "the last member cannot be removed".to_owned()
        }
        ClientWriteError::ChangeMembershipError(ChangeMembershipError::LearnerNotFound(_)) => {
            "another request has removed the node".to_owned()
        }
    }
}

/// Returns status 400 for a node that does not answer as expected.
fn no_node(id: u64, addr: &str, error: &(dyn std::error::Error + 'static)) -> HttpResponse {
    let message = format!(
        "no node {id} answers at {addr:?}; start it there, or correct the address: {}",
        describe(error)
    );
    (StatusCode::BAD_REQUEST, message).into_response()
}

/// Checks that `address` is a host and a port, and nothing else.
fn check_address(address: &str) -> Result<()> {
    let authority: Authority = address.parse().map_err(|_| NO_ADDRESS)?;
    let has_host = !authority.host().is_empty() && !address.contains('@');
    if authority.as_str() == address && has_host && authority.port_u16() > Some(0) {
        return Ok(());
    }
    Err(NO_ADDRESS.into())
}

/// Checks that `address` is that of the node `id`, within [`PROBE_TIMEOUT`]. Returns its status.
pub(crate) async fn probe(http: &reqwest::Client, id: u64, address: &str) -> Result<About> {
    check_address(address)?;
    // Bounds the time until the last byte of the answer, redirections included.
    let request = http.get(format!("http://{address}/status")).timeout(PROBE_TIMEOUT);
    let about = read_status(request).await?;
    if about.id != id {
        return Err(format!("it is node {}", about.id).into());
    }
    // Requests to the node have the id in a header.
    if !is_id(&about.directory) {
        return Err("the id of its directory is not 16 hexadecimal digits".into());
    }
    Ok(about)
}

/// Sends `request`, and decodes the answer.
async fn read_status(request: reqwest::RequestBuilder) -> Result<About> {
    let response = request.send().await?.error_for_status()?;
    let status = read_answer(response, STATUS_BYTES_MAX).await?;
    let status =
        status.ok_or_else(|| format!("its status has more than {STATUS_BYTES_MAX} bytes"))?;
    Ok(serde_json::from_slice(&status)?)
}
