//! The speed of a cluster, and its recovery by snapshot.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::{Result, client::Failure, places::Places, processes::Processes};

/// Bytes of a value of [`recovery`].
const VALUE_BYTES: usize = 256 << 10;

/// Writes to a new cluster. Each is synced on a majority of its nodes.
#[derive(Debug, Clone, Copy)]
pub struct Writes<'a> {
    /// The program of a node.
    pub program: &'a Path,
    /// Further arguments of a node.
    pub arguments: &'a [&'a str],
    /// The number of nodes.
    pub nodes: u64,
    /// The number of concurrent clients, which write to the leader.
    pub clients: u64,
}

impl Writes<'_> {
    /// Returns the writes per second in a time of `duration`.
    ///
    /// # Errors
    ///
    /// If a write fails.
    pub async fn per_second(&self, duration: Duration) -> Result<f64> {
        let dir = tempfile::tempdir()?;
        let places = Places::loopback(usize::try_from(self.nodes)?)?;
        let mut cluster = Processes::new(self.program, dir.path(), places, self.arguments);
        let leader = cluster.start_cluster(self.nodes).await?;
        let start = Instant::now();
        let mut clients = Vec::new();
        for client in 0..self.clients {
            let http = cluster.client(leader, Duration::from_secs(10))?;
            clients.push(tokio::spawn(async move {
                let mut written = 0_u32;
                while start.elapsed() < duration {
                    let key = format!("{client}-{written}");
                    http.put(&key, "a value of a client").await?;
                    written += 1;
                }
                Ok::<_, Failure>(written)
            }));
        }
        let mut written = 0;
        for client in clients {
            written += client.await??;
        }
        Ok(f64::from(written) / start.elapsed().as_secs_f64())
    }
}

/// The recovery of a node by snapshot.
#[derive(Debug, Clone, Copy)]
pub struct Recovery {
    /// Time from the start of the node until it has applied all entries, in seconds.
    pub seconds: f64,
    /// Bytes of the values in the snapshot.
    pub bytes: u64,
}

/// Kills a node, writes `bytes` of values, purges the log, and starts the node again.
///
/// # Errors
///
/// If a write fails, or the node does not receive a snapshot.
pub async fn recovery(program: &Path, bytes: u64) -> Result<Recovery> {
    let patience = Duration::from_secs(600);
    let dir = tempfile::tempdir()?;
    let arguments = ["--snapshot-entries", "1000000"];
    let mut cluster = Processes::new(program, dir.path(), Places::loopback(3)?, &arguments);
    let leader = cluster.start_cluster(3).await?;
    let killed = leader % 3 + 1;
    cluster.kill(killed);
    let client = cluster.client(leader, patience)?;
    let mut rng = fastrand::Rng::with_seed(1);
    let values = bytes.div_ceil(VALUE_BYTES as u64);
    for number in 0..values {
        let value: String = (0..VALUE_BYTES).map(|_| rng.alphanumeric()).collect();
        let written = client.put(&format!("{number:08}"), &value).await;
        written.map_err(|error| format!("write {number}: {error}"))?;
    }
    let last = cluster.status(leader).await?["last_log_index"].as_u64().unwrap_or(0);
    // The start may end in an election: no node may have the entries in its log.
    for node in (1..=3).filter(|&node| node != killed) {
        cluster.applied(node, last, patience).await?;
        let built = cluster.client(node, patience)?.call("POST", "/snapshot", "").await;
        built.map_err(|error| format!("snapshot of node {node}: {error}"))?;
    }
    let start = Instant::now();
    cluster.start(killed)?;
    cluster.applied(killed, last, patience).await?;
    let seconds = start.elapsed().as_secs_f64();
    if cluster.status(killed).await?["snapshot"].is_null() {
        return Err("the node has not received a snapshot".into());
    }
    Ok(Recovery { seconds, bytes: values * VALUE_BYTES as u64 })
}
