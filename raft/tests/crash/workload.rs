//! Random calls of log and state machine, in the order in which openraft may make them.

use std::{future::Future, sync::Arc};

use sievedb_doubles::MemoryFs;
use sievedb_raft::PlantedBug;
use sievedb_tests::rng::Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    history::{History, Kept, State},
    node::Node,
    series::*,
    support::Request,
};

/// Calls of a workload.
const CALLS: usize = 120;

/// Runs `future` on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime without drivers").block_on(future)
}

/// Runs the workload of a seed on a new disk.
pub(crate) fn record(seed: u64, bug: Option<PlantedBug>) -> History {
    let disk = Arc::new(MemoryFs::new());
    let node = Node::open(&disk, bug).expect("a new disk");
    let history = History::new(&disk);
    let mut run = Run { node, history, lots: Rng::new(seed), term: 1 };
    block_on(async {
        for _ in 0..CALLS {
            run.call().await;
        }
    });
    run.history
}

struct Run {
    node: Node,
    history: History,
    lots: Rng,
    term: u64,
}

impl Run {
    async fn call(&mut self) {
        let state = self.history.state().clone();
        let last = state.log.last().map(|entry| entry.log_id).or(state.purged);
        match self.lots.below(20) {
            0..=1 => self.vote(state).await,
            2..=7 => self.append(state, last).await,
            8..=9 => self.save_committed(state, last).await,
            10..=13 => self.apply(state).await,
            14 => self.truncate(state, last).await,
            15 => self.build(state).await,
            16 => self.purge(state).await,
            17 => self.install(state, last).await,
            18 => self.node.db.flush().expect("no fault"),
            _ => self.node.db.compact().expect("no fault"),
        }
    }

    fn begin(&self) -> usize {
        self.history.disk.operations()
    }

    async fn vote(&mut self, mut state: State) {
        self.term += 1;
        let vote = Vote::new(self.term, self.lots.number() % 3);
        let begin = self.begin();
        self.node.log.save_vote(&vote).await.expect("no fault");
        state.vote = Some(vote);
        self.history.add("vote", begin, true, state);
    }

    fn entries(&mut self, next: u64) -> Vec<Entry> {
        let count = 1 + self.lots.below(3) as u64;
        (next..next + count).map(|index| self.entry(index)).collect()
    }

    fn entry(&mut self, index: u64) -> Entry {
        let key = format!("key {}", self.lots.below(12));
        let value = format!("{index} {}", "v".repeat(self.lots.below(300)));
        let log_id = log_id(self.term, index);
        let payload = match self.lots.below(10) {
            0 => EntryPayload::Blank,
            1 => return membership(log_id, index),
            2..=3 => {
                let request = Request::CompareAndSet { key, expected: None, value };
                EntryPayload::Normal(request)
            }
            _ => EntryPayload::Normal(Request::Put { key, value }),
        };
        Entry { log_id, payload }
    }

    /// Appends once, or twice without waiting for the first sync.
    async fn append(&mut self, mut state: State, last: Option<LogId>) {
        let first = self.entries(last.map_or(0, |last| last.index + 1));
        state.log.extend(first.clone());
        let begin = self.begin();
        if self.lots.chance(1, 2) {
            self.node.log.blocking_append(first).await.expect("no fault");
            self.history.add("append", begin, true, state);
            return;
        }
        let second = self.entries(first.last().map_or(0, |last| last.log_id.index + 1));
        let mut other = self.node.log.clone();
        let (one, two) = tokio::join!(
            self.node.log.blocking_append(first),
            other.blocking_append(second.clone())
        );
        one.and(two).expect("no fault");
        self.history.add("append", begin, true, state.clone());
        state.log.extend(second);
        self.history.add("append behind another", begin, true, state);
    }

    async fn save_committed(&mut self, mut state: State, last: Option<LogId>) {
        let known = state.committed.max(state.applied);
        let later = state.log.iter().filter(|entry| Some(entry.log_id) > known);
        let later: Vec<_> = later.map(|entry| entry.log_id).collect();
        if later.is_empty() || last <= known {
            return;
        }
        state.committed = Some(*self.lots.pick(&later));
        let begin = self.begin();
        self.node.log.save_committed(state.committed).await.expect("no fault");
        self.history.add("committed", begin, false, state);
    }

    async fn apply(&mut self, mut state: State) {
        let known = |entry: &&Entry| {
            Some(entry.log_id) > state.applied && Some(entry.log_id) <= state.committed
        };
        let entries: Vec<_> = state.log.iter().filter(known).cloned().collect();
        if entries.is_empty() {
            return;
        }
        let begin = self.begin();
        apply(&mut self.node.state_machine, entries.clone()).await.expect("no fault");
        for entry in entries {
            change(&mut state, entry);
        }
        self.history.add("apply", begin, false, state);
    }

