//! A schedule in which only a durable vote keeps two leaders from answering clients.
//!
//! 1. All nodes have applied a write. Then the leader is isolated from the other nodes.
//! 2. The other two elect a leader of a later term, which commits a second write. So the third
//!    node, the voter, has voted for that leader.
//! 3. Both are killed, and the voter is started again. The first leader is connected to it.
//!
//! The first leader does not know the later term. If the vote is durable, the voter refuses that
//! leader. If the vote is lost, the voter confirms the leadership. The two are a majority, and the
//! first leader answers a linearizable read with the first write.
//!
//! Each step waits for its effect, so the schedule does not depend on chance.

use std::time::Duration;

use crate::{
    Result,
    check::{NODES, Outcome, Run, Shared, read_all},
    client::Client,
    processes::Processes,
};

/// Time in which a step must succeed, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Timeout of a client for a response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Milliseconds after which a node starts an election. The voter hears from the first leader
/// before: openraft tries again after at most 500 ms.
const ELECTION_TIMEOUT: &str = "1000";

/// The same of a voter that has lost its vote: it must hear from the first leader before, on a busy
/// machine too. A voter with its vote must start an election: the first leader lacks the second
/// write.
const VOTER_ELECTION_TIMEOUT: &str = "20000";

/// The key of all writes.
const KEY: &str = "key";

/// Runs the schedule once, and checks the history.
pub(crate) async fn run(run: &Run) -> Result<Outcome> {
    let dir = tempfile::tempdir()?;
    let mut nodes = run.nodes(dir.path(), &["--election-timeout", ELECTION_TIMEOUT])?;
    let (shared, mut outcome) = (Shared::new(), Outcome::default());

    let first = nodes.start_cluster(NODES).await?;
    write(&nodes, &shared, first, "first").await?;
    let last = nodes.status(first).await?["last_log_index"].as_u64().unwrap_or(0);
    for node in 1..=NODES {
        nodes.applied(node, last, PATIENCE).await?;
    }
    nodes.isolate(first, true).await?;
    outcome.partitions += 1;

    let others: Vec<_> = (1..=NODES).filter(|&node| node != first).collect();
    let second = nodes.leader_of(&others).await?;
    write(&nodes, &shared, second, "second").await?;

    let voter = others.into_iter().find(|&node| node != second).ok_or("no third node")?;
    for node in [second, voter] {
        nodes.kill(node);
        outcome.kills += 1;
    }
    nodes.isolate(first, false).await?;
    let timeout = match run.planted_bug {
        Some(_) => VOTER_ELECTION_TIMEOUT,
        None => ELECTION_TIMEOUT,
    };
    nodes.start_with(voter, &["--election-timeout", timeout])?;
    let clients = [client(&nodes, first)?, client(&nodes, voter)?];
    outcome.failure = read(&nodes, &clients, &shared).await.err().map(|error| error.to_string());

    // The second leader would report the later term to the first one.
    if outcome.failure.is_none() {
        nodes.start(second)?;
        outcome.failure = read_all(&nodes, &shared).await.err().map(|error| error.to_string());
    }
    shared.finish(&mut nodes, &mut outcome);
    Ok(outcome)
}

fn client(nodes: &Processes, node: u64) -> Result<Client> {
    nodes.client(node, CLIENT_TIMEOUT)
}

/// Writes until the leader acknowledges it. Each attempt has another value.
async fn write(nodes: &Processes, shared: &Shared, leader: u64, value: &str) -> Result<()> {
    let (client, mut attempt) = (client(nodes, leader)?, 0);
    let write = async || {
        attempt += 1;
        Ok(shared.write(&client, KEY, &format!("{value}-{attempt}")).await?)
    };
    nodes.poll(PATIENCE, write).await
}

/// Reads until one of the nodes answers.
async fn read(nodes: &Processes, clients: &[Client; 2], shared: &Shared) -> Result<()> {
    let read = async || {
        let [first, second] = clients;
        if shared.read(first, KEY).await.is_err() {
            shared.read(second, KEY).await?;
        }
        Ok(())
    };
    nodes.poll(PATIENCE, read).await
}
