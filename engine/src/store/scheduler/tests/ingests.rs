//! Ingests while work is due.

use super::{
    priorities::{add_runs, busy, claim, options},
    *,
};

/// Each ingest may add a run to level 0, which only the delay of writes bounds.
#[test]
fn an_ingest_waits_while_level0_stops_writes() {
    let busy = busy(options(1));
    let db = &busy.db;
    add_runs(db, "a", 32, 1);
    let (sender, ingested) = mpsc::channel();
    let keyspace = db.keyspace("a").expect("it exists");
    let ingest = thread::spawn(move || {
        let entries = [(0_u64.to_be_bytes(), "above all runs")];
        sender.send(keyspace.ingest(entries).map(drop))
    });
    let early = ingested.recv_timeout(Duration::from_millis(300));
    assert!(early.is_err(), "it waits for level 0: {early:?}");
    while let Some(job) = claim(db) {
        assert!(db.store().carry_out(&job), "there is room");
    }
    let late = ingested.recv_timeout(Duration::from_secs(60)).expect("the compaction notifies it");
    late.expect("there is room");
    ingest.join().expect("it has ended").expect("the receiver is alive");
}
