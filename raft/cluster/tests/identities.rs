//! Nodes with other directories, and of other clusters.

#![expect(clippy::disallowed_methods, reason = "directories of nodes")]

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use axum::{Router, routing::get};
use sievedb::Db;
use sievedb_cluster::{
    Result,
    client::{Client, Failure},
    places::Places,
    processes::{Processes, Role},
};
use tokio::sync::Barrier;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sieve-cluster");
const PATIENCE: Duration = Duration::from_secs(60);

/// No election on a busy machine, unless a test causes it.
const ARGUMENTS: [&str; 2] = ["--election-timeout", "2000"];

fn nodes_at(dir: &Path, addresses: &[SocketAddr]) -> Processes {
    let places = Places::Loopback(addresses.to_vec());
    Processes::new(Path::new(PROGRAM), dir, places, &ARGUMENTS)
}

fn nodes(dir: &Path, count: usize) -> Result<Processes> {
    Ok(Processes::new(Path::new(PROGRAM), dir, Places::loopback(count)?, &ARGUMENTS))
}

async fn leader(nodes: &Processes) -> Result<(u64, Client)> {
    let members: Vec<_> = nodes.members().await?.into_keys().collect();
    let running: Vec<_> = nodes.running().filter(|node| members.contains(node)).collect();
    let leader = nodes.leader_of(&running).await?;
    Ok((leader, nodes.client(leader, PATIENCE)?))
}

/// Starts a node, and waits until it answers.
async fn start(nodes: &mut Processes, node: u64) -> Result<()> {
    nodes.start(node)?;
    let answers = async || nodes.status(node).await.map(drop);
    nodes.poll(PATIENCE, answers).await
}

