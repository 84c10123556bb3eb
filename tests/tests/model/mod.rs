//! Random calls against a model, with power cuts.

mod calls;
mod reads;

pub(crate) use calls::Story;
use sievedb_tests::settings::{from_env, report, seed};

/// Calls of a run, unless `SIEVE_OPS` says otherwise.
const CALLS: usize = 200_000;

/// Whatever is called in whatever order, the store answers as the model does. A power cut leaves
/// the state after some of the writes, in order, none that was acknowledged as durable among those
/// that are gone, and no batch in part.
#[test]
fn store_matches_the_model() {
    let seed = seed("model", 1);
    let calls = from_env("SIEVE_OPS", CALLS);
    let mut story = Story::new(seed, None);
    for call in 0..calls {
        story.call(call);
    }
    story.end();
    let counts = story.counts();
    report(&format!("model: {calls} calls: {counts}"));
    // Fewer would mean that the test has become blind. Each happens about ten times as often.
    if calls >= CALLS {
        let rare = counts.rarest();
        assert!(rare.1 >= 20, "only {} times {}", rare.1, rare.0);
    }
}
