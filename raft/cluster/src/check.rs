//! Random histories of a cluster with faults.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use fastrand::Rng;

use crate::{
    Result,
    client::{Client, Failure},
    faults::{Faults, Injector},
    linearizability::{Action, Operation, Value, violations},
    places::Places,
    processes::Processes,
    storage::NO_BUGS,
    votes,
};

/// Nodes of a cluster.
pub(crate) const NODES: u64 = 3;

/// Concurrent clients.
const CLIENTS: u64 = 8;

/// Time for which the clients use the same keys.
const KEYS_CHANGE_AFTER: Duration = Duration::from_millis(2000);

/// Timeout of a client for a response.
const CLIENT_TIMEOUT: Duration = Duration::from_millis(400);

/// Time in which a key must be read, and all nodes must apply the last entry, after the faults.
/// Timeout of a local read.
const PATIENCE: Duration = Duration::from_secs(60);

/// Comparisons of the nodes, each of which a late write may disturb.
const COMPARISONS_MAX: u32 = 10;

/// Minimum operations per second of a valid run, on a busy machine.
const OPERATIONS_PER_SECOND_MIN: u64 = 20;

/// Arguments of nodes: snapshots are frequent, and their transfers have several parts.
const NODE_ARGUMENTS: &[&str] = &["--snapshot-entries", "50", "--snapshot-part-bytes", "8192"];

/// A random run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The program whose command `node` is a node.
    pub program: PathBuf,
    /// Time for which faults are injected. [`Faults::Votes`] runs a fixed [schedule](crate::votes).
    pub duration: Duration,
    /// Chooses operations and faults.
    pub seed: u64,
    /// A bug that nodes have: see [`Settings`](crate::node::Settings::planted_bug).
    pub planted_bug: Option<String>,
    /// Nodes have network namespaces of their own.
    pub namespaces: bool,
    /// The faults to inject.
    pub faults: Faults,
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Operations that may have had an effect.
    pub operations: usize,
    /// Operations that did not return.
    pub unknown: usize,
    /// Killed nodes.
    pub kills: usize,
    /// Nodes killed with the loss of what they have not synced.
    pub power_cuts: usize,
    /// Paused nodes.
    pub pauses: usize,
    /// Isolated nodes.
    pub partitions: usize,
    /// Keys whose histories are not linearizable, or whose values differ between nodes.
    pub violations: Vec<String>,
    /// A node that has ended by itself, or the reason why the cluster does not answer after all
    /// faults have ended.
    pub failure: Option<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, unknown, kills, power_cuts, pauses, partitions, .. } = self;
        let violations = self.violations.len();
        write!(
            f,
            "{operations} operations, {unknown} without response, {kills} kills, {power_cuts} \
             power cuts, {pauses} pauses, {partitions} partitions, {violations} violations"
        )?;
        match &self.failure {
            Some(failure) => write!(f, ", failure: {failure}"),
            None => Ok(()),
        }
    }
}

/// State that the clients of a run share.
pub(crate) struct Shared {
    start: Instant,
    stop: AtomicBool,
    /// The clients wait.
    pub(crate) hold: AtomicBool,
    history: Mutex<Vec<Operation>>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let (stop, hold, history) = Default::default();
        Self { start: Instant::now(), stop, hold, history }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn add(&self, operation: Operation) {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    }

    /// Reads `key`, and adds the call to the history if it returns.
    pub(crate) async fn read(&self, client: &Client, key: &str) -> Result<Value, Failure> {
        let begin = self.now();
        let value = client.get(key).await?;
        let (action, end) = (Action::Read(value.clone()), Some(self.now()));
        self.add(Operation { key: key.to_owned(), action, begin, end });
        Ok(value)
    }

    /// Writes `value` to `key`, and adds the call to the history if it may have an effect.
    pub(crate) async fn write(
        &self,
        client: &Client,
        key: &str,
        value: &str,
    ) -> Result<(), Failure> {
        let begin = self.now();
        let written = client.put(key, value).await;
        let failure = written.as_ref().err().map(ToString::to_string);
        if let (Some(before), end) = returned(written, self) {
            let action = Action::Write { value: value.to_owned(), before };
            self.add(Operation { key: key.to_owned(), action, begin, end });
        }
        failure.map_or(Ok(()), |failure| Err(Failure::Unknown(failure)))
    }

