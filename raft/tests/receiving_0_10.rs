//! Snapshots that several tasks begin to receive at once, with openraft 0.10.

#[path = "support/next.rs"]
mod support;

use std::{
    io::SeekFrom,
    sync::{Arc, Barrier},
    thread,
};

use sievedb::Db;
use sievedb_raft::{Options, StateMachine};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use support::{Map, Types};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[test]
fn streams_that_begin_at_once_are_independent() -> Result<()> {
    const THREADS: usize = 4;
    const ROUNDS: usize = 500;
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("store"))?;
    let map = Map(db.keyspace("map")?);
    let opened = Options::default().open_0_10(&db, dir.path().join("snapshots"), map)?;
    let state_machine: StateMachine<Types, Map> = opened.1;
    let barrier = Arc::new(Barrier::new(THREADS));
    let receive = |thread: usize| {
        let (receiver, barrier) = (state_machine.receiver(), barrier.clone());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.expect("a runtime");
            let mut failure = Ok(());
            for round in 0..ROUNDS {
                barrier.wait();
                let begun = receiver.begin();
                barrier.wait();
                let content = format!("thread {thread} in round {round}").into_bytes();
                let received = runtime.block_on(async {
                    let mut stream = begun.map_err(|error| format!("{error:?}"))?;
                    let mut found = Vec::new();
                    let written = stream.write_all(&content).await;
                    written.map_err(|error| error.to_string())?;
                    let start = stream.seek(SeekFrom::Start(0)).await;
                    start.map_err(|error| error.to_string())?;
                    let read = stream.read_to_end(&mut found).await;
                    read.map_err(|error| error.to_string())?;
                    Ok::<_, String>(found)
                });
                // A thread that fails must not leave the others at the barrier.
                if received.as_deref() != Ok(&content[..]) {
                    failure = Err(format!("round {round}: {received:?}"));
                }
            }
            failure
        })
    };
    for thread in (0..THREADS).map(receive).collect::<Vec<_>>() {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(())
}
