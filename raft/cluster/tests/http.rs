//! A cluster of processes, by HTTP.

use std::{path::Path, time::Duration};

use sievedb_cluster::{
    Result,
    client::{Client, Failure},
    places::Places,
    processes::Processes,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sieve-cluster");
const PATIENCE: Duration = Duration::from_secs(30);

fn text(value: Option<String>) -> String {
    value.unwrap_or_else(|| "absent".to_owned())
}

async fn last_index(nodes: &Processes, node: u64) -> Result<u64> {
    let status = nodes.status(node).await?;
    Ok(status["last_log_index"].as_u64().ok_or("an empty log")?)
}

async fn leader(nodes: &Processes) -> Result<(u64, Client)> {
    let leader = nodes.leader().await?;
    Ok((leader, nodes.client(leader, PATIENCE)?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_serves_and_loses_and_gains_nodes() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // No election on a busy machine, unless the leader is killed.
    let arguments = ["--snapshot-entries", "1000", "--election-timeout", "2000"];
    let places = Places::loopback(4)?;
    let mut nodes = Processes::new(Path::new(PROGRAM), dir.path(), places, &arguments);
    nodes.start_cluster(3).await?;
    let (id, client) = leader(&nodes).await?;

    // Put, get, compare-and-set.
    assert_eq!(client.get("name").await?, None);
    assert_eq!(client.put("name", "anna").await?.before, None);
    let refused = client.compare_and_set("name", Some("carla"), "berta").await?;
    assert_eq!((refused.stored, text(refused.before)), (false, "anna".to_owned()));
    assert!(client.compare_and_set("name", Some("anna"), "berta").await?.stored);
    assert!(client.compare_and_set("new", None, "1").await?.stored);
    assert_eq!(text(client.get("name").await?), "berta");

    for (method, path, reason) in [
        ("GET", "/kv/absent", "no such key"),
        ("GET", "/kv", "no such path"),
        ("PUT", "/kv/a/b", "no such path"),
        ("POST", "/", "no such path"),
    ] {
        match client.call(method, path, "").await {
            Err(Failure::Refused(404, found)) => assert_eq!(found, reason, "{path}"),
            other => return Err(format!("{path}: {other:?}").into()),
        }
    }

    // Other nodes redirect, unless an outdated value is enough.
    let other = nodes.client(id % 3 + 1, PATIENCE)?;
    assert!(matches!(other.get("name").await, Err(Failure::NoEffect(_))));
    nodes.applied(id % 3 + 1, last_index(&nodes, id).await?, PATIENCE).await?;
    assert_eq!(text(other.get_local("name").await?), "berta");

    // A killed node is caught up by a snapshot.
    let killed = (id + 1) % 3 + 1;
    nodes.kill(killed);
    for number in 0..50 {
        client.put(&format!("key {number}").replace(' ', "-"), "v").await?;
    }
    client.call("POST", "/snapshot", "").await?;
    let last = last_index(&nodes, id).await?;
    nodes.start(killed)?;
    nodes.applied(killed, last, PATIENCE).await?;
    let caught_up = nodes.status(killed).await?;
    assert_eq!(caught_up["snapshot"]["index"].as_u64(), Some(last), "{caught_up}");

    // A new node, which has all values when it is a member.
    nodes.start(4)?;
    let answers = async {
        while nodes.status(4).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answers).await?;
    client.call("PUT", "/members/4", &nodes.peer_address(4)).await?;
    nodes.applied(4, last, PATIENCE).await?;
    let fourth = nodes.client(4, PATIENCE)?;
    assert_eq!(text(fourth.get_local("key-49").await?), "v");
    let membership = |status: serde_json::Value| status["membership_config"].to_string();
    assert!(membership(nodes.status(id).await?).contains(&nodes.peer_address(4)));
    client.call("DELETE", "/members/4", "").await?;
    assert!(!membership(nodes.status(id).await?).contains(&nodes.peer_address(4)));
    nodes.kill(4);

    // The leader is killed, and restarted.
    nodes.kill(id);
    let (next, client) = leader(&nodes).await?;
    assert_ne!(next, id);
    assert_eq!(text(client.get("name").await?), "berta");
    client.put("name", "carla").await?;
    nodes.start(id)?;
    nodes.applied(id, last_index(&nodes, next).await?, PATIENCE).await?;
    let first = nodes.client(id, PATIENCE)?;
    assert_eq!(text(first.get_local("name").await?), "carla");

    let metrics = client.call("GET", "/metrics", "").await?;
    assert!(metrics.contains("\nsieve_raft_is_leader 1\n"), "{metrics}");
    assert!(metrics.contains(&format!("\nsieve_raft_leader_id {next}\n")), "{metrics}");
    assert!(metrics.contains(&format!("\nsieve_raft_follower_lag{{node=\"{id}\"}} ")), "{metrics}");
    let member = format!("{{node=\"{id}\",address=\"{}\",role=\"voter\"}}", nodes.peer_address(id));
    assert!(metrics.contains(&format!("\nsieve_raft_member{member} 1\n")), "{metrics}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_starts_again_only_at_its_own_addresses() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let places = Places::loopback(4)?;
    let addresses: Vec<_> = (1..=4).map(|node| places.peer_address(node)).collect();
    let nodes = |name: &str, addresses: &[_]| {
        let places = Places::Loopback(addresses.to_vec());
        Processes::new(Path::new(PROGRAM), &dir.path().join(name), places, &[])
    };
    let refused = async |mut nodes: Processes| match nodes.start_cluster(3).await {
        Err(error) => error.to_string(),
        Ok(leader) => format!("node {leader} leads"),
    };
    let mut first = nodes("first", &addresses);
    first.start_cluster(3).await?;

    // The nodes of another cluster would answer.
    let error = refused(nodes("second", &addresses)).await;
    assert!(error.contains("is in use by node 1 in"), "{error}");
    let (_, client) = leader(&first).await?;
    client.put("name", "anna").await?;
    drop(first);

    // The nodes would look for each other at their former addresses.
    let error = refused(nodes("first", &addresses[1..])).await;
    assert!(error.contains("has ended: exit status 2"), "{error}");

    // A fourth node runs, but is no member.
    let mut first = nodes("first", &addresses);
    first.start_cluster(4).await?;
    assert_eq!(first.members().await?.into_keys().collect::<Vec<_>>(), [1, 2, 3]);
    let client = first.client(first.leader_of(&[1, 2, 3]).await?, PATIENCE)?;
    assert_eq!(text(client.get("name").await?), "anna");
    Ok(())
}