/// Waits until a node has ended by itself.
async fn ended(nodes: &mut Processes, node: u64) -> Result<String> {
    loop {
        if let Some((_, end)) = nodes.take_ended().into_iter().find(|(ended, _)| *ended == node) {
            return Ok(end);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Checks that a request was refused with `status`, and with a message in plain words.
fn refused(result: Result<String, Failure>, status: u16, words: &str) {
    match result {
        Err(Failure::Refused(found, message)) => {
            assert_eq!(found, status, "{message}");
            assert!(message.contains(words), "{message}");
            for debug in ["Some(", "None", "{", "\"", "LogId"] {
                assert!(!message.contains(debug), "{message}");
            }
        }
        other => panic!("{words}: {other:?}"),
    }
}

async fn term(nodes: &Processes, node: u64) -> Result<Option<u64>> {
    Ok(nodes.status(node).await?["current_term"].as_u64())
}

async fn last_index(nodes: &Processes, node: u64) -> Result<Option<u64>> {
    Ok(nodes.status(node).await?["last_log_index"].as_u64())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_cluster_on_the_same_ports_starts_no_node() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let places = Places::loopback(3)?;
    let addresses: Vec<_> = (1..=3).map(|node| places.peer_address(node)).collect();
    let mut first = nodes_at(&dir.path().join("first"), &addresses);
    first.start_cluster(3).await?;
    // The second cluster would start its first node before it fails.
    first.kill(1);
    let mut second = nodes_at(&dir.path().join("second"), &addresses);
    let error = second.start_cluster(3).await.map_err(|error| error.to_string());
    let message = error.expect_err("the ports are in use");
    assert!(message.contains("is in use by node 2 in") && message.contains("use other ports"));
    assert!(!dir.path().join("second").exists(), "a store is left behind");
    start(&mut first, 1).await?;
    let (_, client) = leader(&first).await?;
    client.put("name", "anna").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_reports_nodes_that_run_by_hand() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut by_hand = nodes(dir.path(), 2)?;
    by_hand.start_cluster(2).await?;
    by_hand.kill(1);
    let addresses: Vec<_> = (1..=2).map(|node| by_hand.peer_address(node).parse()).collect();
    let addresses = addresses.into_iter().collect::<Result<Vec<_>, _>>()?;
    let error = nodes_at(dir.path(), &addresses).start_cluster(2).await;
    let message = error.expect_err("node 2 runs").to_string();
    let process = by_hand.process_id(2).ok_or("node 2 does not run")?;
    let expected = format!("node 2 in {} runs already", by_hand.dir(2).display());
    assert!(message.contains(&expected), "{message}");
    assert!(message.contains(&process.to_string()), "{message}");
    assert!(by_hand.dir(1).exists() && by_hand.dir(2).exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_start_leaves_only_what_was_there() -> Result<()> {
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("other"), "a file")?;
    let mut nodes = nodes(dir.path(), 3)?;
    // The second node has a directory without a node.
    fs::create_dir(nodes.dir(2))?;
    fs::write(nodes.dir(2).join("note"), "a file")?;
    let message = nodes.start_cluster(3).await.expect_err("node 2 cannot start").to_string();
    assert!(message.contains("node 2 has ended"), "{message}");
    assert!(!nodes.dir(1).exists() && !nodes.dir(3).exists());
    assert!(dir.path().join("other").exists() && nodes.dir(2).join("note").exists());
    assert_eq!(fs::read_dir(nodes.dir(2))?.count(), 1, "a file in a directory without a node");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_starts_in_one_directory_one_fails_and_changes_nothing() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("cluster");
    let (mut first, mut second) = (nodes(&path, 1)?, nodes(&path, 1)?);
    let (led, refused) = tokio::join!(first.start_cluster(1), second.start_cluster(1));
    let message = refused.expect_err("another start has the directory").to_string();
    assert_eq!(led?, 1);
    assert!(message.contains(&format!("process {} runs", std::process::id())), "{message}");
    let (_, client) = leader(&first).await?;
    client.put("name", "anna").await?;
    assert!(first.dir(1).join("store").exists());

    let file = dir.path().join("file");
    fs::write(&file, "a file")?;
    let message = nodes(&file, 1)?.start_cluster(1).await.expect_err("a file").to_string();
    assert!(message.contains(&file.display().to_string()), "{message}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_start_leaves_nodes_that_others_create() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // A node that another terminal creates while those of the start fail.
    let (program, cluster) = (dir.path().join("program"), dir.path().join("cluster"));
    let created = cluster.join("node4");
    let script = r#"printf '#!/bin/sh\nmkdir "%s"\nexit 1\n' "$2" > "$1"; chmod +x "$1""#;
    let write = Command::new("sh").args(["-c", script, "sh"]).arg(&program).arg(&created).status();
    assert!(write?.success());
    let mut nodes = Processes::new(&program, &cluster, Places::loopback(1)?, &[]);
    let message = nodes.start_cluster(1).await.expect_err("the program ends").to_string();
    assert!(message.contains("node 1 has ended: exit status 1"), "{message}");
    assert!(!nodes.dir(1).exists() && created.exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_another_program_is_refused_unchanged() -> Result<()> {
    for name in ["default", "names"] {
        let dir = tempfile::tempdir()?;
        let mut nodes = nodes(dir.path(), 1)?;
        let store = nodes.dir(1).join("store");
        fs::create_dir(nodes.dir(1))?;
        let db = Db::open(&store)?;
        db.keyspace(name)?.insert("name", "anna")?;
        let keyspaces = db.keyspaces()?;
        drop(db);
        let message = nodes.start_cluster(1).await.expect_err("it is no node").to_string();
        assert!(message.contains("node 1 has ended"), "{name}: {message}");
        assert!(!nodes.dir(1).join("snapshots").exists(), "{name}");
        assert_eq!(Db::open(&store)?.keyspaces()?, keyspaces);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_continues_an_interrupted_creation_of_nodes() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 3)?;
    // At the directory of the store, at its first keyspace, and before the record of the node.
    fs::create_dir_all(nodes.dir(1).join("store"))?;
    for (node, keyspaces) in [(2, &[][..]), (3, &["node", "map"])] {
        fs::create_dir(nodes.dir(node))?;
        let db = Db::open(nodes.dir(node).join("store"))?;
        for keyspace in keyspaces {
            db.keyspace(keyspace)?;
        }
    }
    nodes.start_cluster(3).await?;
    let (_, client) = leader(&nodes).await?;
    client.put("name", "anna").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_cluster_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut cluster = nodes(&dir.path().join("cluster"), 4)?;
    cluster.start_cluster(3).await?;
    let (id, client) = leader(&cluster).await?;
    let mut other = nodes(&dir.path().join("other"), 4)?;
    start(&mut other, 4).await?;
    let fourth = other.client(4, PATIENCE)?;
    let address = other.peer_address(4);
    fourth.call("POST", "/members", &format!(r#"{{"4": "{address}"}}"#)).await?;
    assert_eq!(other.leader().await?, 4);
    fourth.put("name", "other").await?;

    let before = (cluster.members().await?, last_index(&cluster, id).await?);
    let added = client.call("PUT", "/members/4", &address).await;
    refused(added, 409, "node 4 at this address belongs to another cluster");
    assert_eq!((cluster.members().await?, last_index(&cluster, id).await?), before);
    // It is not the reason to remove a member with its id.
    start(&mut cluster, 4).await?;
    client.call("PUT", "/members/4", &cluster.peer_address(4)).await?;
    let added = client.call("PUT", "/members/4", &address).await;
    refused(added, 409, "belongs to another cluster");
    assert_eq!(fourth.get("name").await?.as_deref(), Some("other"));

    // Nor does it become a member of a new cluster.
    let mut third = nodes(&dir.path().join("third"), 1)?;
    start(&mut third, 1).await?;
    let body = format!(r#"{{"1": "{}", "4": "{address}"}}"#, third.peer_address(1));
    let formed = third.client(1, PATIENCE)?.call("POST", "/members", &body).await;
    refused(formed, 409, "belongs to cluster");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_form_one_cluster() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 2)?;
    let mut members = Vec::new();
    for node in 1..=2 {
        start(&mut nodes, node).await?;
        members.push(format!(r#""{node}": "{}""#, nodes.peer_address(node)));
    }
    // A third node, which never votes, answers once both requests have reached it.
    let both = Arc::new(Barrier::new(2));
    let status = async move || {
        both.wait().await;
        r#"{"id": 3, "directory": "0000000000000003"}"#
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    members.push(format!(r#""3": "{}""#, listener.local_addr()?));
    let router = Router::new().route("/status", get(status));
    let third = tokio::spawn(async move { axum::serve(listener, router).await });
    let (first, second) = (nodes.client(1, PATIENCE)?, nodes.client(2, PATIENCE)?);
    let body = format!("{{{}}}", members.join(", "));
    let (one, two) =
        tokio::join!(first.call("POST", "/members", &body), second.call("POST", "/members", &body));
    for formed in [&one, &two] {
        assert!(matches!(formed, Ok(_) | Err(Failure::Refused(409, _))), "{formed:?}");
    }
    assert!(one.is_ok() || two.is_ok(), "{one:?}, {two:?}");
    let leader = nodes.leader().await?;
    nodes.client(leader, PATIENCE)?.put("name", "anna").await?;
    let (first, second) = (nodes.status(1).await?, nodes.status(2).await?);
    assert_eq!(first["cluster"], second["cluster"]);
    third.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_node_ends_and_its_directory_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 4)?;
    nodes.start_cluster(3).await?;
    let (id, client) = leader(&nodes).await?;
    start(&mut nodes, 4).await?;
    let address = nodes.peer_address(4);
    client.call("PUT", "/members/4", &address).await?;
    client.put("name", "anna").await?;
    client.call("DELETE", "/members/4", "").await?;
    let end = tokio::time::timeout(PATIENCE, ended(&mut nodes, 4)).await??;
    assert!(end.contains("exit status 3"), "{end}");

    // A node that was down does not know it. It begins elections, whose terms would end that of the
    // leader.
    fs::remove_file(nodes.dir(4).join("removed"))?;
    start(&mut nodes, 4).await?;
    let first = term(&nodes, 4).await?;
    let campaigns = async || match term(&nodes, 4).await? {
        term if term > first => Ok(()),
        term => Err(format!("term {term:?}").into()),
    };
    nodes.poll(PATIENCE, campaigns).await?;
    let before = (id, term(&nodes, id).await?);
    refused(client.call("PUT", "/members/4", &address).await, 409, "node 4 was removed from this");
    client.put("name", "berta").await?;
    assert_eq!(nodes.role(4, &nodes.members().await?).await?, Role::Removed);

    nodes.kill(4);
    fs::remove_dir_all(nodes.dir(4))?;
    start(&mut nodes, 4).await?;
    client.call("PUT", "/members/4", &address).await?;
    assert_eq!((id, term(&nodes, id).await?), before, "an election");
    let fourth = nodes.client(4, PATIENCE)?;
    assert_eq!(fourth.get_local("name").await?.as_deref(), Some("berta"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_with_one_id_one_becomes_a_member() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut cluster = nodes(&dir.path().join("cluster"), 4)?;
    cluster.start_cluster(3).await?;
    let (_, client) = leader(&cluster).await?;
    let mut other = nodes(&dir.path().join("other"), 4)?;
    start(&mut cluster, 4).await?;
    start(&mut other, 4).await?;
    let addresses = [cluster.peer_address(4), other.peer_address(4)];
    let add = |address: &str| {
        let (client, address) = (client.clone(), address.to_owned());
        async move { client.call("PUT", "/members/4", &address).await }
    };
    let both = tokio::join!(add(&addresses[0]), add(&addresses[1]));
    assert!(both.0.is_err() || both.1.is_err(), "{both:?}");
    // The entry of the refused request may have delayed the second step of the other one.
    let member = cluster.members().await?[&4].addr.clone();
    let added = async || Ok(add(&member).await.map(drop)?);
    cluster.poll(PATIENCE, added).await?;
    let other_address = addresses.iter().find(|address| **address != member).ok_or("no other")?;
    refused(add(other_address).await, 409, "is a member with another directory");
    let added = usize::from(member == addresses[1]);
    // The other one has not joined the cluster.
    let idle = if added == 0 { &other } else { &cluster };
    assert!(idle.status(4).await?["cluster"].is_null());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_leader_ends() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 3)?;
    nodes.start_cluster(3).await?;
    let (id, client) = leader(&nodes).await?;
    client.call("DELETE", &format!("/members/{id}"), "").await?;
    let end = tokio::time::timeout(PATIENCE, ended(&mut nodes, id)).await??;
    assert!(end.contains("exit status 3"), "{end}");
    let (next, client) = leader(&nodes).await?;
    assert_ne!(next, id);
    client.put("name", "anna").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_its_directory_never_votes_or_acknowledges() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 3)?;
    nodes.start_cluster(3).await?;
    let (id, client) = leader(&nodes).await?;
    client.put("name", "anna").await?;
    let [lost, other] = [id % 3 + 1, (id + 1) % 3 + 1];
    nodes.kill(lost);
    fs::rename(nodes.dir(lost), dir.path().join("lost"))?;
    let address = nodes.peer_address(lost);

    // A restart does not create a node.
    let mut restart = tokio::process::Command::new(PROGRAM);
    restart.args(["node", "--id", &lost.to_string(), "--listen", &address]).kill_on_drop(true);
    let output = restart.arg("--dir").arg(nodes.dir(lost)).output();
    let output = tokio::time::timeout(PATIENCE, output).await??;
    let message = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("there is no node in") && message.contains("--new"), "{message}");
    assert!(!nodes.dir(lost).exists());

    // Neither does a new node take the place of the member.
    start(&mut nodes, lost).await?;
    let members = nodes.members().await?;
    assert_eq!(nodes.role(lost, &members).await?, Role::Replaced);
    let path = format!("/members/{lost}");
    let added = client.call("PUT", &path, &address).await;
    refused(added, 409, "is a member with another directory");
    nodes.kill(other);
    let written = client.put("name", "berta").await;
    assert!(matches!(written, Err(Failure::Unknown(_))), "a new node has acknowledged {written:?}");
    nodes.kill(id);
    start(&mut nodes, id).await?;
    let status = nodes.status(lost).await?;
    assert!(status["last_log_index"].is_null() && status["cluster"].is_null(), "{status}");

    // It is replaced once the others run.
    nodes.start(other)?;
    let leading = async || nodes.leader_of(&[id, other]).await;
    let id = nodes.poll(PATIENCE, leading).await?;
    let client = nodes.client(id, PATIENCE)?;
    client.call("DELETE", &path, "").await?;
    assert_eq!(nodes.end(lost), None, "the new node is not the removed one");
    client.call("PUT", &path, &address).await?;
    assert_eq!(nodes.role(lost, &nodes.members().await?).await?, Role::Member);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_one_address_are_the_same_and_unknown_members_are_not_removed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let ports = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    let addresses: Vec<_> = ports.iter().map(TcpListener::local_addr).collect();
    let addresses = addresses.into_iter().collect::<std::io::Result<Vec<_>>>()?;
    drop(ports);
    let mut nodes = nodes_at(dir.path(), &addresses);
    nodes.start_cluster(2).await?;
    let (id, client) = leader(&nodes).await?;
    let other = id % 2 + 1;
    let named = |name: &str, port: u16| format!("{name}:{port}");
    let port = addresses[usize::try_from(other - 1)?].port();
    client.call("PUT", &format!("/members/{other}"), &named("localhost", port)).await?;
    let member = &nodes.members().await?[&other];
    assert_eq!(member.addr, named("127.0.0.1", port));

    let before = last_index(&nodes, id).await?;
    refused(client.call("DELETE", "/members/9", "").await, 404, "node 9 is no member");
    assert_eq!(last_index(&nodes, id).await?, before);
    client.call("DELETE", &format!("/members/{other}"), "").await?;
    let last = client.call("DELETE", &format!("/members/{id}"), "").await;
    refused(last, 409, "the last member cannot be removed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_members_survives_the_death_of_the_leader() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path(), 4)?;
    nodes.start_cluster(3).await?;
    let address = nodes.peer_address(4);
    for round in 0..2_u64 {
        let (id, client) = leader(&nodes).await?;
        start(&mut nodes, 4).await?;
        let added = tokio::spawn({
            let (client, address) = (client.clone(), address.clone());
            async move { client.call("PUT", "/members/4", &address).await }
        });
        // At another point of the change in each round.
        let deadline = 20 * round;
        tokio::time::sleep(Duration::from_millis(deadline)).await;
        nodes.kill(id);
        let _ = added.await?;
        start(&mut nodes, id).await?;
        let voters = [1, 2, 3];
        let added = async || {
            let client = nodes.client(nodes.leader_of(&voters).await?, PATIENCE)?;
            match client.call("PUT", "/members/4", &address).await {
                Err(Failure::Refused(409, message)) if message.contains("was removed") => Ok(false),
                added => Ok(added.map(|_| true)?),
            }
        };
        let added = nodes.poll(PATIENCE, added).await?;
        if added {
            let client = nodes.client(nodes.leader_of(&[1, 2, 3, 4]).await?, PATIENCE)?;
            client.put("round", &round.to_string()).await?;
            client.call("DELETE", "/members/4", "").await?;
            tokio::time::timeout(PATIENCE, ended(&mut nodes, 4)).await??;
        }
        nodes.kill(4);
        fs::remove_dir_all(nodes.dir(4))?;
    }
    Ok(())
}

#[test]
fn a_start_at_port_0_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut start = Command::new(PROGRAM);
    let output = start.arg("start").arg(dir.path()).args(["--port", "0"]).output()?;
    let message = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("--port") && message.contains("1..=65535"), "{message}");
    Ok(())
}
