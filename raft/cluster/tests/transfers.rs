//! Transfers of snapshots to a node.

#![expect(clippy::disallowed_methods, reason = "measures time")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use openraft::{
    CommittedLeaderId, LogId, SnapshotMeta, StoredMembership, Vote, raft::InstallSnapshotRequest,
};
use sievedb_cluster::{
    Result, identity::Member, network::Types, places::Places, processes::Processes,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sieve-cluster");
const PATIENCE: Duration = Duration::from_secs(30);

/// A term that no node has reached by elections.
const TERM: u64 = 1000;

/// Time without a leader after which a node has begun an election: the longest timeout, and as much
/// again for a busy machine.
const ELECTION: Duration = Duration::from_millis(8000);

/// openraft 0.9 does not count a part as a heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_receives_a_snapshot_begins_no_election() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let arguments = ["--election-timeout", "2000"];
    let mut nodes =
        Processes::new(Path::new(PROGRAM), dir.path(), Places::loopback(3)?, &arguments);
    let leader = nodes.start_cluster(3).await?;
    let (receiver, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    nodes.kill(leader);
    nodes.kill(other);

    // The test takes the place of a slow leader, which sends nothing but parts.
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
    let url = format!("{}/raft/snapshot", nodes.url(receiver));
    let identity = nodes.status(receiver).await?;
    let text = |key: &str| identity[key].as_str().unwrap_or_default().to_owned();
    let begin = Instant::now();
    let mut offset = 0;
    while begin.elapsed() < ELECTION {
        let meta = SnapshotMeta {
            last_log_id: Some(LogId::new(CommittedLeaderId::new(TERM, leader), 1000)),
            last_membership: StoredMembership::<u64, Member>::default(),
            snapshot_id: "slow".to_owned(),
        };
        let (vote, data, done) = (Vote::new_committed(TERM, leader), b"part".to_vec(), false);
        let request = InstallSnapshotRequest::<Types> { vote, meta, offset, data, done };
        offset += request.data.len() as u64;
        let request = http.post(&url).body(postcard::to_stdvec(&request)?);
        let request = request.header("x-node", leader).header("x-target", receiver);
        let request = request.header("x-directory", text("directory"));
        let sent = request.header("x-cluster", text("cluster")).send().await?;
        assert!(sent.status().is_success(), "{sent:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let status = nodes.status(receiver).await?;
    assert_eq!(status["current_term"].as_u64(), Some(TERM), "{status}");
    assert_eq!(status["current_leader"].as_u64(), Some(leader), "{status}");
    Ok(())
}
