//! The way of a write: placed in the history, logged, and published in sequence order.
//!
//! | file             | content                                                     |
//! |------------------|-------------------------------------------------------------|
//! | `mod`            | queue, log and visible end of the history                   |
//! | [`throttle`]     | delays of writes, by the debt of background work            |
//! | [`rewrite_log`]  | the log segment that replaces a replayed log after a crash  |
//!
//! The steps are those of [`commit`](crate::commit), and so are the locks: sync turn, log files,
//! placement, publish queue, in this order. Whoever holds the placement lock stops all writes.

pub(super) mod rewrite_log;
pub(super) mod throttle;

use sievedb_format::SequenceNumber;

use crate::{
    Durability, Result,
    commit::{LogHost, LogSize, Placement, PublishQueue, SharedLog},
    sync::{Mutex, MutexGuard},
};

/// History of an open store: what was placed, what is in the log, what is visible.
#[derive(Debug)]
pub(crate) struct Writer {
    placement: Mutex<Placement>,
    publish: PublishQueue,
    log: SharedLog,
    /// Log that the memtables of a read-only store were replayed from.
    replayed_log: Option<LogSize>,
}

impl Writer {
    /// Creates a writer behind a history that ends at `last_sequence`.
    pub(super) fn new(
        last_sequence: SequenceNumber,
        log: SharedLog,
        replayed_log: Option<LogSize>,
    ) -> Self {
        Self {
            placement: Mutex::new(Placement::new(last_sequence)),
            publish: PublishQueue::new(last_sequence),
            log,
            replayed_log,
        }
    }

    /// Stops all writes until the guard is dropped.
    pub(crate) fn placement(&self) -> MutexGuard<'_, Placement> {
        self.placement.lock()
    }

    pub(super) const fn publish(&self) -> &PublishQueue {
        &self.publish
    }

    pub(super) const fn log(&self) -> &SharedLog {
        &self.log
    }

    /// Returns the newest sequence number that readers see.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        self.publish.visible()
    }

    pub(super) fn log_size(&self) -> LogSize {
        self.replayed_log.unwrap_or_else(|| self.log.size())
    }

    /// Makes all acknowledged writes as durable as `durability`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub(crate) fn persist(&self, host: &impl LogHost, durability: Durability) -> Result<()> {
        host.check_writable()?;
        match durability {
            Durability::Memory => Ok(()),
            Durability::OsBuffer => self.log.write(host),
            Durability::Disk => {
                let last_placed = self.placement().last_placed();
                self.log.sync_to(host, last_placed)
            }
        }
    }
}
