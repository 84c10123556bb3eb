//! The states of a node while it runs a workload.

use std::{collections::BTreeMap, sync::Arc};

use sievedb_doubles::{Loss, MemoryFs};

use crate::series::{Entry, LogId, Meta, StoredMembership, Vote};

/// A snapshot with its contents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kept {
    pub(crate) meta: Meta,
    pub(crate) map: BTreeMap<String, String>,
}

/// Everything that a node stores.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
    pub(crate) purged: Option<LogId>,
    pub(crate) log: Vec<Entry>,
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: StoredMembership,
    pub(crate) map: BTreeMap<String, String>,
    pub(crate) snapshot: Option<Kept>,
}

impl State {
    /// Names the parts in which `self` and `other` differ.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let mut parts = Vec::new();
        let mut add = |differs: bool, part: String| parts.extend(differs.then_some(part));
        add(self.vote != other.vote, format!("vote {:?}, {:?}", self.vote, other.vote));
        let committed = format!("committed {:?}, {:?}", self.committed, other.committed);
        add(self.committed != other.committed, committed);
        add(self.purged != other.purged, format!("purged {:?}, {:?}", self.purged, other.purged));
        let ids = |state: &Self| state.log.iter().map(|entry| entry.log_id).collect::<Vec<_>>();
        add(self.log != other.log, format!("log {:?}, {:?}", ids(self), ids(other)));
        let applied = format!("applied {:?}, {:?}", self.applied, other.applied);
        add(self.applied != other.applied, applied);
        add(self.membership != other.membership, "membership".to_owned());
        add(self.map != other.map, format!("map {} and {}", self.map.len(), other.map.len()));
        add(self.snapshot != other.snapshot, "snapshot".to_owned());
        parts.join("; ")
    }
}

/// A call and the state after it.
#[derive(Debug)]
struct Step {
    name: &'static str,
    /// Operations of the disk before and after the call.
    begin: usize,
    end: usize,
    /// The call returns when its effect is on the disk.
    durable: bool,
    state: State,
}

/// The calls of a workload.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) disk: Arc<MemoryFs>,
    steps: Vec<Step>,
}

impl History {
    pub(crate) fn new(disk: &Arc<MemoryFs>) -> Self {
        let state = State::default();
        let empty = Step { name: "open", begin: 0, end: 0, durable: true, state };
        Self { disk: disk.clone(), steps: vec![empty] }
    }

    pub(crate) fn state(&self) -> &State {
        let last = self.steps.last().expect("the first one is never removed");
        &last.state
    }

    /// Adds a call that has begun after `begin` operations of the disk and returns now.
    pub(crate) fn add(&mut self, name: &'static str, begin: usize, durable: bool, state: State) {
        let end = self.disk.operations();
        self.steps.push(Step { name, begin, end, durable, state });
    }

    /// Checks a state that was found after a crash at the operation `at`.
    ///
    /// The state is that after some call: not before the last one whose effect had to survive, and
    /// not after the last one that had begun.
    pub(crate) fn check(&self, at: usize, loss: &Loss, found: &State) -> Result<(), String> {
        let killed = *loss == Loss::Nothing;
        let survives = |step: &Step| step.end <= at && (step.durable || killed);
        let first = self.steps.iter().rposition(survives).unwrap_or(0);
        let last = self.steps.iter().rposition(|step| step.begin <= at).unwrap_or(0);
        if self.steps[first..=last].iter().any(|step| step.state == *found) {
            return Ok(());
        }
        let legal = &self.steps[first];
        Err(format!(
            "the state is none of calls {first} ({}) to {last} ({}); found and call {first}: {}",
            legal.name,
            self.steps[last].name,
            found.difference(&legal.state)
        ))
    }
}
