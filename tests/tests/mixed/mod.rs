//! Random calls of every feature, compared with a model after each call.
//!
//! | module           | content                                                             |
//! |------------------|---------------------------------------------------------------------|
//! | [`sets`]         | sets of options                                                     |
//! | [`story`]        | the store, its model, and the choice of calls                       |
//! | [`writes`]       | writes, conditional writes, changes of keyspaces                    |
//! | [`reads`]        | reads of keys, and the comparison of everything                     |
//! | [`ranges`]       | iterators from both ends, refreshed and held                        |
//! | [`snapshots`]    | snapshots, kept and compared later                                  |
//! | [`transactions`] | transactions beside each other, and their conflicts                 |
//! | [`steps`]        | writes of transactions                                              |
//! | [`own_writes`]   | what a transaction has written                                      |
//! | [`filter`]       | a compaction filter, and how the model follows it                   |
//! | [`failures`]     | openings, power cuts, faults                                        |
//! | [`history`]      | states that a crash may leave                                       |
//! | [`model`]        | keyspaces with values that expire                                   |
//! | [`past`]         | the past of a keyspace with a history                               |
//! | [`operator`]     | merge operators                                                     |

mod failures;
mod filter;
mod history;
mod model;
mod operator;
mod own_writes;
mod past;
mod ranges;
mod reads;
mod sets;
mod snapshots;
mod steps;
mod story;
mod transactions;
mod writes;

use std::collections::BTreeMap;

use sievedb_tests::{
    check::guarded,
    enumerate::on_two_threads,
    settings::{from_env, report, seed},
};

pub(crate) use self::{sets::SETS, story::Story};

/// Default number of calls; `SIEVE_MIXED_CALLS` sets another one.
const CALLS: usize = 40_000;

/// The store has the contents of the model after any calls, under every set of options. After a
/// power cut it has the state of a prefix of the writes, with all that were acknowledged.
///
/// `SIEVE_MIXED_SET` chooses the sets with this text in their names.
#[test]
fn mixed_calls_match_the_model() {
    let seed = seed("mixed calls", 1);
    let calls = from_env("SIEVE_MIXED_CALLS", CALLS);
    let only = from_env("SIEVE_MIXED_SET", String::new());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let sets: Vec<_> = SETS.iter().filter(|set| set.name.contains(&only)).collect();
    assert!(!sets.is_empty(), "no set of options has {only} in its name");
    let results = on_two_threads(&sets, |set| {
        guarded(|| {
            let mut story = Story::new(set, seed, None);
            for _ in 0..calls.div_ceil(SETS.len()) {
                story.call();
            }
            story.end();
            Ok(story.counts().clone())
        })
    });
    let mut wrong = Vec::new();
    for (set, result) in sets.iter().zip(results) {
        match result {
            Ok(of_set) => {
                of_set.iter().for_each(|(call, count)| *counts.entry(call).or_default() += count);
            }
            Err(text) => wrong.push(format!("{}: {text}", set.name)),
        }
    }
    let is_outcome = |call: &str| call.starts_with('(');
    let made = counts.iter().filter(|(call, _)| !is_outcome(call)).map(|(_, count)| count);
    let made: usize = made.sum();
    let kinds: Vec<_> = counts.iter().map(|(call, count)| format!("{count} {call}")).collect();
    report(&format!(
        "mixed calls: {made} calls, {} sets of options, {} violations",
        sets.len(),
        wrong.len()
    ));
    report(&format!("mixed calls: {}", kinds.join(", ")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // Fewer calls of a kind would show nothing. Each happens several times as often.
    let of_calls = counts.iter().filter(|(call, _)| !is_outcome(call));
    let rarest = of_calls.min_by_key(|(_, count)| **count).expect("there were calls");
    assert!(
        *rarest.1 >= calls / 20_000 || !only.is_empty(),
        "only {} times {}",
        rarest.1,
        rarest.0
    );
    let outcomes =
        ["(conflict)", "(failed)", "(failed, read-only)", "(merge failed)", "(filtered)"];
    let missing: Vec<_> = outcomes.iter().filter(|it| !counts.contains_key(*it)).collect();
    assert!(missing.is_empty() || calls < 10 * CALLS || !only.is_empty(), "never {missing:?}");
}