    /// Checks the history and the nodes.
    pub(crate) fn finish(&self, nodes: &mut Processes, outcome: &mut Outcome) {
        // A later fault may have restarted the node.
        if let Some((_, end)) = nodes.take_ended().into_iter().next() {
            outcome.failure = Some(end);
        }
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.operations = history.len();
        outcome.unknown = history.iter().filter(|operation| operation.end.is_none()).count();
        outcome.violations.extend(violations(&history));
    }
}

impl Run {
    /// Runs clients and faults, and checks the history.
    ///
    /// # Errors
    ///
    /// If the cluster cannot be started.
    pub async fn run(&self) -> Result<Outcome> {
        if self.faults == Faults::Votes {
            return votes::run(self).await;
        }
        let dir = tempfile::tempdir()?;
        let mut nodes = self.nodes(dir.path(), NODE_ARGUMENTS)?;
        nodes.start_cluster(NODES).await?;
        let shared = Arc::new(Shared::new());
        let mut rng = Rng::with_seed(self.seed);
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let of_nodes = (1..=NODES).map(|node| nodes.client(node, CLIENT_TIMEOUT));
            let of_nodes = of_nodes.collect::<Result<Vec<_>>>()?;
            let rng = Rng::with_seed(rng.u64(..));
            clients.push(tokio::spawn(client(number, of_nodes, rng, shared.clone())));
        }
        let mut outcome = Outcome::default();
        while shared.start.elapsed() < self.duration {
            let (faults, shared) = (self.faults, &shared);
            let (nodes, outcome) = (&mut nodes, &mut outcome);
            Injector { faults, nodes, shared, rng: &mut rng, outcome }.inject().await?;
            pause(&mut rng, 100, 700).await;
        }
        shared.stop.store(true, Relaxed);
        for client in clients {
            client.await?;
        }
        // A busy node may have missed the end of a partition.
        nodes.block().await;
        match read_all(&nodes, &shared).await {
            Ok(keys) => match differences(&nodes, &keys).await {
                Ok(differences) => outcome.violations = differences,
                Err(error) => outcome.failure = Some(error.to_string()),
            },
            Err(error) => outcome.failure = Some(error.to_string()),
        }
        shared.finish(&mut nodes, &mut outcome);
        Ok(outcome)
    }

    /// Returns the minimum number of operations of a valid run.
    #[must_use]
    pub const fn operations_min(&self) -> u64 {
        match self.faults {
            Faults::All | Faults::PowerCuts | Faults::Isolations => {
                self.duration.as_secs() * OPERATIONS_PER_SECOND_MIN
            }
            Faults::Votes => 1,
        }
    }

    /// Returns a cluster in `dir` whose nodes have further `arguments`. None of them runs.
    pub(crate) fn nodes(&self, dir: &Path, arguments: &[&str]) -> Result<Processes> {
        let is_planted = self.faults == Faults::PowerCuts || self.planted_bug.is_some();
        if is_planted && cfg!(not(feature = "planted-bugs")) {
            // Each node would report it.
            return Err(NO_BUGS.into());
        }
        let count = usize::try_from(NODES)?;
        let places =
            if self.namespaces { Places::namespaces(count) } else { Places::loopback(count) };
        let mut arguments = [&["--faults"], arguments].concat();
        if self.faults == Faults::PowerCuts {
            arguments.push("--power-cuts");
        }
        if let Some(bug) = &self.planted_bug {
            arguments.extend(["--planted-bug", bug]);
        }
        Ok(Processes::new(&self.program, dir, places?, &arguments))
    }
}

pub(crate) async fn pause(rng: &mut Rng, from: u64, to: u64) {
    tokio::time::sleep(Duration::from_millis(rng.u64(from..to))).await;
}

