//! Requests that a cluster refuses, and nodes that end.

#![expect(clippy::disallowed_methods, reason = "directories of nodes")]

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{Router, http::StatusCode, routing::get};
use openraft::{
    CommittedLeaderId, LogId, SnapshotMeta, StoredMembership, Vote, raft::InstallSnapshotRequest,
};
use sievedb_cluster::{
    Result,
    client::{Client, Failure},
    identity::Member,
    network::Types,
    places::Places,
    processes::Processes,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sieve-cluster");
const PATIENCE: Duration = Duration::from_secs(30);
const VALUE_BYTES_MAX: usize = 1 << 20;

fn nodes(dir: &Path) -> Result<Processes> {
    // No election on a busy machine: clients do not follow a new leader.
    let arguments = ["--election-timeout", "2000"];
    Ok(Processes::new(Path::new(PROGRAM), dir, Places::loopback(3)?, &arguments))
}

fn status<T>(result: &Result<T, Failure>) -> Option<u16> {
    match result {
        Err(Failure::Refused(status, _)) => Some(*status),
        _ => None,
    }
}

async fn membership(nodes: &Processes, node: u64) -> Result<String> {
    Ok(nodes.status(node).await?["membership_config"].to_string())
}

async fn has_ended(nodes: &Processes, node: u64) -> Result<bool> {
    let deadline = Instant::now() + 2 * PATIENCE;
    while nodes.end(node).is_none() {
        if Instant::now() > deadline {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_values_are_kept_or_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    let leader = nodes.start_cluster(3).await?;
    let client = nodes.client(leader, PATIENCE)?;
    for key in ["a b", "a/b", "a?local=true", "a#b", "100%25", "\u{e4}", "...", "%2e"] {
        assert_eq!(client.get(key).await?, None, "{key}");
        client.put(key, key).await?;
        assert!(client.compare_and_set(key, Some(key), "next").await?.stored, "{key}");
        assert_eq!(client.get(key).await?.as_deref(), Some("next"), "{key}");
    }
    assert!(matches!(client.get("..").await, Err(Failure::NoEffect(_))));
    // An entry that does not fit into a request between nodes would end replication.
    let long = "v".repeat(VALUE_BYTES_MAX + 1);
    assert_eq!(status(&client.put("long", &long).await), Some(413));
    let writes = (0..20).map(|number| {
        let (client, value) = (client.clone(), long[1..].to_owned());
        tokio::spawn(async move { client.put(&format!("long-{number}"), &value).await })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await??;
    }
    assert_eq!(client.get("long").await?, None);
    assert_eq!(client.get("long-19").await?.as_deref(), Some(&long[1..]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_nodes_that_answer_become_members() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    let leader = nodes.start_cluster(3).await?;
    let client = nodes.client(leader, PATIENCE)?;
    let before = membership(&nodes, leader).await?;
    let other = leader % 3 + 1;
    // A node under a second id would be counted twice in a majority.
    let second = client.call("PUT", "/members/4", &nodes.peer_address(other)).await;
    assert_eq!(status(&second), Some(400));
    for nowhere in ["127.0.0.1:1", "127.0.0.1", "127.0.0.1:1/x", "", "a b:1"] {
        match client.call("PUT", "/members/4", nowhere).await {
            Err(Failure::Refused(400, message)) => {
                assert!(message.contains("start it there, or correct the address"), "{message}");
            }
            other => return Err(format!("{nowhere}: {other:?}").into()),
        }
    }
    let moved = client.call("PUT", &format!("/members/{other}"), "127.0.0.1:1").await;
    assert_eq!(status(&moved), Some(409));
    assert_eq!(
        status(&client.call("POST", "/members", r#"{"1": "127.0.0.1:1"}"#).await),
        Some(409)
    );
    assert_eq!(membership(&nodes, leader).await?, before);

    // The id of a directory is a header of every request.
    const NO_HEADER: &str = r#"{"id": 4, "directory": "a\nb"}"#;
    const STUCK: &str = r#"{"id": 4, "directory": "0000000000000004"}"#;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let router = Router::new().route("/status", get(|| async { NO_HEADER }));
    let bad = tokio::spawn(async move { axum::serve(listener, router).await });
    assert_eq!(status(&client.call("PUT", "/members/4", &address).await), Some(400));
    bad.abort();

    // A node that answers and then does not catch up can be removed.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let router = Router::new().route("/status", get(|| async { STUCK }));
    let stuck = tokio::spawn(async move { axum::serve(listener, router).await });
    let adds = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.call("PUT", "/members/4", &address).await }
    });
    let deadline = Instant::now() + PATIENCE;
    while !membership(&nodes, leader).await?.contains(&address) {
        assert!(!adds.is_finished() && Instant::now() < deadline, "it does not become a member");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!adds.is_finished(), "the call waits until the node catches up");
    adds.abort();
    loop {
        let removed = client.call("DELETE", "/members/4", "").await;
        // The addition may not be committed yet.
        if status(&removed) != Some(409) || Instant::now() > deadline {
            removed?;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!membership(&nodes, leader).await?.contains(&address));
    client.put("name", "anna").await?;
    stuck.abort();
    Ok(())
}

/// The leader would read, encode and send the same entries again without a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_a_member_that_refuses_them_are_sent_with_pauses() -> Result<()> {
    const REQUESTS: usize = 6;
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    let leader = nodes.start_cluster(1).await?;
    let client = nodes.client(leader, PATIENCE)?;
    let times = Arc::new(Mutex::new(Vec::new()));
    let refuse = {
        let times = times.clone();
        || async move {
            times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
            StatusCode::MISDIRECTED_REQUEST
        }
    };
    let router = Router::new()
        .route("/status", get(|| async { r#"{"id": 2, "directory": "0000000000000002"}"# }))
        .fallback(refuse);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let member = tokio::spawn(async move { axum::serve(listener, router).await });
    let adds = tokio::spawn(async move { client.call("PUT", "/members/2", &address).await });
    let deadline = Instant::now() + PATIENCE;
    let spread = loop {
        let times = times.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let [first, .., last] = times[..]
            && times.len() >= REQUESTS
        {
            break last - first;
        }
        assert!(!adds.is_finished() && Instant::now() < deadline, "{} requests", times.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // A pause has 500 ms. The arrival of the first request may be delayed.
    assert!(spread > Duration::from_secs(1), "{REQUESTS} requests within {spread:?}");
    adds.abort();
    member.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_not_started_with_addresses_that_are_none() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    nodes.start(1)?;
    let client = nodes.client(1, PATIENCE)?;
    let deadline = Instant::now() + PATIENCE;
    while nodes.status(1).await.is_err() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let own = nodes.peer_address(1);
    let bad = ["", "127.0.0.1", ":7001", "127.0.0.1:0", "http://127.0.0.1:7001", "a b:1", "a@b:1"];
    let bad = bad.map(|address| (address, "not an address"));
    for (address, reason) in bad.into_iter().chain([(&own[..], "it is node 1")]) {
        let body = format!(r#"{{"1": {own:?}, "2": {address:?}}}"#);
        match client.call("POST", "/members", &body).await {
            Err(Failure::Refused(400, message)) => assert!(message.contains(reason), "{message}"),
            other => return Err(format!("{address:?}: {other:?}").into()),
        }
    }
    // Node 1 has recorded none of them.
    client.call("POST", "/members", &format!(r#"{{"1": {own:?}}}"#)).await?;
    assert_eq!(nodes.leader().await?, 1);
    Ok(())
}

/// Answers each connection to the returned address with `head`, and then with `piece` again and
/// again, until it is closed.
async fn endless(head: &'static [u8], piece: &'static [u8]) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // A response before the request is none.
                let _request = stream.read(&mut [0; 4096]).await?;
                stream.write_all(head).await?;
                while !piece.is_empty() {
                    stream.write_all(piece).await?;
                }
                std::future::pending::<std::io::Result<()>>().await
            });
        }
    });
    Ok(address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_member_that_never_ends_its_answer_is_refused() -> Result<()> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    let leader = nodes.start_cluster(1).await?;
    let client = nodes.client(leader, PATIENCE)?;
    for (head, piece, reason) in [
        (&b""[..], &b""[..], "no node 2"),
        (HEAD, b"", "no node 2"),
        (HEAD, &[b' '; 1 << 16], "more than 1048576 bytes"),
    ] {
        let address = endless(head, piece).await?;
        match client.call("PUT", "/members/2", &address).await {
            Err(Failure::Refused(400, message)) => assert!(message.contains(reason), "{message}"),
            other => return Err(format!("{reason}: {other:?}").into()),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_of_snapshots_all_return() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    let leader = nodes.start_cluster(3).await?;
    let client = nodes.client(leader, PATIENCE)?;
    let snapshot = |client: Client, number: u64| async move {
        client.put("key", &number.to_string()).await?;
        client.call("POST", "/snapshot", "").await?;
        Ok::<_, Failure>(())
    };
    // The second request of a round often comes while the snapshot of the first one is built.
    for round in 0..20 {
        let call = |number| tokio::spawn(snapshot(client.clone(), number));
        let (first, second) = (call(2 * round), call(2 * round + 1));
        first.await??;
        second.await??;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_ends_when_openraft_stops() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    let leader = nodes.start_cluster(3).await?;
    let follower = leader % 3 + 1;
    let log_id = LogId::new(CommittedLeaderId::new(1000, leader), 1000);
    let membership = StoredMembership::<u64, Member>::default();
    let meta = SnapshotMeta {
        last_log_id: Some(log_id),
        last_membership: membership,
        snapshot_id: "damaged".to_owned(),
    };
    let request = InstallSnapshotRequest::<Types> {
        vote: Vote::new_committed(1000, leader),
        meta,
        offset: 0,
        data: b"no snapshot".to_vec(),
        done: true,
    };
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
    let url = format!("{}/raft/snapshot", nodes.url(follower));
    let identity = nodes.status(follower).await?;
    let text = |key: &str| identity[key].as_str().unwrap_or_default().to_owned();
    let (directory, cluster) = (text("directory"), text("cluster"));
    let send = |target: u64, directory: &str, cluster: &str, body: &[u8]| {
        let request = http.post(&url).header("x-node", leader).header("x-target", target);
        let request = request.header("x-directory", directory).header("x-cluster", cluster);
        request.body(body.to_vec()).send()
    };
    assert_eq!(send(follower, &directory, &cluster, b"no request").await?.status(), 400);
    // The ids are checked before the body is decoded.
    assert_eq!(send(follower, "former", &cluster, b"no request").await?.status(), 421);
    let body = postcard::to_stdvec(&request)?;
    // Requests for another node, whose address this one has now, for its former directory, and of
    // another cluster.
    for (target, directory, cluster, reason) in [
        (leader, &directory[..], &cluster[..], "correct the addresses"),
        (follower, "former", &cluster, "is not the directory with which"),
        (follower, &directory, "0123456789abcdef", "belongs to cluster"),
        (follower, &directory, "", "names no cluster"),
        (follower, &directory, &"0123456789abcdef".repeat(9), "names no cluster"),
    ] {
        let refused = send(target, directory, cluster, &body).await?;
        assert_eq!(refused.status(), 421, "{reason}");
        assert!(refused.text().await?.contains(reason), "{reason}");
    }
    assert_eq!(nodes.end(follower), None);
    let _reset_when_the_node_ends = send(follower, &directory, &cluster, &body).await;
    assert!(has_ended(&nodes, follower).await?);
    // The others go on, and so does this one after a restart.
    nodes.kill(follower);
    nodes.start(follower)?;
    let leader = nodes.leader().await?;
    nodes.client(leader, PATIENCE)?.put("name", "anna").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_directory_of_another_node_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    nodes.start_cluster(1).await?;
    nodes.kill(1);
    std::fs::rename(nodes.dir(1), nodes.dir(2))?;
    nodes.start(2)?;
    assert!(has_ended(&nodes, 2).await?);
    nodes.kill(2);
    std::fs::rename(nodes.dir(2), nodes.dir(1))?;
    nodes.start(1)?;
    assert_eq!(nodes.leader().await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_majority_return() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    let leader = nodes.start_cluster(3).await?;
    let others = [leader % 3 + 1, (leader + 1) % 3 + 1];
    for node in others {
        nodes.kill(node);
    }
    let client = nodes.client(leader, PATIENCE)?;
    let remove = format!("/members/{}", others[1]);
    let alone = async || {
        let metrics = client.call("GET", "/metrics", "").await?;
        let name = "\nsieve_raft_quorum_ack_age_milliseconds ";
        let age = metrics.split_once(name).and_then(|(_, rest)| rest.lines().next());
        let age = age.and_then(|age| age.parse::<u64>().ok());
        if age > Some(1000) { Ok(()) } else { Err(format!("{age:?} ms").into()) }
    };
    nodes.poll(PATIENCE, alone).await?;
    let (written, removed, read) = tokio::join!(
        client.put("name", "anna"),
        client.call("DELETE", &remove, ""),
        client.get("name")
    );
    match written {
        Err(Failure::Unknown(reason)) => assert!(reason.contains("no majority"), "{reason}"),
        other => return Err(format!("{other:?}").into()),
    }
    match removed {
        Err(Failure::Refused(409, reason)) => assert!(reason.contains("no majority"), "{reason}"),
        other => return Err(format!("{other:?}").into()),
    }
    assert!(matches!(read, Err(Failure::NoEffect(_))), "{read:?}");

    // The write takes effect later. The removal was refused.
    nodes.start(others[0])?;
    let written = async || match client.get("name").await?.as_deref() {
        Some("anna") => Ok(()),
        other => Err(format!("{other:?}").into()),
    };
    nodes.poll(PATIENCE, written).await?;
    let metrics = client.call("GET", "/metrics", "").await?;
    assert!(metrics.contains("\nsieve_raft_membership_is_joint 0\n"), "{metrics}");
    let removed = async || Ok(client.call("DELETE", &remove, "").await.map(drop)?);
    nodes.poll(PATIENCE, removed).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_not_removed_if_the_others_have_no_majority() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut nodes = nodes(dir.path())?;
    let leader = nodes.start_cluster(3).await?;
    let (running, killed) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    nodes.kill(killed);
    let client = nodes.client(leader, PATIENCE)?;
    let before = membership(&nodes, leader).await?;
    match client.call("DELETE", &format!("/members/{running}"), "").await {
        Err(Failure::Refused(409, message)) => {
            assert!(message.contains(&format!("remove node {killed} first")), "{message}");
        }
        other => return Err(format!("{other:?}").into()),
    }
    assert_eq!(membership(&nodes, leader).await?, before);
    for removed in [killed, running] {
        client.call("DELETE", &format!("/members/{removed}"), "").await?;
    }
    client.put("name", "anna").await?;
    Ok(())
}

#[test]
fn a_node_that_cannot_start_reports_the_cause() -> Result<()> {
    let dir = tempfile::tempdir()?;
    std::fs::create_dir(dir.path().join("store"))?;
    std::fs::write(dir.path().join("snapshots"), "a file")?;
    let mut node = Command::new(PROGRAM);
    let listen = Places::loopback(1)?.peer_address(1).to_string();
    node.args(["node", "--id", "1", "--listen", &listen, "--dir"]).arg(dir.path());
    let output = node.output()?;
    let message = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("caused by: ") && message.contains("os error"), "{message}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_in_a_deleted_directory_names_the_cause() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let address = Places::loopback(1)?.peer_address(1).to_string();
    let mut node = tokio::process::Command::new(PROGRAM);
    node.args(["node", "--new", "--id", "1", "--listen", &address, "--dir"]);
    node.arg(dir.path().join("node")).stderr(Stdio::piped()).kill_on_drop(true);
    let node = node.spawn()?;
    let client = Client::new(&format!("http://{address}"), PATIENCE)?;
    let (body, deadline) = (format!(r#"{{"1": {address:?}}}"#), Instant::now() + PATIENCE);
    while let Err(error) = client.call("POST", "/members", &body).await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while let Err(error) = client.put("name", "anna").await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    std::fs::remove_dir_all(dir.path().join("node"))?;
    // The node may end before it answers.
    let answer = client.call("POST", "/snapshot", "").await.expect_err("no directory").to_string();
    assert!(!answer.contains("shutting down"), "{answer}");
    let output = tokio::time::timeout(2 * PATIENCE, node.wait_with_output()).await??;
    let message = String::from_utf8(output.stderr)?;
    assert!(message.contains("is missing; restart this node"), "{message}");
    Ok(())
}

#[test]
fn a_name_is_no_address_to_listen_on() -> Result<()> {
    let mut node = Command::new(PROGRAM);
    let output =
        node.args(["node", "--id", "1", "--listen", "localhost:7001", "--dir", "d"]).output()?;
    let message = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("not an address such as 127.0.0.1:7001"), "{message}");
    Ok(())
}
