//! Requests that no client should send.

use std::{path::Path, time::Duration};

use sievedb_cluster::{Result, client::Client, places::Places, processes::Processes};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sieve-cluster");
const PATIENCE: Duration = Duration::from_secs(30);
const PATH_BYTES_MAX: usize = 65_000;

async fn cluster(dir: &Path) -> Result<(Processes, Client)> {
    let arguments = ["--election-timeout", "2000"];
    let mut nodes = Processes::new(Path::new(PROGRAM), dir, Places::loopback(3)?, &arguments);
    let leader = nodes.start_cluster(3).await?;
    let client = nodes.client(leader, PATIENCE)?;
    Ok((nodes, client))
}

/// An entry whose key is too long for a store would stop every node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_too_long_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (nodes, client) = cluster(dir.path()).await?;
    let long = "k".repeat(PATH_BYTES_MAX - "/cas/".len());
    client.put(&long, "1").await?;
    assert!(client.compare_and_set(&long, Some("1"), "2").await?.stored);
    let leader = nodes.leader().await?;
    let urls = [leader, leader % 3 + 1].map(|node| nodes.url(node));
    // Follows redirects.
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
    for url in &urls {
        assert_eq!(http.get(format!("{url}/kv/{long}")).send().await?.text().await?, "2");
    }
    for (method, kind) in [("PUT", "kv"), ("GET", "kv"), ("POST", "cas")] {
        let key = "k".repeat(PATH_BYTES_MAX + 1 - format!("/{kind}/").len());
        for url in &urls {
            let request = http.request(method.parse()?, format!("{url}/{kind}/{key}"));
            let answer = request.body("v").send().await?;
            assert_eq!(answer.status(), 414, "{method}");
            let message = answer.text().await?;
            assert!(message.contains("more than 65000 bytes"), "{method}: {message}");
        }
        let mut connection = TcpStream::connect(nodes.peer_address(leader)).await?;
        let head = format!(
            "{method} /{kind}/{key}{key} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nv"
        );
        connection.write_all(head.as_bytes()).await?;
        let mut answer = [0; 12];
        connection.read_exact(&mut answer).await?;
        assert_eq!(&answer[..], b"HTTP/1.1 414", "{method}");
    }
    client.put("name", "anna").await?;
    assert!((1..=3).all(|node| nodes.end(node).is_none()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_requests_are_refused_and_have_no_effect() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (nodes, client) = cluster(dir.path()).await?;
    let leader = nodes.leader().await?;
    let before = nodes.status(leader).await?["last_log_index"].as_u64();
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
    let url = nodes.url(leader);
    for (method, path, body, status) in [
        ("PUT", "/kv/%ff", &b"v"[..], 400),
        ("GET", "/kv/%ff", b"", 400),
        ("PUT", "/kv/a", b"\xff", 400),
        ("PUT", "/kv/", b"v", 404),
        ("DELETE", "/kv/a", b"", 405),
        ("POST", "/kv/a", b"v", 405),
        ("GET", "/members", b"", 405),
        ("POST", "/cas/a", b"{", 400),
        ("POST", "/cas/a", br#"{"value": 1}"#, 422),
        ("POST", "/cas/a", br#"{"expectd": "0", "value": "1"}"#, 422),
        ("POST", "/members", br#"{"x": "127.0.0.1:1"}"#, 400),
        ("PUT", "/members/x", b"127.0.0.1:1", 400),
        ("PUT", "/members/18446744073709551616", b"127.0.0.1:1", 400),
        ("PUT", "/members/4", b"\xff", 400),
        ("PUT", "/members/4", b"127.0.0.1:1\r\nx: y", 400),
        ("PUT", "/members/4", b"localhost:1/../", 400),
        ("DELETE", "/members/-1", b"", 400),
        ("GET", "/kv/a?local=maybe", b"", 400),
        ("POST", "/raft/append", b"", 421),
        ("POST", "/raft/vote", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 421),
        ("PUT", "/faults/blocked", b"[1]", 404),
        ("GET", "/../etc/passwd", b"", 404),
    ] {
        let request = http.request(method.parse()?, format!("{url}{path}"));
        let request = request.header("content-type", "application/json");
        let answer = request.body(body.to_vec()).send().await?;
        assert_eq!(answer.status(), status, "{method} {path}");
        if status == 405 {
            assert!(answer.headers().contains_key("allow"), "{method} {path}");
            assert_eq!(answer.text().await?, "the path has no such method", "{method} {path}");
        }
    }
    // The node may close the connection before it has read the whole body.
    if let Ok(answer) = http.put(format!("{url}/kv/a")).body(vec![b'v'; (1 << 20) + 1]).send().await
    {
        assert_eq!(answer.status(), 413);
    }
    assert_eq!(client.get("a").await?, None);
    assert_eq!(nodes.status(leader).await?["last_log_index"].as_u64(), before);
    assert!((1..=3).all(|node| nodes.end(node).is_none()));
    Ok(())
}

/// Sends the head of a request between nodes, with a body that does not follow.
async fn peer_head(address: &str, [node, directory, cluster]: [&str; 3]) -> Result<TcpStream> {
    let head = format!(
        "POST /raft/append HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\nx-target: {node}\r\n\
         x-directory: {directory}\r\nx-cluster: {cluster}\r\ncontent-length: 16777216\r\n\r\n"
    );
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(head.as_bytes()).await?;
    Ok(connection)
}

async fn status_of(connection: &mut TcpStream) -> Result<String> {
    let mut answer = [0; 12];
    timeout(PATIENCE, connection.read_exact(&mut answer)).await??;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_bodies_of_requests_between_nodes_are_read_at_a_time() -> Result<()> {
    const BODIES: usize = 8;
    let dir = tempfile::tempdir()?;
    let mut nodes = Processes::new(Path::new(PROGRAM), dir.path(), Places::loopback(1)?, &[]);
    nodes.start_cluster(1).await?;
    let (address, status) = (nodes.peer_address(1), nodes.status(1).await?);
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    let (directory, cluster) = (text("directory"), text("cluster"));
    let own = ["1", &directory, &cluster];
    // The ids are checked before the body arrives.
    for ids in [["2", &directory, &cluster], ["1", "other", &cluster], ["1", &directory, ""]] {
        let answer = status_of(&mut peer_head(&address, ids).await?).await?;
        assert_eq!(answer, "HTTP/1.1 421", "{ids:?}");
    }
    let mut reading = Vec::new();
    for _ in 0..BODIES {
        let mut connection = peer_head(&address, own).await?;
        assert_eq!(status_of(&mut connection).await?, "HTTP/1.1 100");
        reading.push(connection);
    }
    let mut next = peer_head(&address, own).await?;
    let early = timeout(Duration::from_millis(300), next.read_exact(&mut [0; 1])).await;
    assert!(early.is_err(), "{early:?}");
    drop(reading);
    assert_eq!(status_of(&mut next).await?, "HTTP/1.1 100");
    Ok(())
}
