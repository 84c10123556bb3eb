//! Restarts of nodes by `node`, and of clusters by `start`.

#![expect(clippy::disallowed_methods, reason = "directories of nodes")]

use std::{fs, net::TcpListener, path::Path, process::Stdio, time::Duration};

use sievedb::{OlderValues, Options};
use sievedb_cluster::{Result, client::Failure, places::Places, processes::Processes};
use tokio::time::timeout;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sieve-cluster");
const PATIENCE: Duration = Duration::from_secs(60);

/// No election on a busy machine, unless a test causes it.
const ARGUMENTS: [&str; 2] = ["--election-timeout", "2000"];

fn nodes(dir: &Path, count: usize) -> Result<Processes> {
    Ok(Processes::new(Path::new(PROGRAM), dir, Places::loopback(count)?, &ARGUMENTS))
}

/// Returns a command that restarts a node by hand, without `--listen`.
fn restart(nodes: &Processes, node: u64) -> tokio::process::Command {
    let mut restart = tokio::process::Command::new(PROGRAM);
    restart.args(["node", "--id", &node.to_string(), "--dir"]).arg(nodes.dir(node));
    restart.kill_on_drop(true);
    restart
}

/// Restarts a node by hand. Returns the exit status and the message of its failure.
async fn failed_restart(nodes: &Processes, node: u64, listen: &str) -> Result<(i32, String)> {
    let mut restart = restart(nodes, node);
    let output = restart.args(["--listen", listen]).output();
    let output = timeout(PATIENCE, output).await??;
    let status = output.status.code().ok_or("a signal")?;
    Ok((status, String::from_utf8(output.stderr)?))
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

    let address = nodes.peer_address(follower);
    let expected = format!("node {follower} is a member at {address}; start it by");
    let other = Places::loopback(1)?.peer_address(1).to_string();
    for listen in [nodes.peer_address(leader), other] {
        let (status, moved) = failed_restart(&nodes, follower, &listen).await?;
        assert_eq!(status, 2, "{moved}");
        assert!(moved.contains(&expected), "{moved}");
    }
    let used = TcpListener::bind(&address)?;
    let output = timeout(PATIENCE, restart(&nodes, follower).output()).await??;
    let message = String::from_utf8(output.stderr)?;
    let expected = format!("cannot listen on {address}");
    assert!(message.contains(&expected) && message.contains("end the process"), "{message}");
    drop(used);

    // Without --listen it listens at the recorded address.
    let _node = restart(&nodes, follower).arg("--child").stdin(Stdio::piped()).spawn()?;
    let client = nodes.client(follower, PATIENCE)?;
    let answers = async || Ok(client.call("GET", "/status", "").await?);
    let status: serde_json::Value = serde_json::from_str(&nodes.poll(PATIENCE, answers).await?)?;
    assert_eq!(status["id"], follower);
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

/// Ends all nodes, deletes the directories of `lost`, and returns the cluster at the same
/// addresses.
fn without(nodes: Processes, dir: &Path, count: u64, lost: &[u64]) -> Result<Processes> {
    let addresses = (1..=count).map(|node| nodes.peer_address(node).parse());
    let places = Places::Loopback(addresses.collect::<Result<_, _>>()?);
    let dirs: Vec<_> = lost.iter().map(|&node| nodes.dir(node)).collect();
    drop(nodes);
    for dir in dirs {
        fs::remove_dir_all(dir)?;
    }
    Ok(Processes::new(Path::new(PROGRAM), dir, places, &ARGUMENTS))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_node_is_not_reported_as_the_leader_that_it_replaces() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 3)?;
    let lost = nodes.start_cluster(3).await?;
    nodes.client(lost, PATIENCE)?.put("name", "anna").await?;
    let mut nodes = without(nodes, dir.path(), 3, &[lost])?;
    let leader = nodes.start_cluster(3).await?;
    assert_ne!(leader, lost);
    let summary = nodes.summary(3, leader).await?;
    let leading = summary.lines().filter(|line| line.ends_with(", leader"));
    let leading: Vec<_> = leading.map(|line| line.split(':').next()).collect();
    assert_eq!(leading, [Some(&*format!("node {leader}"))], "{summary}");
    let (at, path) = (nodes.url(leader), format!("members/{lost}"));
    let change = "curl -L --fail-with-body -X";
    let replace = format!(
        "\n  {change} DELETE {at}/{path} && {change} PUT {at}/{path} -d {}\n",
        nodes.peer_address(lost)
    );
    assert!(summary.contains(&replace), "{summary}");
    assert!(!summary.contains(&format!("{}/", nodes.url(lost))), "{summary}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_a_majority_reports_the_cause_at_once() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 3)?;
    nodes.start_cluster(3).await?;
    let mut nodes = without(nodes, dir.path(), 3, &[])?;
    let failed = nodes.start_cluster(1).await.expect_err("one of three").to_string();
    assert_eq!(failed, "members 2 and 3 were not started: pass --nodes 3");
    let leader = nodes.start_cluster(2).await?;
    let summary = nodes.summary(2, leader).await?;
    assert!(summary.contains("\nmember 3 was not started: pass --nodes 3\n"), "{summary}");

    let mut nodes = without(nodes, dir.path(), 3, &[1, 3])?;
    let failed = nodes.start_cluster(3).await.expect_err("two are lost").to_string();
    assert!(failed.starts_with("2 of 3 directories are lost: there is no majority"), "{failed}");
    assert!(!nodes.dir(1).exists() && !nodes.dir(3).exists(), "new directories hide the loss");
    // A new cluster would hide the former one.
    let failed = nodes.start_cluster(1).await.expect_err("node 2 is a member").to_string();
    assert!(failed.ends_with("pass --nodes 2, or another directory"), "{failed}");
    assert!(!nodes.dir(1).exists(), "a new cluster");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_were_not_started_are_reported_in_one_line() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 5)?;
    nodes.start_cluster(5).await?;
    let mut nodes = without(nodes, dir.path(), 5, &[])?;
    let leader = nodes.start_cluster(3).await?;
    let summary = nodes.summary(3, leader).await?;
    assert!(summary.contains("\nmembers 4 and 5 were not started: pass --nodes 5\n"), "{summary}");
    assert_eq!(summary.matches("--nodes").count(), 1, "{summary}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_node_is_not_restarted() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 3)?;
    let leader = nodes.start_cluster(3).await?;
    let (removed, address) = (leader % 3 + 1, nodes.peer_address(leader % 3 + 1));
    let client = nodes.client(leader, PATIENCE)?;
    client.call("DELETE", &format!("/members/{removed}"), "").await?;
    let advice = format!("delete {}, and add a new node", nodes.dir(removed).display());
    let ended = async || match nodes.end(removed) {
        Some(end) => Ok(end),
        None => Err("it runs".into()),
    };
    // The end of a node ends a poll, too.
    let end = nodes.poll(PATIENCE, ended).await.unwrap_or_else(|error| error.to_string());
    assert!(end.contains("exit status 3"), "{end}");
    nodes.kill(removed);
    let (status, message) = failed_restart(&nodes, removed, &address).await?;
    assert_eq!(status, 3, "{message}");
    assert!(message.contains("was removed from its cluster") && message.contains(&advice));

    // A start skips it.
    let mut nodes = without(nodes, dir.path(), 3, &[])?;
    let leader = nodes.start_cluster(3).await?;
    let summary = nodes.summary(3, leader).await?;
    let expected = format!("\nnode {removed}: removed from the cluster; to add a new node, delete");
    assert!(format!("\n{summary}").contains(&expected), "{summary}");

    // A new node has no leader because it has no cluster.
    fs::remove_dir_all(nodes.dir(removed))?;
    nodes.start(removed)?;
    let answers = async || nodes.status(removed).await.map(drop);
    nodes.poll(PATIENCE, answers).await?;
    match nodes.client(removed, PATIENCE)?.get("name").await {
        Err(Failure::NoEffect(message)) => {
            let expected = format!("belongs to no cluster; add it by PUT /members/{removed}");
            assert!(message.contains(&expected), "{message}");
        }
        other => return Err(format!("{other:?}").into()),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_continues_without_a_node_that_ends() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 3)?;
    nodes.start_cluster(3).await?;
    let lost = nodes.dir(1);
    let mut nodes = without(nodes, dir.path(), 3, &[])?;
    fs::remove_dir_all(lost.join("store"))?;
    let leader = nodes.start_cluster(3).await?;
    assert_ne!(leader, 1);
    nodes.client(leader, PATIENCE)?.put("name", "anna").await?;
    let summary = nodes.summary(3, leader).await?;
    let advice = format!("delete {}, and start again", lost.display());
    assert!(summary.contains("node 1: has ended") && summary.contains(&advice), "{summary}");

    // The advice leads to the commands that replace the member.
    let mut nodes = without(nodes, dir.path(), 3, &[1])?;
    let leader = nodes.start_cluster(3).await?;
    let summary = nodes.summary(3, leader).await?;
    assert!(summary.contains("not the member 1, whose directory is lost"), "{summary}");

    // Two lost nodes leave no majority.
    let second = nodes.dir(2).join("store");
    let mut nodes = without(nodes, dir.path(), 3, &[])?;
    fs::remove_dir_all(second)?;
    let message = nodes.start_cluster(3).await.expect_err("no majority").to_string();
    assert!(message.contains("node 2 has ended: exit status 2"), "{message}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repaired_store_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 1)?;
    nodes.start_cluster(1).await?;
    nodes.client(1, PATIENCE)?.put("name", "anna").await?;
    nodes.kill(1);
    let (store, repaired) = (nodes.dir(1).join("store"), dir.path().join("repaired"));
    Options::new().repair(&store, &repaired, OlderValues::LeaveOut)?;
    for file in fs::read_dir(&store)? {
        let path = file?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("CURRENT")) {
            fs::write(path, "damage")?;
        }
    }
    let address = nodes.peer_address(1);
    let advice = "remove this node from the cluster, and add a new node";
    let (status, damaged) = failed_restart(&nodes, 1, &address).await?;
    assert_eq!(status, 2, "{damaged}");
    assert!(damaged.contains(advice) && !damaged.contains("repair"), "{damaged}");

    fs::remove_dir_all(&store)?;
    fs::rename(&repaired, &store)?;
    let (status, refused) = failed_restart(&nodes, 1, &address).await?;
    assert_eq!(status, 2, "{refused}");
    assert!(refused.contains(advice) && refused.contains("repaired"), "{refused}");
    Ok(())
}
