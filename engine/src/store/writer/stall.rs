//! Writes that are refused where others are delayed, and waits for room.

use std::{sync::Arc, time::Duration};

use super::throttle::{Pressure, Room, pressure, stall_reason};
use crate::{Error, Result, StallReason, commit::Write, read::tree::Tree, store::Store};

/// Behavior of a write that background work delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnStall {
    Wait,
    /// Fail with [`Error::WouldStall`].
    Refuse,
}

/// A delay of a write by background work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stall {
    reason: StallReason,
    /// `None` until the work is done.
    delay: Option<Duration>,
}

impl Stall {
    /// Memtables have no room for the write.
    pub(super) const FULL: Self = Self { reason: StallReason::MemtableMemory, delay: None };
    /// Ingested tables are being installed.
    pub(super) const INGEST: Self = Self { reason: StallReason::Ingest, delay: None };
}

impl From<Stall> for Error {
    fn from(Stall { reason, delay }: Stall) -> Self {
        Self::WouldStall { reason, delay }
    }
}

impl Store {
    /// Refuses `write` if background work would delay it.
    ///
    /// # Errors
    ///
    /// [`Error::WouldStall`], [`Error::WriteTooLarge`].
    pub(super) fn refuse_stall(&self, write: &Write) -> Result<()> {
        let trees = write.targets.iter().map(|target| &target.tree);
        self.stall_of(write.charge_bytes(), trees)?.map_or(Ok(()), |stall| Err(stall.into()))
    }

    /// Returns the delay of a write of `bytes` bytes to `trees`.
    ///
    /// # Errors
    ///
    /// [`Error::WriteTooLarge`].
    fn stall_of<'a>(
        &self,
        bytes: u64,
        trees: impl IntoIterator<Item = &'a Arc<Tree>>,
    ) -> Result<Option<Stall>> {
        match self.room(bytes)? {
            Room::Delay(Duration::ZERO) => {}
            Room::Delay(delay) => return Ok(Some(Stall { delay: Some(delay), ..Stall::FULL })),
            Room::Wait | Room::Never(_) => return Ok(Some(Stall::FULL)),
        }
        let delay = self.tables_delay();
        if self.scheduler.merges_tables() && !delay.is_zero() {
            return Ok(Some(Stall { reason: StallReason::Tables, delay: Some(delay) }));
        }
        for tree in trees.into_iter().filter(|tree| !tree.is_dropped()) {
            if tree.is_ingesting() {
                return Ok(Some(Stall::INGEST));
            }
            let debt = self.debt(tree);
            let delay = match pressure(debt) {
                Pressure::Delay(Duration::ZERO) => continue,
                Pressure::Delay(delay) => Some(delay),
                Pressure::Stop => None,
            };
            return Ok(Some(Stall { reason: stall_reason(debt), delay }));
        }
        Ok(None)
    }

    /// Returns the result of a wait until background work does not delay a write of `bytes` bytes
    /// to `trees`; `None` while it does. Makes the work due.
    pub(crate) fn poll_room(&self, bytes: u64, trees: &[Arc<Tree>]) -> Option<Result<()>> {
        let stall = self.check_open().and_then(|()| self.versions.check_writable());
        let stall = stall.and_then(|()| self.stall_of(bytes, trees));
        let by_flushes =
            |reason| matches!(reason, StallReason::MemtableMemory | StallReason::Flushes);
        let mut for_compactions = false;
        match stall {
            Err(error) => return Some(Err(error)),
            Ok(None) => return Some(Ok(())),
            Ok(Some(Stall { reason: StallReason::MemtableMemory, delay: None })) => {
                match self.freeze_for_room(bytes) {
                    Err(error) => return Some(Err(error)),
                    // Otherwise the workers know of the flush, and each ring polls again.
                    Ok(frozen) if frozen.froze => self.scheduler.wake(),
                    Ok(_) => {}
                }
            }
            Ok(Some(Stall { reason, .. })) => for_compactions = !by_flushes(reason),
        }
        self.scheduler.no_space(for_compactions).map(Err)
    }

    /// Waits until background work does not delay a write of `bytes` bytes to `trees`.
    ///
    /// # Errors
    ///
    /// [`Error::WriteTooLarge`]; the reason why the work cannot be done.
    pub(crate) fn wait_until_room(&self, bytes: u64, trees: &[Arc<Tree>]) -> Result<()> {
        if self.options.worker_threads == 0 {
            // No worker retries after a full disk.
            self.scheduler.retry(&self.filters);
        }
        loop {
            self.run_inline();
            if let Some(result) = self.poll_room(bytes, trees) {
                return result;
            }
            self.scheduler.wait_for_progress();
        }
    }
}