/// Calls random operations until the run stops.
async fn client(number: u64, nodes: Vec<Client>, mut rng: Rng, shared: Arc<Shared>) {
    let mut node = rng.usize(..nodes.len());
    let mut last = (String::new(), None);
    let mut calls = 0_u64;
    while !shared.stop.load(Relaxed) {
        if shared.hold.load(Relaxed) {
            pause(&mut rng, 1, 8).await;
            continue;
        }
        if rng.u8(0..4) == 0 {
            node = rng.usize(..nodes.len());
        }
        let generation = shared.start.elapsed().as_millis() / KEYS_CHANGE_AFTER.as_millis();
        let key = format!("{generation}-{}", rng.u8(0..3));
        calls += 1;
        let value = format!("{number}.{calls}");
        // The last value that this client has read is often the present one.
        let expected = if last.0 == key { last.1.clone() } else { None };
        let begin = shared.now();
        let (action, end) = match rng.u8(0..10) {
            0..=4 => match nodes[node].get(&key).await {
                Ok(found) => (Some(Action::Read(found)), Some(shared.now())),
                Err(_) => (None, None),
            },
            5..=7 => {
                let written = nodes[node].put(&key, &value).await;
                let (before, end) = returned(written, &shared);
                (before.map(|before| Action::Write { value, before }), end)
            }
            _ => {
                let called = nodes[node].compare_and_set(&key, expected.as_deref(), &value).await;
                let (before, end) = returned(called, &shared);
                (before.map(|before| Action::CompareAndSet { expected, value, before }), end)
            }
        };
        let Some(action) = action else {
            node = rng.usize(..nodes.len());
            pause(&mut rng, 5, 30).await;
            continue;
        };
        last = (key.clone(), known(&action, end));
        shared.add(Operation { key, action, begin, end });
        pause(&mut rng, 1, 8).await;
    }
}

/// Returns the value before a write with the time of its return; the first is `None` if the write
/// had no effect, and contains `None` if that is unknown.
fn returned(
    written: Result<crate::map::Response, Failure>,
    shared: &Shared,
) -> (Option<Option<Value>>, Option<u64>) {
    match written {
        Ok(response) => (Some(Some(response.before)), Some(shared.now())),
        Err(Failure::NoEffect(_) | Failure::Refused(..)) => (None, None),
        Err(Failure::Unknown(_)) => (Some(None), None),
    }
}

/// Returns the value after an action that has returned.
fn known(action: &Action, end: Option<u64>) -> Value {
    end?;
    match action {
        Action::Read(value) => value.clone(),
        Action::Write { value, .. } => Some(value.clone()),
        Action::CompareAndSet { expected, value, before } => match before {
            Some(before) if before == expected => Some(value.clone()),
            before => before.clone().flatten(),
        },
    }
}

/// Reads all keys once at the end. Returns them.
pub(crate) async fn read_all(nodes: &Processes, shared: &Shared) -> Result<BTreeSet<String>> {
    let keys: BTreeSet<_> = {
        let history = shared.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().map(|operation| operation.key.clone()).collect()
    };
    for key in &keys {
        let read = async || {
            let client = nodes.client(nodes.leader().await?, CLIENT_TIMEOUT)?;
            Ok(shared.read(&client, key).await?)
        };
        nodes.poll(PATIENCE, read).await.map_err(|error| format!("{key}: {error}"))?;
    }
    Ok(keys)
}

/// Waits until all nodes have applied the last entry. Returns the keys whose values differ between
/// nodes: no linearizable read shows what only a follower has lost.
async fn differences(nodes: &Processes, keys: &BTreeSet<String>) -> Result<Vec<String>> {
    let clients = (1..=NODES).map(|node| nodes.client(node, PATIENCE));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let mut comparison = 1;
    loop {
        let last = nodes.last_index().await?;
        for node in 1..=NODES {
            nodes.applied(node, last, PATIENCE).await?;
        }
        let mut differences = Vec::new();
        for key in keys {
            let mut values = Vec::new();
            for client in &clients {
                let value = client.get_local(key).await;
                values.push(value.map_err(|error| format!("{key}: {error}"))?);
            }
            if values.iter().any(|value| *value != values[0]) {
                differences.push(format!("{key}: the nodes have {values:?}"));
            }
        }
        // A write without response may be applied late.
        let is_stable = nodes.last_index().await? == last;
        if differences.is_empty() || is_stable || comparison == COMPARISONS_MAX {
            return Ok(differences);
        }
        comparison += 1;
    }
}
