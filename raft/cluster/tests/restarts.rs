//! Restarts of nodes by `node`, and of clusters by `start`.

use std::{path::Path, time::Duration};

use sievedb_cluster::{Result, client::Failure, places::Places, processes::Processes};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sieve-cluster");
const PATIENCE: Duration = Duration::from_secs(60);

fn nodes(dir: &Path, count: usize) -> Result<Processes> {
    // No election on a busy machine, unless a test causes it.
    let arguments = ["--election-timeout", "2000"];
    Ok(Processes::new(Path::new(PROGRAM), dir, Places::loopback(count)?, &arguments))
}

/// Restarts a node by hand, at another address. Returns the message of its failure.
async fn failed_restart(nodes: &Processes, node: u64, listen: &str) -> Result<String> {
    let mut restart = tokio::process::Command::new(PROGRAM);
    restart.args(["node", "--id", &node.to_string(), "--listen", listen]).kill_on_drop(true);
    let output = restart.arg("--dir").arg(nodes.dir(node)).output();
    let output = tokio::time::timeout(PATIENCE, output).await??;
    let message = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{message}");
    Ok(message)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_restarts_only_at_its_address() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 2)?;
    let leader = nodes.start_cluster(2).await?;
    let follower = leader % 2 + 1;
    let index = nodes.last_index().await?;
    nodes.applied(follower, index, PATIENCE).await?;
    nodes.kill(follower);

    let used = failed_restart(&nodes, follower, &nodes.peer_address(leader)).await?;
    assert!(used.contains("cannot listen on") && !used.contains("another address"), "{used}");
    let moved = failed_restart(&nodes, follower, "127.0.0.1:0").await?;
    let expected = format!("node {follower} is a member at {}", nodes.peer_address(follower));
    assert!(moved.contains(&expected) && moved.contains("start it there"), "{moved}");
    nodes.start(follower)?;
    nodes.leader().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirected_request_is_refused_by_another_cluster() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 1)?;
    nodes.start_cluster(1).await?;
    let client = nodes.client(1, PATIENCE)?;
    match client.call("PUT", "/kv/name?cluster=1f", "anna").await {
        Err(Failure::Refused(421, message)) => assert!(message.contains("node 1"), "{message}"),
        other => return Err(format!("{other:?}").into()),
    }
    assert_eq!(client.get("name").await?, None);
    let status = nodes.status(1).await?;
    let own = format!("/kv/name?cluster={}", status["cluster"].as_str().unwrap_or_default());
    client.call("PUT", &own, "anna").await?;
    assert_eq!(client.get("name").await?.as_deref(), Some("anna"));
    Ok(())
}
