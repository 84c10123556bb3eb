//! The change stream in asynchronous code.

use futures_util::StreamExt as _;
use sievedb::ChangesStream;

use super::{ChangeBatch, open};
use crate::async_commits::executor::block_on;

fn next(changes: &mut ChangesStream) -> Option<ChangeBatch> {
    block_on(changes.next()).map(Result::unwrap)
}

#[test]
fn a_stream_waits_for_batches_and_ends_with_the_store() {
    let (_, db) = open();
    for key in ["a", "b"] {
        db.insert(key, "1").unwrap();
    }
    // `StreamExt` has a `next` too: it is not that of an iterator.
    let first = db.changes(0).unwrap().next().unwrap().unwrap();
    let mut changes = db.changes(0).unwrap().into_stream();
    let sequences = changes.by_ref().take(2).map(|batch| batch.unwrap().last_sequence());
    let sequences: Vec<_> = block_on(sequences.collect());
    assert_eq!(sequences, [first.last_sequence(), first.last_sequence() + 1]);
    assert_eq!(changes.position(), sequences[1]);
    std::thread::scope(|scope| {
        scope.spawn(|| db.insert("c", "1").unwrap());
        assert_eq!(next(&mut changes).unwrap().last_sequence(), sequences[1] + 1);
    });
    drop(db);
    assert!(next(&mut changes).is_none());
}
