//! Power cuts while FIFO removes tables: what is left is a suffix of a prefix of the history.

use std::{collections::BTreeMap, sync::Arc};

use sievedb::{Db, Durability, Fifo, Options, planted::PlantedBug};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    rng::mix,
    settings::{STORE_DIR, report, seed, small_keyspace, small_options},
};

const FLUSHES: usize = 10;
const WRITES: usize = 5;

type State = BTreeMap<String, String>;

/// A write: an insert with a value, or a removal.
type WriteOf = (String, Option<String>);

fn options(fs: Arc<MemoryFs>, bug: Option<PlantedBug>) -> Options {
    // Three flushes fit.
    let keyspace = small_keyspace().compaction_style(Fifo::new(4 << 10));
    let options = small_options(fs as _).keyspace(keyspace);
    bug.into_iter().fold(options, Options::planted_bug)
}

/// Returns the writes of each flush. All overwrite or remove keys of flushes before.
fn history() -> Vec<Vec<WriteOf>> {
    let write = |flush: usize, number: usize| {
        let key = format!("key{}", (number + flush * 2) % 7);
        // Random digits: blocks do not shrink.
        let noise: String = (0..12)
            .map(|part| format!("{:016x}", mix((flush * 1000 + number * 50 + part) as u64)))
            .collect();
        (key, (number != 3).then(|| format!("{flush}.{number} {noise}")))
    };
    (0..FLUSHES).map(|flush| (0..WRITES).map(|number| write(flush, number)).collect()).collect()
}

fn state_of<'w>(writes: impl Iterator<Item = &'w WriteOf>) -> State {
    let mut state = State::new();
    for (key, value) in writes {
        match value {
            Some(value) => drop(state.insert(key.clone(), value.clone())),
            None => drop(state.remove(key)),
        }
    }
    state
}

fn contents(db: &Db) -> Result<State, String> {
    let text = |bytes: bytes::Bytes| String::from_utf8(bytes.to_vec()).expect("text");
    let all = db.iter().map(|entry| entry.map(|(key, value)| (text(key), text(value))));
    all.collect::<sievedb::Result<_>>().map_err(|error| error.to_string())
}

/// Checks that `state` has the writes of a number of flushes from `durable` on, without those of
/// the oldest. At least the newest flush is whole.
fn check(state: &State, history: &[Vec<WriteOf>], durable: usize) -> Result<(), String> {
    let all: Vec<&WriteOf> = history.iter().flatten().collect();
    let is_legal = (durable * WRITES..=all.len()).any(|end| {
        // The last flush may not have happened, and the one before is the newest then.
        let newest = (end / WRITES).saturating_sub(1) * WRITES;
        (0..=newest).step_by(WRITES).any(|start| {
            let left = state_of(all[start..end].iter().copied());
            left == *state
        })
    });
    is_legal.then_some(()).ok_or_else(|| format!("after {durable} durable flushes: {state:?}"))
}

/// Cuts the power after every operation. Returns the number of states, and how many flushes were
/// removed without a cut.
pub(crate) fn crash_everywhere(bug: Option<PlantedBug>) -> Result<(usize, usize), String> {
    let seed = seed("power cuts of FIFO", 1);
    let disk = Arc::new(MemoryFs::with_seed(seed));
    let history = history();
    let db = options(Arc::clone(&disk), bug).open(STORE_DIR).map_err(|e| e.to_string())?;
    let mut durable_at = vec![0];
    for (writes, flushes) in history.iter().zip(1..) {
        for (key, value) in writes {
            let written = match value {
                Some(value) => db.insert(key, value),
                None => db.remove(key),
            };
            written.map_err(|error| error.to_string())?;
        }
        db.persist(Durability::Disk).map_err(|error| error.to_string())?;
        durable_at.push(disk.operations());
        db.flush().map_err(|error| error.to_string())?;
        check(&contents(&db)?, &history[..flushes], flushes)?;
    }
    let removed = db.stats().background.tables_unlinked_unread as usize;
    drop(db);
    let mut states = 0;
    for at in 0..=disk.operations() {
        let durable = durable_at.iter().rposition(|&end| end <= at).unwrap_or(0);
        let random = |torn| Loss::Random { seed: mix(seed ^ mix(at as u64)), torn };
        let losses = [Loss::Nothing, Loss::Everything, random(false), random(true)];
        for loss in losses.into_iter().take(if disk.unsynced(at) == 0 { 1 } else { 4 }) {
            let left = Arc::new(disk.crash(at, &loss));
            let context = |text: String| format!("cut at {at}, {loss:?}: {text}");
            let recover = || -> Result<State, String> {
                let opened = options(Arc::clone(&left), None).open(STORE_DIR);
                contents(&opened.map_err(|error| error.to_string())?)
            };
            let state = recover().map_err(context)?;
            check(&state, &history, durable).map_err(context)?;
            // The next process may remove more.
            let again = recover().map_err(context)?;
            check(&again, &history, durable).map_err(context)?;
            states += 2;
        }
    }
    Ok((states, removed))
}

#[test]
fn power_cuts_of_fifo_lose_the_oldest_tables_only() {
    let (states, removed) =
        crash_everywhere(None).unwrap_or_else(|violation| panic!("{violation}"));
    report(&format!("power cuts of FIFO: {states} states, {removed} tables removed"));
    assert!(states > 200 && removed >= FLUSHES / 2, "{states} states, {removed} removed");
}
