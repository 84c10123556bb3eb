//! Nodes as processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    mem,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use openraft::StoredMembership;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::{
    Result,
    client::Client,
    directories,
    identity::{Member, is_removed, is_unused},
    places::Places,
};

mod start;
pub use start::Role;

/// Time in which a cluster must reach a state, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of a request for the status of a node.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of polls of a node.
const POLL: Duration = Duration::from_millis(50);

/// A cluster whose nodes, from 1 on, are processes. They are killed when it is dropped.
#[derive(Debug)]
pub struct Processes {
    program: PathBuf,
    dir: PathBuf,
    arguments: Vec<String>,
    places: Places,
    nodes: BTreeMap<u64, Child>,
    ended: Vec<(u64, String)>,
    isolated: BTreeSet<u64>,
    /// Held from the start of the cluster on.
    lock: Option<File>,
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
            ended: Vec::new(),
            isolated: BTreeSet::new(),
            lock: None,
        }
    }

    /// Returns the directory of a node.
    #[must_use]
    pub fn dir(&self, node: u64) -> PathBuf {
        self.dir.join(format!("node{node}"))
    }

    /// Returns `true` if the directory of a node records that its cluster has removed it.
    #[must_use]
    pub fn is_removed(&self, node: u64) -> bool {
        is_removed(&self.dir(node))
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

    /// Returns the process id of a node that was started and not killed.
    #[must_use]
    pub fn process_id(&self, node: u64) -> Option<u32> {
        self.nodes.get(&node).map(Child::id)
    }

    /// Creates a client of a node.
    ///
    /// # Errors
    ///
    /// As [`Client::new`].
    pub fn client(&self, node: u64, timeout: Duration) -> Result<Client> {
        Client::new(&self.url(node), timeout)
    }

    /// Starts a node, a new one if its directory is missing or empty.
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
        directories::create(&self.dir(node))?;
        let mut command = self.places.command(node, &self.program);
        command.args(["node", "--child", "--id", &node.to_string()]);
        command.arg("--listen").arg(self.places.listen_address(node).to_string());
        command.arg("--dir").arg(self.dir(node)).args(&self.arguments).args(more);
        if is_unused(&self.dir(node))? {
            command.arg("--new");
        }
        // Ctrl-C ends the parent, which kills the nodes: they do not end by themselves.
        command.env("RUST_BACKTRACE", "0").process_group(0);
        self.nodes.insert(node, command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?);
        Ok(())
    }

    /// Kills a node (`SIGKILL`), if it runs.
    pub fn kill(&mut self, node: u64) {
        let end = self.end(node);
        if let Some(mut child) = self.nodes.remove(&node) {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.ended.extend(end.map(|end| (node, end)));
    }

    fn kill_all(&mut self) {
        for node in self.running().collect::<Vec<_>>() {
            self.kill(node);
        }
    }

    /// Returns the nodes that have ended by themselves since the last call, with the messages of
    /// [`end`](Self::end). They count as killed afterwards.
    pub fn take_ended(&mut self) -> Vec<(u64, String)> {
        let ended: Vec<_> = self.running().filter(|node| self.end(*node).is_some()).collect();
        for node in ended {
            self.kill(node);
        }
        mem::take(&mut self.ended)
    }

    /// Returns a message with the exit status of a node that has ended by itself, or `None` if it
    /// has not.
    #[must_use]
    pub fn end(&self, node: u64) -> Option<String> {
        let pid = pid(self.nodes.get(&node)?)?;
        // The process stays a zombie, so its id is not reused.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(pid), options).ok()??;
        let how = match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => format!("exit status {status}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        Some(format!("node {node} has ended: {how}"))
    }

    /// Returns the nodes that were started and not killed.
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
        Ok(kill_process(pid(child).ok_or("process id")?, signal)?)
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

    /// Returns the members of the cluster, or none if there is no cluster yet.
    ///
    /// # Errors
    ///
    /// If a running node does not answer.
    pub async fn members(&self) -> Result<BTreeMap<u64, Member>> {
        Ok(self.membership().await?.nodes().map(|(id, member)| (*id, member.clone())).collect())
    }

    /// Returns the newest membership that a running node has.
    async fn membership(&self) -> Result<StoredMembership<u64, Member>> {
        let mut newest = StoredMembership::<u64, Member>::default();
        for node in self.running() {
            let status = self.status(node).await?["membership_config"].take();
            let membership: StoredMembership<_, _> = serde_json::from_value(status)?;
            if membership.log_id() > newest.log_id() {
                newest = membership;
            }
        }
        Ok(newest)
    }

    /// Calls `step` until it succeeds.
    ///
    /// # Errors
    ///
    /// If a node has ended by itself, or the last error of `step` after `patience`.
    pub async fn poll<T>(
        &self,
        patience: Duration,
        mut step: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            let error = match step().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if let Some(end) = self.running().find_map(|node| self.end(node)) {
                return Err(end.into());
            }
            if Instant::now() > deadline {
                return Err(error);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until one of the running nodes leads, and all of them report it. Returns its id.
    ///
    /// # Errors
    ///
    /// If a node has ended by itself, or if there is no leader after a minute.
    pub async fn leader(&self) -> Result<u64> {
        self.leader_of(&self.running().collect::<Vec<_>>()).await
    }

    /// Waits until one of `nodes` leads, and all of them report it. Returns its id.
    ///
    /// # Errors
    ///
    /// As [`leader`](Self::leader).
    pub async fn leader_of(&self, nodes: &[u64]) -> Result<u64> {
        let led = async || match self.leader_by(nodes).await {
            Some(leader) if nodes.contains(&leader) => Ok(leader),
            _ => Err(format!("nodes {} have no leader", list(nodes)).into()),
        };
        self.poll(PATIENCE, led).await
    }

    /// Returns the leader that all of `nodes` report.
    async fn leader_by(&self, nodes: &[u64]) -> Option<u64> {
        let mut leaders = BTreeSet::new();
        for &node in nodes {
            let status = self.status(node).await.unwrap_or_default();
            leaders.insert(status["current_leader"].as_u64());
        }
        if let [leader] = Vec::from_iter(leaders)[..] { leader } else { None }
    }

    /// Waits until a node has applied the entry `index`.
    ///
    /// # Errors
    ///
    /// If a node has ended by itself, or if the entry is not applied after `patience`.
    pub async fn applied(&self, node: u64, index: u64, patience: Duration) -> Result<()> {
        let applied = async || {
            let status = self.status(node).await?;
            if status["last_applied"]["index"].as_u64() >= Some(index) {
                return Ok(());
            }
            Err(format!("node {node} has not applied entry {index}").into())
        };
        self.poll(patience, applied).await
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
    /// If the node does not run or does not answer, or if another process answers at its address.
    pub async fn status(&self, node: u64) -> Result<serde_json::Value> {
        let started = self.process_id(node).ok_or_else(|| format!("node {node} does not run"))?;
        let client = self.client(node, STATUS_TIMEOUT)?;
        let status = client.call("GET", "/status", "").await;
        let status = status.map_err(|error| format!("node {node}: {error}"))?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        if status["process_id"].as_u64() != Some(started.into()) {
            return Err(format!("another process uses {}", self.url(node)).into());
        }
        Ok(status)
    }
}

/// Returns numbers as a list in a sentence.
fn list<'a>(numbers: impl IntoIterator<Item = &'a u64>) -> String {
    let numbers: Vec<_> = numbers.into_iter().map(u64::to_string).collect();
    match &numbers[..] {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => numbers.concat(),
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill_all();
    }
}
