//! The state of a node, as JSON and for Prometheus.

use std::{fmt::Write as _, process};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response as HttpResponse},
};
use openraft::{LogId, RaftMetrics};
use serde::{Deserialize, Serialize};

use crate::{
    identity::Member,
    node::Shared,
    storage::{Figure, Storage},
};

/// What a node reports of itself, apart from openraft's metrics.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) id: u64,
    /// Id of its directory.
    pub(crate) directory: String,
    /// Id of its cluster, or `None` if it is new.
    pub(crate) cluster: Option<String>,
    /// Path of its directory.
    #[serde(default)]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) process_id: u32,
}

/// The body of a status.
#[derive(Serialize)]
struct Status {
    #[serde(flatten)]
    metrics: RaftMetrics<u64, Member>,
    directory: String,
    cluster: Option<String>,
    path: String,
    process_id: u32,
}

pub(crate) async fn status<S: Storage>(State(node): Shared<S>) -> HttpResponse {
    let (metrics, process_id) = (node.raft.metrics().borrow().clone(), process::id());
    let (directory, cluster) = (node.identity.directory.to_string(), node.identity.cluster());
    let path = node.dir.display().to_string();
    Json(Status { metrics, directory, cluster, path, process_id }).into_response()
}

pub(crate) async fn metrics<S: Storage>(State(node): Shared<S>) -> String {
    text(&node.raft.metrics().borrow(), &node.storage.figures())
}

/// Returns metrics in the text format of Prometheus.
fn text(raft: &RaftMetrics<u64, Member>, store: &[Figure]) -> String {
    let index = |id: Option<LogId<u64>>| id.map_or(0, |id| id.index);
    let last = raft.last_log_index.unwrap_or(0);
    let mut text = String::new();
    let mut add = |name: &str, help: &str, samples: &[(String, u64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let single = |value| [(String::new(), value)];

    let figures = [
        ("sieve_raft_term", "Current term", raft.current_term),
        ("sieve_raft_is_leader", "1 if this node leads", u64::from(raft.state.is_leader())),
        ("sieve_raft_last_log_index", "Last entry", last),
        ("sieve_raft_applied_index", "Last applied entry", index(raft.last_applied)),
        ("sieve_raft_snapshot_index", "Last entry of the snapshot", index(raft.snapshot)),
        ("sieve_raft_purged_index", "Last purged entry", index(raft.purged)),
    ];
    for (name, help, value) in figures.iter().chain(store) {
        add(name, help, &single(*value));
    }
    let leader: Vec<_> = raft.current_leader.map(|id| (String::new(), id)).into_iter().collect();
    add("sieve_raft_leader_id", "Id of the leader, absent if there is none", &leader);

    // openraft reports it with each heartbeat, also if no quorum acknowledges it.
    let quorum: Vec<_> =
        raft.millis_since_quorum_ack.map(|age| (String::new(), age)).into_iter().collect();
    let help = "Milliseconds since a quorum acknowledged the leader, on the leader only";
    add("sieve_raft_quorum_ack_age_milliseconds", help, &quorum);

    let membership = raft.membership_config.membership();
    let is_joint = membership.get_joint_config().len() > 1;
    let help = "1 if a change of the members is incomplete";
    add("sieve_raft_membership_is_joint", help, &single(u64::from(is_joint)));
    let voters: Vec<_> = membership.voter_ids().collect();
    let members = membership.nodes().map(|(id, Member { addr, .. })| {
        let role = if voters.contains(id) { "voter" } else { "learner" };
        (format!("{{node=\"{id}\",address=\"{addr}\",role=\"{role}\"}}"), 1)
    });
    let members: Vec<_> = members.collect();
    add("sieve_raft_member", "1 for each member", &members);

    let followers = raft.replication.iter().flatten().filter(|(id, _)| **id != raft.id);
    let lags: Vec<_> = followers
        .map(|(id, matched)| (format!("{{node=\"{id}\"}}"), last.saturating_sub(index(*matched))))
        .collect();
    let help = "Entries of the leader that the node is not known to have, on the leader only";
    add("sieve_raft_follower_lag", help, &lags);
    text
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::Arc,
    };

    use openraft::{CommittedLeaderId, Membership, ServerState, StoredMembership};

    use super::*;

    #[test]
    fn metrics_have_leader_term_members_and_lags() {
        let log_id = |index| Some(LogId::new(CommittedLeaderId::new(3, 1), index));
        let member =
            |port: u16| Member { addr: format!("127.0.0.1:{port}"), directory: String::new() };
        let nodes = BTreeMap::from([(1, member(7001)), (2, member(7002)), (3, member(7003))]);
        let membership = Membership::new(vec![BTreeSet::from([1, 2])], nodes);
        let mut raft = RaftMetrics::new_initial(1);
        raft.current_term = 3;
        raft.state = ServerState::Leader;
        raft.current_leader = Some(1);
        raft.last_log_index = Some(20);
        raft.millis_since_quorum_ack = Some(90);
        raft.membership_config = Arc::new(StoredMembership::new(log_id(5), membership.clone()));
        raft.replication = Some(BTreeMap::from([(1, log_id(20)), (2, log_id(15)), (3, None)]));
        let leading = text(&raft, &[("sieve_memtable_bytes", "Bytes of memtables", 7)]);
        for line in [
            "# TYPE sieve_raft_term gauge",
            "sieve_raft_term 3",
            "sieve_raft_leader_id 1",
            "sieve_memtable_bytes 7",
            "sieve_raft_member{node=\"2\",address=\"127.0.0.1:7002\",role=\"voter\"} 1",
            "sieve_raft_member{node=\"3\",address=\"127.0.0.1:7003\",role=\"learner\"} 1",
            "sieve_raft_membership_is_joint 0",
            "sieve_raft_quorum_ack_age_milliseconds 90",
            "# TYPE sieve_raft_follower_lag gauge",
            "sieve_raft_follower_lag{node=\"2\"} 5",
            "sieve_raft_follower_lag{node=\"3\"} 20",
        ] {
            assert_eq!(leading.lines().filter(|found| *found == line).count(), 1, "{line}");
        }
        assert!(!leading.contains("sieve_raft_follower_lag{node=\"1\"}"), "{leading}");

        let (nodes, both) = (membership.nodes(), [BTreeSet::from([1, 2]), BTreeSet::from([1])]);
        let nodes: BTreeMap<_, _> = nodes.map(|(id, member)| (*id, member.clone())).collect();
        let membership = Membership::new(both.to_vec(), nodes);
        raft.membership_config = Arc::new(StoredMembership::new(log_id(6), membership));
        raft.millis_since_quorum_ack = None;
        raft.current_leader = None;
        raft.replication = None;
        let alone = text(&raft, &[]);
        assert!(alone.contains("\nsieve_raft_membership_is_joint 1\n"), "{alone}");
        assert!(!alone.contains("\nsieve_raft_leader_id"), "{alone}");
        assert!(!alone.contains("\nsieve_raft_quorum_ack_age_milliseconds"), "{alone}");
        assert!(!alone.contains("\nsieve_raft_follower_lag"), "{alone}");
    }
}
