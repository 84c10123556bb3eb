//! Checks which transactions survived a crash.

use std::collections::{BTreeMap, HashMap};

use super::history::{History, Key, Outcome, WriteId};

/// Checks that `left`, the entries of a store after a crash, is the state after a prefix of the
/// commits of `history` that includes all up to the place `durable`. Returns the place of the last
/// commit of the longest such prefix, `None` for no commit.
///
/// # Errors
///
/// The difference to the prefix that fits best.
pub fn survivors(
    history: &History,
    left: &BTreeMap<Key, WriteId>,
    durable: Option<u64>,
) -> Result<Option<u64>, String> {
    let committed = history.transactions.iter().filter(|it| it.outcome != Outcome::Aborted);
    let mut commits: Vec<_> = committed.filter(|it| it.order.is_some()).collect();
    commits.sort_by_key(|commit| commit.order);
    let mut state: HashMap<&str, WriteId> =
        history.initial.iter().map(|(key, id)| (&**key, *id)).collect();
    let differs =
        |state: &HashMap<&str, WriteId>, key: &str| usize::from(state.get(key) != left.get(key));
    let keys = state.keys().copied().chain(left.keys().map(|key| &**key));
    let all: std::collections::BTreeSet<&str> = keys.collect();
    let mut differences: usize = all.into_iter().map(|key| differs(&state, key)).sum();
    let (mut place, mut found, mut best) = (None, None, (usize::MAX, None));
    for commit in [None].into_iter().chain(commits.into_iter().map(Some)) {
        for (key, id, is_removal) in commit.iter().flat_map(|commit| commit.writes()) {
            differences -= differs(&state, key);
            if is_removal {
                state.remove(&**key);
            } else {
                state.insert(key, id);
            }
            differences += differs(&state, key);
        }
        place = commit.map_or(place, |commit| commit.order);
        best = best.min((differences, place));
        if differences == 0 && place >= durable {
            found = Some(place);
        }
    }
    found.ok_or_else(|| {
        let (differences, place) = best;
        format!("commit {durable:?} was durable; after {place:?} {differences} keys differ")
    })
}
