//! Check of a state after a crash.

use std::sync::Arc;

use sievedb_doubles::{Loss, MemoryFs};
use sievedb_raft::PlantedBug;
use sievedb_tests::rng::Rng;

use crate::{
    history::{History, State},
    node::Node,
    series::*,
    workload::block_on,
};

/// Crashes the disk of `history`, opens the node, and checks its state. Then crashes the recovery
/// too if there is a seed `second`, or else continues, and opens the node again.
///
/// # Errors
///
/// The violation.
pub(crate) fn check(
    history: &History,
    at: usize,
    loss: &Loss,
    second: Option<u64>,
    bug: Option<PlantedBug>,
) -> Result<(), String> {
    let disk = Arc::new(history.disk.crash(at, loss));
    let mut node = Node::open(&disk, bug)?;
    let found = block_on(node.state())?;
    history.check(at, loss, &found)?;
    let Some(seed) = second else { return go_on(node, found, bug) };
    drop(node);
    let mut lots = Rng::new(seed);
    for _ in 0..4 {
        let at = lots.below(disk.operations() + 1);
        let loss = Loss::Random { seed: lots.number(), torn: lots.chance(1, 2) };
        let again = Arc::new(disk.crash(at, &loss));
        expect(&again, &found, bug).map_err(|error| format!("second crash: {error}"))?;
    }
    Ok(())
}

/// Appends an entry and saves a vote, and opens the node again.
fn go_on(mut node: Node, mut state: State, bug: Option<PlantedBug>) -> Result<(), String> {
    let last = state.log.last().map(|entry| entry.log_id).or(state.purged);
    // A snapshot may be ahead of the log. openraft purges the log then.
    let next = last.max(state.applied).map_or(0, |last| last.index + 1);
    let term = 1 << 20;
    let entry = Entry { log_id: log_id(term, next), payload: EntryPayload::Blank };
    block_on(async {
        if last < state.applied {
            let applied = state.applied.expect("it is above the last entry");
            node.log.purge(applied).await?;
            state.purged = Some(applied);
            state.log.clear();
        }
        node.log.blocking_append([entry.clone()]).await?;
        node.log.save_vote(&Vote::new(term, 1)).await
    })
    .map_err(|error| format!("the recovered node: {error:?}"))?;
    state.log.push(entry);
    state.vote = Some(Vote::new(term, 1));
    let disk = node.disk.clone();
    drop(node);
    let disk = Arc::new(disk.crash(disk.operations(), &Loss::Nothing));
    expect(&disk, &state, bug).map_err(|error| format!("opened again: {error}"))
}

fn expect(disk: &Arc<MemoryFs>, state: &State, bug: Option<PlantedBug>) -> Result<(), String> {
    let found = block_on(Node::open(disk, bug)?.state())?;
    if found == *state { Ok(()) } else { Err(found.difference(state)) }
}
