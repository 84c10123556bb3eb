//! Nodes as processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Result,
    client::{Client, Failure},
    places::Places,
};

/// Time in which a cluster must reach a state, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks at a node.
const POLL: Duration = Duration::from_millis(50);

/// A cluster whose nodes, from 1 on, are processes. They are killed when it is dropped.
#[derive(Debug)]
pub struct Processes {
    program: PathBuf,
    dir: PathBuf,
    arguments: Vec<String>,
    places: Places,
    nodes: BTreeMap<u64, Child>,
    isolated: BTreeSet<u64>,
}

impl Processes {
    /// Creates a cluster without a running node. Nodes run `program node` with further `arguments`,
    /// and keep their stores in `dir`.
    #[must_use]
    pub fn new(program: &Path, dir: &Path, places: Places, arguments: &[&str]) -> Self {
        Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            places,
            nodes: BTreeMap::new(),
            isolated: BTreeSet::new(),
        }
    }

    /// Returns the directory of a node.
    #[must_use]
    pub fn dir(&self, node: u64) -> PathBuf {
        self.dir.join(format!("node{node}"))
    }

    /// Returns the address of a node for the other nodes.
    #[must_use]
    pub fn peer_address(&self, node: u64) -> String {
        self.places.peer_address(node).to_string()
    }

    /// Returns the URL of a node for clients.
    #[must_use]
    pub fn url(&self, node: u64) -> String {
        format!("http://{}", self.places.client_address(node))
    }

    /// Creates a client of a node.
    ///
    /// # Errors
    ///
    /// As [`Client::new`].
    pub fn client(&self, node: u64, timeout: Duration) -> Result<Client> {
        Client::new(&self.url(node), timeout)
    }

    /// Starts a node.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn start(&mut self, node: u64) -> Result<()> {
        self.start_with(node, &[])
    }

    /// Starts a node with `more` arguments, which override those of all nodes.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn start_with(&mut self, node: u64, more: &[&str]) -> Result<()> {
        std::fs::create_dir_all(self.dir(node))?;
        let mut command = self.places.command(node, &self.program);
        command.args(["node", "--child", "--id", &node.to_string()]);
        command.arg("--listen").arg(self.places.listen_address(node).to_string());
        command.arg("--dir").arg(self.dir(node)).args(&self.arguments).args(more);
        command.env("RUST_BACKTRACE", "0");
        self.nodes.insert(node, command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?);
        Ok(())
    }

    /// Kills a node (`SIGKILL`), if it runs.
    pub fn kill(&mut self, node: u64) {
        if let Some(mut child) = self.nodes.remove(&node) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns `true` if a node that was started has ended by itself.
    ///
    /// # Errors
    ///
    /// Errors of the operating system.
    pub fn has_ended(&mut self, node: u64) -> Result<bool> {
        let ended = self.nodes.get_mut(&node).map(Child::try_wait).transpose()?;
        Ok(ended.flatten().is_some())
    }

    /// Returns the nodes that run.
    pub fn running(&self) -> impl Iterator<Item = u64> {
        self.nodes.keys().copied()
    }

    /// Pauses a node (`SIGSTOP`), or continues it (`SIGCONT`), if it runs.
    ///
    /// # Errors
    ///
    /// Errors of the operating system.
    pub fn pause(&self, node: u64, paused: bool) -> Result<()> {
        let Some(child) = self.nodes.get(&node) else { return Ok(()) };
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Isolates a node from the others, but not from clients, or connects it again.
    ///
    /// # Errors
    ///
    /// If the system refuses it.
    pub async fn isolate(&mut self, node: u64, isolated: bool) -> Result<()> {
        if isolated {
            self.isolated.insert(node);
        } else {
            self.isolated.remove(&node);
        }
        if !self.places.connect(node, !isolated)? {
            self.block().await;
        }
        Ok(())
    }

    /// Reports to all nodes which requests they drop. To be repeated after a node has started.
    pub async fn block(&self) {
        if let Places::Namespaces(_) = self.places {
            return;
        }
        for node in self.running() {
            let others = (1..=self.places.count() as u64).filter(|&other| other != node);
            let alone = self.isolated.contains(&node);
            let blocked: Vec<_> =
                others.filter(|other| alone || self.isolated.contains(other)).collect();
            let Ok(client) = self.client(node, Duration::from_millis(300)) else { continue };
            let _ = client.call("PUT", "/faults/blocked", &format!("{blocked:?}")).await;
        }
    }

    /// Starts nodes 1 to `count` as a new cluster, and waits for a leader.
    ///
    /// # Errors
    ///
    /// If there is no leader after a minute.
    pub async fn start_cluster(&mut self, count: u64) -> Result<u64> {
        for node in 1..=count {
            self.start(node)?;
        }
        let members: BTreeMap<_, _> =
            (1..=count).map(|node| (node.to_string(), self.peer_address(node))).collect();
        let body = serde_json::to_string(&members)?;
        let client = self.client(1, PATIENCE)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match client.call("POST", "/members", &body).await {
                // Status 409 if the cluster exists already.
                Ok(_) | Err(Failure::Refused(409, _)) => return self.leader().await,
                Err(error) if Instant::now() > deadline => {
                    return Err(format!("node 1 does not start the cluster: {error:?}").into());
                }
                Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// Waits until one of the running nodes leads, and all of them report it. Returns its id.
    ///
    /// # Errors
    ///
    /// If there is none after a minute.
    pub async fn leader(&self) -> Result<u64> {
        self.leader_of(&self.running().collect::<Vec<_>>()).await
    }

    /// Waits until one of `nodes` leads, and all of them report it. Returns its id.
    ///
    /// # Errors
    ///
    /// If there is none after a minute.
    pub async fn leader_of(&self, nodes: &[u64]) -> Result<u64> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let mut leaders = BTreeSet::new();
            for &node in nodes {
                let status = self.status(node).await.unwrap_or_default();
                leaders.insert(status["current_leader"].as_u64());
            }
            if let [Some(leader)] = Vec::from_iter(&leaders)[..]
                && nodes.contains(leader)
            {
                return Ok(*leader);
            }
            tokio::time::sleep(POLL).await;
        }
        Err(format!("the nodes {nodes:?} have no leader").into())
    }

    /// Waits until a node has applied the entry `index`.
    ///
    /// # Errors
    ///
    /// If it has not after `patience`.
    pub async fn applied(&self, node: u64, index: u64, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let status = self.status(node).await.unwrap_or_default();
            if status["last_applied"]["index"].as_u64() >= Some(index) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        Err(format!("node {node} has not applied entry {index}").into())
    }

    /// Returns the index of the last entry of the leader.
    ///
    /// # Errors
    ///
    /// If there is no leader after a minute, or its log is empty.
    pub async fn last_index(&self) -> Result<u64> {
        let status = self.status(self.leader().await?).await?;
        Ok(status["last_log_index"].as_u64().ok_or("an empty log")?)
    }

    /// Returns openraft's metrics of a node.
    ///
    /// # Errors
    ///
    /// If the node does not answer.
    pub async fn status(&self, node: u64) -> Result<serde_json::Value> {
        let client = self.client(node, Duration::from_secs(2))?;
        let body = client.call("GET", "/status", "").await;
        Ok(serde_json::from_str(&body.map_err(|error| format!("node {node}: {error:?}"))?)?)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for node in self.running().collect::<Vec<_>>() {
            self.kill(node);
        }
    }
}
