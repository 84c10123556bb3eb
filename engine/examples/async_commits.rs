//! Appends to a replicated log without a thread per append: many appends are in flight, and one
//! sync acknowledges all that it covers.
//!
//! `cargo run -p sievedb --example async_commits`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::{
    collections::VecDeque,
    error,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use sievedb::{CommitFuture, Db, Durability, Error};

/// Appends in flight, as a consensus library limits them.
const IN_FLIGHT_MAX: usize = 64;

/// Appends `entry` as number `index`. It is readable at return, and may be acknowledged to the
/// leader when the future resolves.
fn append(db: &Db, index: u64, entry: &str) -> Result<CommitFuture, Error> {
    let mut batch = db.batch();
    batch.insert(db, index.to_be_bytes(), entry)?;
    batch.insert(db, "last index", index.to_be_bytes())?;
    batch.commit_async(Durability::Disk)
}

/// Appends `entries` entries. Returns the sequence number that acknowledges the last one.
async fn append_all(db: &Db, entries: u64) -> Result<u64, Error> {
    let (mut in_flight, mut acknowledged) = (VecDeque::new(), 0);
    for index in 0..entries {
        if in_flight.len() == IN_FLIGHT_MAX
            && let Some(oldest) = in_flight.pop_front()
        {
            acknowledged = oldest.await?;
        }
        in_flight.push_back(append(db, index, "set x = 1")?);
    }
    for commit in in_flight {
        acknowledged = commit.await?;
    }
    Ok(acknowledged)
}

/// Unparks a thread. A program uses its executor instead.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let acknowledged = block_on(append_all(&db, 1_000))?;
    assert!(db.durable_sequence() >= acknowledged);
    let syncs = db.stats().writes.log_syncs;
    println!("1000 appends became durable by {syncs} syncs");

    // Without a future: write, and wait for the watermark.
    let commit = append(&db, 1_000, "set x = 2")?;
    db.wait_durable(commit.sequence())?;
    println!("durable up to sequence number {}", db.durable_sequence());
    db.close()?;
    Ok(())
}
