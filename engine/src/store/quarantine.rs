//! Quarantines tables that a compaction cannot read.

use std::{ops::ControlFlow, path::Path, sync::Arc, time::Duration};

use sievedb_sstable::file_checksum;

use super::{Store, compact::Ended};
use crate::{
    Error, Result,
    compaction::choice::Compaction,
    file_name::FileName,
    listener::Event,
    read::tree::Tree,
    table::{LiveTable, files::TableFiles},
};

/// Pauses between attempts to read a table after a read error.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(20)];

/// Compactions that read errors of one table may abort. Then the table is quarantined, even if it
/// could be read whole after each of them.
const READ_ERRORS_MAX: u32 = 3;

impl Store {
    /// Quarantines the input of `compaction` that `error` is about, if the error is damage or a
    /// lasting read error. Does nothing if the keyspace was dropped or cleared meanwhile.
    ///
    /// # Errors
    ///
    /// `error`, if it is about anything else; [`Error::Closed`].
    pub(super) fn quarantine_input(
        &self,
        tree: &Tree,
        compaction: &Compaction,
        error: Error,
    ) -> Result<Ended> {
        let Some((id, path)) = input_of(compaction, &error) else { return Err(error) };
        let version = tree.kept_view().version;
        let mut tables = version.tables().map(|(_, _, live)| live);
        let Some(live) = tables.find(|live| live.meta.id == id && *live.path == *path) else {
            return Ok(Ended::Interrupted);
        };
        let is_read_error = matches!(error, Error::Io { .. });
        if is_read_error
            && live.quarantine.count_read_error() < READ_ERRORS_MAX
            && self.is_readable(live)?
        {
            // Chosen again at once.
            return Ok(Ended::Interrupted);
        }
        let is_new = live.quarantine.set(error.clone(), self.options.clock.now());
        if let Some(time) = live.quarantine.retry_at() {
            self.scheduler.look_again_at(time, tree.id);
        }
        if is_new {
            let (keyspace, table_id) = (tree.name(), live.meta.id);
            self.notify(&Event::TableQuarantined { keyspace, table_id, error });
        }
        Ok(Ended::Quarantined)
    }

    /// Returns whether the whole table can be read now. Damage counts as read: the next compaction
    /// reports it.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    fn is_readable(&self, live: &LiveTable) -> Result<bool> {
        let (fs, counters) = (Arc::clone(&self.tables.fs), Arc::clone(&self.tables.counters));
        let files = TableFiles::one_by_one(fs, counters);
        for pause in [Duration::ZERO].into_iter().chain(PAUSES) {
            self.options.clock.sleep(pause);
            self.tables.check_not_closing()?;
            let read = files.source_once(&live.path).and_then(|source| {
                file_checksum(&*source, &mut |_| match self.tables.is_closing() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            });
            if read.is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets the next compactions read the quarantined tables of `tree` again, and its blob files
    /// with a value that could not be read.
    pub(super) fn retry_quarantined(&self, tree: &Tree) {
        for (_, _, live) in tree.view_seldom().version.tables() {
            live.quarantine.retry();
            live.blobs.iter().for_each(|file| file.retry());
        }
    }
}

/// Returns the input of `compaction` that could not be read, with its path, if `error` is about
/// one.
fn input_of<'e>(compaction: &Compaction, error: &'e Error) -> Option<(u64, &'e Path)> {
    let path = match error {
        Error::Corrupt { path, .. } => path,
        // Out of descriptors or memory: does not concern the table.
        _ if error.is_retryable() => return None,
        Error::Io { op: "read", path, .. } => path,
        _ => return None,
    };
    let name = path.file_name()?.to_str()?;
    let Some(FileName::Table(id)) = FileName::parse(name) else { return None };
    compaction.tables().any(|input| input == id).then_some((id, path))
}
