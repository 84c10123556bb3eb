//! `sieve compact`.

use std::{
    ops::Bound,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use sievedb::{DEFAULT_KEYSPACE, Db, text::bytes};

use super::{Access, find_keyspace, open_store};
use crate::{
    error::{Error, Result},
    interrupt,
    text::{Notation, counted, read_name},
};

/// Longest wait of Ctrl-C for work in flight.
const SHUTDOWN_MAX: Duration = Duration::from_secs(60);

/// Merges the tables of each keyspace into one sorted run, and rebuilds damaged filters.
///
/// `--from` and `--to` limit it to tables with a key in the range, of one keyspace.
///
/// Drops replaced values and removed keys, except those in a history. Rewrites all tables of a
/// keyspace unless they are one run already, and keeps the old tables until the new ones are
/// durable. Ctrl-C cancels the compaction in progress and keeps the complete ones. To find damage,
/// run `sieve verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
    /// Only this keyspace. With `--from` or `--to` the default is `default`.
    #[arg(long, value_name = "NAME", value_parser = read_name)]
    keyspace: Option<String>,
    #[command(flatten)]
    notation: Notation,
    /// First key, inclusive.
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// End key, exclusive.
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let read =
            |key: &Option<String>| key.as_deref().map(|text| self.notation.read(text)).transpose();
        let (from, to) = (read(&self.from)?, read(&self.to)?);
        let db = open_store(&self.store, Access::Write)?;
        let has_bounds = from.is_some() || to.is_some();
        let name = self.keyspace.as_deref().or(has_bounds.then_some(DEFAULT_KEYSPACE));
        let keyspace = name.map(|name| find_keyspace(&self.store, &db, name, false)).transpose()?;
        let done = Arc::new(OnceLock::new());
        // Taken at the end: the handler's handle would keep the store open.
        let held = Arc::new(Mutex::new(Some(db.clone())));
        interrupt::call({
            let (done, held) = (Arc::clone(&done), Arc::clone(&held));
            move || {
                // Locked until the store is closed: the process must not exit before.
                let db = held.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(db) = &*db {
                    // A closed store has no statistics.
                    done.get_or_init(|| compacted_so_far(db));
                    // After a failure the next open recovers, as after a crash.
                    let _ = db.shutdown(SHUTDOWN_MAX);
                }
            }
        });
        let compacted = match &keyspace {
            None => db.compact(),
            Some(keyspace) => keyspace.compact_range((
                from.map_or(Bound::Unbounded, Bound::Included),
                to.map_or(Bound::Unbounded, Bound::Excluded),
            )),
        };
        // Waits for rebuilt filters even if a table is damaged.
        let compacted = compacted.and(db.wait_for_background());
        held.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (compacted, done.get()) {
            (Err(sievedb::Error::Closed), Some(done)) => {
                Err(Error::Interrupted { done: done.clone() })
            }
            (compacted, _) => Ok(compacted?),
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
