//! Sole writes: writes placed while no other write is queued or in flight. A sole write needs no
//! queue. Its thread holds the locks of log files and placement until the write is visible.

use std::mem;

use sievedb_format::SequenceNumber;

use super::{LogHost, Numbered, PanicGuard, Placement, PublishQueue, SharedLog, Write};
use crate::{
    Result,
    log::{Payload, PendingRecord},
};

/// A placed write that is not in the queue. Drop makes it visible, under the placement lock: a
/// condition searches only the queue for invisible writes.
#[derive(Debug)]
struct Publication<'a> {
    publish: &'a PublishQueue,
    last: SequenceNumber,
}

impl Drop for Publication<'_> {
    fn drop(&mut self) {
        self.publish.advance(self.last);
    }
}

/// Notifies the waiters when dropped, if the write was placed.
#[derive(Debug)]
struct Notification<'a> {
    publish: &'a PublishQueue,
    is_due: bool,
}

impl Drop for Notification<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.publish.notify();
        }
    }
}

/// Commits `write`, which has no values beside the log, with the durability of the operating
/// system. Returns its numbers, and what `admit` returned for it under the placement lock.
///
/// Returns `None` if the write must be queued; then `write` is unchanged. The reasons: another
/// write is queued or in flight, another thread holds the log lock, the record begins a segment, or
/// `admit` returned `None`.
///
/// # Errors
///
/// Those of `admit` and of [`Placement::number`], and [`Error::Io`](crate::Error::Io). The write is
/// not visible, and `write` is unchanged.
pub(crate) fn commit_sole<H: LogHost, T>(
    host: &H,
    log: &SharedLog,
    publish: &PublishQueue,
    write: &mut Write,
    admit: impl FnOnce(&mut Placement, &Write) -> Result<Option<T>>,
) -> Result<Option<(Numbered, T)>> {
    // Dropped after the locks: it wakes tasks.
    let mut notification = Notification { publish, is_due: false };
    let Some(mut log) = log.try_lock(host) else { return Ok(None) };
    let mut placement = host.placement();
    if !placement.is_idle(publish) {
        return Ok(None);
    }
    let Some(admitted) = admit(&mut placement, write)? else { return Ok(None) };
    let numbers = placement.number(publish, write)?;
    notification.is_due = true;
    let _publication = Publication { publish, last: numbers.last };
    // Dropped first: after a panic, no later write may be acknowledged.
    let _guard = PanicGuard::new(host);
    let payload = Payload::new(mem::take(&mut write.payload));
    let record = PendingRecord { sequence: numbers.first, payload };
    let appended = log.append(&record, numbers.last);
    write.payload = record.payload.into_bytes();
    if let Err(error) = appended {
        let error = if error.is_retryable() { error } else { host.poison(error) };
        write.release();
        *write = write.unplaced();
        return Err(error);
    }
    write.insert(numbers.first);
    Ok(Some((numbers, admitted)))
}
