//! `sieve compact`.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sievedb::{Db, text::bytes};

use super::{Purpose, open_store};
use crate::{
    error::{Error, Result},
    interrupt,
    text::counted,
};

/// How long Ctrl-C waits for work in flight.
const SHUTDOWN_MAX: Duration = Duration::from_secs(60);

/// Merges the tables of each keyspace into one sorted run, without what was replaced or removed,
/// and rebuilds damaged filters.
///
/// Ctrl-C cancels the compaction in progress and keeps those that are complete. Reads and writes
/// all tables of a keyspace, unless they are one run already. The old tables stay until the new
/// ones are durable. `sieve verify` finds damage; this does not.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let db = open_store(&self.store, Purpose::Write)?;
        let interrupted = Arc::new(AtomicBool::new(false));
        // Taken back at the end: the handle of the handler would keep the store open.
        let held = Arc::new(Mutex::new(Some(db.clone())));
        interrupt::call({
            let (interrupted, held) = (Arc::clone(&interrupted), Arc::clone(&held));
            move || {
                interrupted.store(true, Ordering::Release);
                // Held until the store is closed: the process must not end before.
                let db = held.lock().unwrap_or_else(PoisonError::into_inner);
                // A failure leaves the store as a crash does.
                let _ = db.as_ref().map(|db| db.shutdown(SHUTDOWN_MAX));
            }
        });
        let compacted = db.compact();
        // Filters of other tables are rebuilt also if a table is damaged.
        let compacted = compacted.and(db.wait_for_background());
        held.lock().unwrap_or_else(PoisonError::into_inner).take();
        match compacted {
            Err(sievedb::Error::Closed) if interrupted.load(Ordering::Acquire) => {
                Err(Error::Interrupted { done: compacted_so_far(&db) })
            }
            compacted => Ok(compacted?),
        }
    }
}

/// What compactions have done since the store was opened.
fn compacted_so_far(db: &Db) -> String {
    let done = db.stats().background;
    format!(
        "{} wrote {}; the other tables are as they were",
        counted(done.compactions, ["compaction", "compactions"]),
        bytes(done.compaction_bytes_written)
    )
}
