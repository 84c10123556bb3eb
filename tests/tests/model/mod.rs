//! Random calls compared with a model, with power cuts.

mod calls;
mod reads;

pub(crate) use calls::Story;
use sievedb_tests::settings::{from_env, report, seed};

/// Default number of calls; `SIEVE_OPS` sets another one.
const CALLS: usize = 200_000;

/// The store equals the model after any sequence of calls. After a power cut it has the state of a
/// prefix of the writes, with all acknowledged `Disk` writes and whole batches.
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
    // Fewer calls of a kind would show nothing. Each happens about ten times as often.
    if calls >= CALLS {
        let rare = counts.rarest();
        assert!(rare.1 >= 20, "only {} times {}", rare.1, rare.0);
    }
}
