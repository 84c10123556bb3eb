//! `sieve compact`.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sievedb::{Db, text::bytes};

use super::{Access, open_store};
use crate::{
    error::{Error, Result},
    interrupt,
    text::counted,
};

/// Longest wait of Ctrl-C for work in flight.
const SHUTDOWN_MAX: Duration = Duration::from_secs(60);

/// Merges the tables of each keyspace into one sorted run, and rebuilds damaged filters.
///
/// Drops replaced values and removed keys. Rewrites all tables of a keyspace unless they are one
/// run already, and keeps the old tables until the new ones are durable. Ctrl-C cancels the
/// compaction in progress and keeps the complete ones. To find damage, run `sieve verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let db = open_store(&self.store, Access::Write)?;
        let interrupted = Arc::new(AtomicBool::new(false));
        // Taken at the end: the handler's handle would keep the store open.
        let held = Arc::new(Mutex::new(Some(db.clone())));
        interrupt::call({
            let (interrupted, held) = (Arc::clone(&interrupted), Arc::clone(&held));
            move || {
                interrupted.store(true, Ordering::Release);
                // Locked until the store is closed: the process must not exit before.
                let db = held.lock().unwrap_or_else(PoisonError::into_inner);
                // After a failure the next open recovers, as after a crash.
                let _ = db.as_ref().map(|db| db.shutdown(SHUTDOWN_MAX));
            }
        });
        let compacted = db.compact();
        // Waits for rebuilt filters even if a table is damaged.
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

/// Returns the number of compactions since the store was opened, and their bytes.
fn compacted_so_far(db: &Db) -> String {
    let done = db.stats().background;
    format!(
        "{} wrote {}; other tables are unchanged",
        counted(done.compactions, ["compaction", "compactions"]),
        bytes(done.compaction_bytes_written)
    )
}
