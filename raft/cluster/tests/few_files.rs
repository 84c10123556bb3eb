//! Nodes that may open few files.

use std::{error::Error, path::Path, process::Command, time::Duration};

use sievedb_cluster::{Result, client::Client, places::Places, processes::Processes};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sieve-cluster");
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_do_not_end_nodes_that_may_open_few_files() -> Result<()> {
    const CLIENTS: usize = 300;
    let dir = tempfile::tempdir()?;
    let limited = |files: u32| {
        let program = dir.path().join(format!("limited-{files}"));
        let script = r#"printf '#!/bin/sh\nulimit -n %s; exec "%s" "$@"\n' "$2" "$3" > "$1" && chmod +x "$1""#;
        let mut write = Command::new("sh");
        write.args(["-c", script, "sh"]).arg(&program).args([&files.to_string(), PROGRAM]);
        assert!(write.status()?.success());
        Ok::<_, std::io::Error>(program)
    };
    let arguments = ["--election-timeout", "2000"];
    let start = |program: &Path, name: &str| {
        let cluster = dir.path().join(name);
        let nodes = Processes::new(program, &cluster, Places::loopback(3)?, &arguments);
        Ok::<_, Box<dyn Error + Send + Sync>>(nodes)
    };
    let mut refused = start(&limited(303)?, "refused")?;
    assert!(refused.start_cluster(3).await.is_err());

    let mut nodes = start(&limited(304)?, "cluster")?;
    let leader = nodes.start_cluster(3).await?;
    let client = nodes.client(leader, PATIENCE)?;
    client.put("name", "anna").await?;
    let mut held = Vec::new();
    for _ in 0..CLIENTS {
        let mut connection = TcpStream::connect(nodes.peer_address(leader)).await?;
        connection.write_all(b"GET /status HTTP/1.1\r\nhost: a\r\n\r\n").await?;
        held.push(connection);
        // A store that cannot open the files of a snapshot ends the node.
        if held.len() % 30 == 0 {
            client.put("name", "carla").await?;
            client.call("POST", "/snapshot", "").await?;
        }
    }
    drop(held);
    let read = |client: Client| async move {
        for _ in 0..10 {
            // Status 503 if there are too many clients.
            let _ = client.get("name").await;
        }
    };
    let reads: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(read(client.clone()))).collect();
    for read in reads {
        read.await?;
    }
    let written = async || Ok(client.put("name", "berta").await.map(drop)?);
    nodes.poll(PATIENCE, written).await?;
    assert!((1..=3).all(|node| nodes.end(node).is_none()));
    Ok(())
}