    async fn truncate(&mut self, mut state: State, last: Option<LogId>) {
        let known = state.committed.max(state.applied);
        let later = state.log.iter().filter(|entry| Some(entry.log_id) > known);
        let later: Vec<_> = later.map(|entry| entry.log_id).collect();
        if later.is_empty() || last <= known {
            return;
        }
        let from = *self.lots.pick(&later);
        let begin = self.begin();
        let kept = state.log.iter().map(|entry| entry.log_id).take_while(|&id| id < from);
        let before = kept.last().or(state.purged);
        truncate(&mut self.node.log, from, before).await.expect("no fault");
        state.log.retain(|entry| entry.log_id < from);
        self.history.add("truncate", begin, true, state);
        self.term += 1;
    }

    async fn build(&mut self, mut state: State) {
        let begin = self.begin();
        let mut builder = self.node.state_machine.get_snapshot_builder().await;
        let built = builder.build_snapshot().await.expect("no fault");
        assert_eq!(built.meta.last_log_id, state.applied);
        assert_eq!(built.meta.last_membership, state.membership);
        state.snapshot = Some(Kept { meta: built.meta, map: state.map.clone() });
        self.history.add("build", begin, true, state);
    }

    async fn purge(&mut self, mut state: State) {
        let kept = state.snapshot.as_ref().and_then(|kept| kept.meta.last_log_id);
        let known = state.log.iter().filter(|entry| Some(entry.log_id) <= kept);
        let known: Vec<_> = known.map(|entry| entry.log_id).collect();
        if !known.is_empty() {
            let to = *self.lots.pick(&known);
            self.purge_to(&mut state, to).await;
        }
    }

    async fn purge_to(&mut self, state: &mut State, to: LogId) {
        let begin = self.begin();
        self.node.log.purge(to).await.expect("no fault");
        state.log.retain(|entry| entry.log_id.index > to.index);
        state.purged = Some(to);
        self.history.add("purge", begin, false, state.clone());
    }

    /// Installs the snapshot of another node, which is ahead, and purges the log. openraft 0.9
    /// purges first, and calls nothing in between; 0.10 purges when the snapshot is installed.
    async fn install(&mut self, mut state: State, last: Option<LogId>) {
        let next = last.max(state.applied).map_or(0, |last| last.index + 1);
        let index = next + self.lots.below(5) as u64;
        let (meta, bytes, other) = self.other_node(index).await;
        let begin = self.begin();
        let state_machine = &mut self.node.state_machine;
        let mut received = incoming(state_machine).await.expect("no fault");
        for piece in bytes.chunks(5000) {
            received.write_all(piece).await.expect("no fault");
        }
        let to = meta.last_log_id.expect("it has applied entries");
        if PURGES_BEFORE_INSTALLATION {
            self.node.log.purge(to).await.expect("no fault");
        }
        install(state_machine, &meta, received).await.expect("no fault");
        state.log.retain(|entry| entry.log_id.index > to.index);
        state.purged = Some(to);
        state.applied = other.applied;
        state.membership = other.membership;
        state.map = other.map;
        let map = state.map.clone();
        state.snapshot = Some(Kept { meta, map });
        self.history.add("install", begin, true, state.clone());
        if !PURGES_BEFORE_INSTALLATION {
            self.purge_to(&mut state, to).await;
        }
    }

    /// Returns a snapshot up to `index` of another node, as metadata, bytes and contents.
    async fn other_node(&mut self, index: u64) -> (Meta, Vec<u8>, State) {
        let mut node = Node::open(&Arc::new(MemoryFs::new()), None).expect("a new disk");
        let mut state = State::default();
        for index in index.saturating_sub(20)..=index {
            let entry = self.entry(index);
            apply(&mut node.state_machine, vec![entry.clone()]).await.expect("no fault");
            change(&mut state, entry);
        }
        let mut builder = node.state_machine.get_snapshot_builder().await;
        let mut built = builder.build_snapshot().await.expect("no fault");
        let mut bytes = Vec::new();
        built.snapshot.read_to_end(&mut bytes).await.expect("no fault");
        (built.meta, bytes, state)
    }
}

/// Applies an entry to the model.
fn change(state: &mut State, entry: Entry) {
    state.applied = Some(entry.log_id);
    match entry.payload {
        EntryPayload::Blank => {}
        EntryPayload::Membership(membership) => {
            state.membership = StoredMembership::new(Some(entry.log_id), membership);
        }
        EntryPayload::Normal(Request::Put { key, value }) => {
            state.map.insert(key, value);
        }
        EntryPayload::Normal(Request::CompareAndSet { key, expected, value }) => {
            if state.map.get(&key) == expected.as_ref() {
                state.map.insert(key, value);
            }
        }
    }
}
