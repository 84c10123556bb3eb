//! Writes that fail instead of being delayed, and waits for room.

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

/// Work that a thread waits for.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) enum Awaited {
    Flushes,
    /// Also requested compactions, and those of this keyspace that no caller requested.
    Any {
        compactions_of: Option<u64>,
    },
}

/// A delay of a write by background work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stall {
    reason: StallReason,
    /// `None` until the work is done.
    delay: Option<Duration>,
    /// The keyspace if the work is a compaction of it.
    compactions_of: Option<u64>,
}

impl Stall {
    /// Memtables have no room for the write.
    pub(super) const FULL: Self = Self::new(StallReason::MemtableMemory, None);
    /// Ingested tables are being installed.
    pub(super) const INGEST: Self = Self::new(StallReason::Ingest, None);

    const fn new(reason: StallReason, delay: Option<Duration>) -> Self {
        Self { reason, delay, compactions_of: None }
    }

    /// Returns a delay of a write to `tree` by its debt.
    pub(super) fn of_tree(tree: &Tree, reason: StallReason, delay: Option<Duration>) -> Self {
        let compactions_of = (reason != StallReason::Flushes).then_some(tree.id);
        Self { compactions_of, ..Self::new(reason, delay) }
    }

    /// Returns the work that ends the delay.
    pub(super) const fn awaited(self) -> Awaited {
        match self.reason {
            // Not with the error of a compaction: flushes continue.
            StallReason::MemtableMemory | StallReason::Flushes => Awaited::Flushes,
            _ => Awaited::Any { compactions_of: self.compactions_of },
        }
    }
}

impl From<Stall> for Error {
    fn from(Stall { reason, delay, .. }: Stall) -> Self {
        Self::WouldStall { reason, delay }
    }
}

impl Store {
    /// Refuses `write` if background work would delay it. Makes the work due.
    ///
    /// # Errors
    ///
    /// [`Error::WouldStall`], [`Error::WriteTooLarge`].
    pub(super) fn refuse_stall(&self, write: &Write) -> Result<()> {
        let trees = write.targets.iter().map(|target| &target.tree);
        match self.stall_of(write.charge_bytes(), trees)? {
            Some(stall) => Err(self.refusal(stall, write.charge_bytes())),
            None => Ok(()),
        }
    }

    /// Returns the error of a refused write of `bytes` bytes, and makes the work due that it would
    /// wait for. The caller does not hold the placement lock.
    pub(super) fn refusal(&self, stall: Stall, bytes: u64) -> Error {
        self.make_flush_due(stall, bytes).map_or_else(|error| error, |()| stall.into())
    }

    /// Freezes memtables if `stall` of a write of `bytes` bytes ends only by a flush: a refused
    /// write places nothing, which would freeze them.
    ///
    /// # Errors
    ///
    /// [`Error::WriteTooLarge`].
    fn make_flush_due(&self, stall: Stall, bytes: u64) -> Result<()> {
        if stall.reason != StallReason::MemtableMemory {
            return Ok(());
        }
        let froze = match stall.delay {
            None => self.freeze_for_room(bytes)?.froze,
            Some(_) => {
                let _placement = self.writer.placement();
                self.freeze_largest()
            }
        };
        if froze {
            self.scheduler.wake();
        }
        Ok(())
    }

    /// Returns whether a new write of `bytes` bytes waits until another one is placed.
    pub(super) fn is_behind_turn(&self, bytes: u64) -> bool {
        // A change of keyspaces takes no room.
        bytes > 0 && self.writer.room_turns().is_held()
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
            _ if self.is_behind_turn(bytes) => return Ok(Some(Stall::FULL)),
            Room::Delay(Duration::ZERO) => {}
            Room::Delay(delay) => return Ok(Some(Stall { delay: Some(delay), ..Stall::FULL })),
            Room::Wait | Room::Never(_) => return Ok(Some(Stall::FULL)),
        }
        let delay = self.tables_delay();
        if self.scheduler.merges_tables() && !delay.is_zero() {
            // A merge that waits for space causes none.
            return Ok(Some(Stall::new(StallReason::Tables, Some(delay))));
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
            return Ok(Some(Stall::of_tree(tree, stall_reason(debt), delay)));
        }
        Ok(None)
    }

    /// Returns the result of a wait until background work does not delay a write of `bytes` bytes
    /// to `trees`; `None` while it does. Makes the work due.
    pub(crate) fn poll_room(&self, bytes: u64, trees: &[Arc<Tree>]) -> Option<Result<()>> {
        let stall = self.check_open().and_then(|()| self.versions.check_writable());
        let stall = stall.and_then(|()| self.stall_of(bytes, trees));
        let stall = match stall {
            Err(error) => return Some(Err(error)),
            Ok(None) => return Some(Ok(())),
            // Workers were already notified of an earlier flush, and each ring polls again.
            Ok(Some(stall)) => {
                if let Err(error) = self.make_flush_due(stall, bytes) {
                    return Some(Err(error));
                }
                if let Stall { reason: StallReason::Level0, delay: None, compactions_of } = stall {
                    compactions_of.into_iter().for_each(|id| self.scheduler.note_stopped(id));
                }
                stall
            }
        };
        self.scheduler.no_space_for(stall.awaited()).map(Err)
    }

    /// Waits until background work does not delay a write of `bytes` bytes to `trees`.
    ///
    /// # Errors
    ///
    /// [`Error::WriteTooLarge`]; the reason why the work cannot be done.
    pub(crate) fn wait_until_room(&self, bytes: u64, trees: &[Arc<Tree>]) -> Result<()> {
        if self.options.worker_threads == 0 {
            // No worker retries after a full disk.
            self.scheduler.retry();
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
