//! A write while no other one is queued or in flight. It needs no queue: its thread keeps the locks
//! of log files and placement until it has inserted the entries.

use std::mem;

use sievedb_format::SequenceNumber;

use super::{LogHost, Numbers, PanicGuard, Placement, PublishQueue, SharedLog, Write};
use crate::{
    Result,
    log::{Payload, PendingRecord},
};

/// A placed write that is not in the queue. Drop makes it visible, under the placement lock: a
/// condition looks for writes that are not visible in the queue.
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

/// Notifies those who wait for a write when dropped, if it was placed.
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
/// Returns `None` if the write must be queued, because there is another one, because its record
/// begins a segment, or because `admit` returned `None`. Then `write` is unchanged.
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
) -> Result<Option<(Numbers, T)>> {
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
