//! Verifies the log segments that are kept for the change stream.

use std::{path::Path, sync::Arc};

use crate::{
    Result, VerifyReport,
    fs::Fs,
    manifest::{ManifestState, retained::RetainedLog},
    store::Store,
    wal::tail::{LogTail, TailSegment},
};

impl Store {
    /// Verifies the retained segments, without a lock: they do not change.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed).
    pub(super) fn verify_changes(&self, report: &mut VerifyReport) -> Result<()> {
        let retained = || self.versions.read_manifest(|manifest| manifest.state().retained.clone());
        let Some(kept) = retained() else { return Ok(()) };
        let mut tail = self.log_tail();
        for (id, log) in kept.logs_with_changes() {
            self.tables.check_not_closing()?;
            let checked = verify_segment(&mut tail, id, log, report);
            // A retention that ended meanwhile is no damage.
            let is_kept = || retained().is_some_and(|retained| retained.logs.contains_key(&id));
            if let Some(error) = checked.err().filter(|_| is_kept()) {
                report.error(&error);
            }
        }
        Ok(())
    }
}

/// Verifies the retained segments of a store that no process writes.
pub(super) fn verify_changes_of(
    fs: &Arc<dyn Fs>,
    folder: &Path,
    state: &ManifestState,
    report: &mut VerifyReport,
) {
    let Some(retained) = &state.retained else { return };
    let mut tail = LogTail::new(Arc::clone(fs), folder.to_owned(), state.store_id);
    for (id, log) in retained.logs_with_changes() {
        let checked = verify_segment(&mut tail, id, log, report);
        checked.unwrap_or_else(|error| report.error(&error));
    }
}

/// Reads every batch of a segment, with its entries.
fn verify_segment(
    tail: &mut LogTail,
    id: u64,
    log: RetainedLog,
    report: &mut VerifyReport,
) -> Result<()> {
    let RetainedLog { secret, last_sequence, bytes, .. } = log;
    let segment = TailSegment { id, secret: Some(secret), bytes, last_sequence };
    let mut after = 0;
    while after < last_sequence {
        let batch = tail.next(&segment, after)?;
        let read = batch.batch.into_iter().try_for_each(|entry| entry.map(drop));
        read.map_err(|source| tail.corrupt(&batch, source))?;
        after = batch.last;
        report.log_batches += 1;
    }
    Ok(())
}
