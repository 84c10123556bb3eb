//! Follows a store that another process writes.
//!
//! | file       | content                                                 |
//! |------------|---------------------------------------------------------|
//! | `mod`      | refreshes, and when they are repeated                   |
//! | [`tail`]   | what was read of manifest and log                       |
//! | [`views`]  | makes it visible                                        |
//! | [`rest`]   | the entries of a memtable that a flush has left         |
//!
//! A refresh reads the manifest, then the log. The history up to the manifest is in the log or in
//! tables by then. So manifest and log together are a prefix of the history. A batch is inserted
//! into the memtables, as a writer inserts it: no reader sees it before the refresh raises the
//! visible sequence number.
//!
//! A long refresh raises it after each part of the log, which is a prefix without the new state of
//! the manifest. It does not do so after the log has changed keyspaces or has an ingest. At the end
//! the tables of the manifest replace those memtable entries that are flushed. Memtables are
//! [small](super::replayed_memtables), so that few entries are copied.
//!
//! An ingest is in the log before its tables are in the manifest. A reader in between waits for the
//! tables, for at most 1 s.
//!
//! If segments that were not read are gone, the whole log is replayed into new memtables. Readers
//! of the old memtables must not see batches after a gap.
//!
//! A refresh of a [replica](crate::Replica) reads manifest and log from the start, because both
//! were replaced.
//!
//! Takes no lock of the writer, and writes nothing. The tables in use stay open, which keeps their
//! contents. If a file is replaced during a refresh, the refresh starts again.

mod rest;
pub(super) mod tail;
mod views;

use std::{
    io,
    path::PathBuf,
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire},
    },
    time::Duration,
};

use sievedb_format::SequenceNumber;

use self::tail::{Progress, Tail};
use super::{
    Store,
    recovery::{self, Recovered},
};
use crate::{
    Error, Options, Result,
    sync::{Mutex, MutexGuard},
    wal::replay::ReplayedSegment,
};

/// Attempts of a refresh or an opening. The writer may replace files during each of them.
const ATTEMPTS_MAX: u32 = 1000;

/// Attempts that fail in a row because of the same file.
const REPEATS_MAX: u32 = 10;

/// Pause after the first attempt that fails because of a file. Longer for each further one.
const PAUSE: Duration = Duration::from_millis(1);

/// Time for which a reader waits until the manifest has the tables of an ingest in the log. A
/// writer that has not added them by then has failed or died.
const INGEST_WAIT_MAX: Duration = Duration::from_secs(1);

/// State of a store that follows another process.
#[derive(Debug)]
pub(crate) struct Follower {
    /// Locked by a refresh. `None` after one failed: the next one replays the whole log.
    tail: Mutex<Option<Tail>>,
    /// Segments of the log as far as they are visible, for change streams.
    segments: Mutex<Vec<ReplayedSegment>>,
    /// Raised when the files of the log are replaced; odd from then until the new ones are visible.
    log_generation: AtomicU64,
    /// Held while a thread copies the files of the log, or replaces them.
    log_files: Mutex<()>,
}

impl Follower {
    pub(super) fn new(tail: Tail) -> Self {
        let segments = Mutex::new(tail.segments().to_vec());
        let (log_generation, log_files) = (AtomicU64::new(0), Mutex::new(()));
        Self { tail: Mutex::new(Some(tail)), segments, log_generation, log_files }
    }

    /// Returns the first segment with a record above `sequence`, as far as it is visible.
    pub(super) fn segment_after(&self, sequence: SequenceNumber) -> Option<ReplayedSegment> {
        let segments = self.segments.lock();
        segments.iter().find(|segment| segment.last_sequence > sequence).copied()
    }
}

/// The result of a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refreshed {
    Nothing,
    Some,
    /// So much that more was written meanwhile.
    Much,
}

impl Store {
    /// Makes visible what the writer has written since; nothing in a store that follows none.
    ///
    /// # Errors
    ///
    /// As [`Db::refresh`](crate::Db::refresh).
    pub(crate) fn refresh(&self) -> Result<Refreshed> {
        let follower = self.follower.as_ref().filter(|_| self.options.follow);
        let Some(follower) = follower else { return Ok(Refreshed::Nothing) };
        let mut tail = follower.tail.lock();
        retry(&self.options, || {
            // Under the lock: a close may have begun meanwhile.
            self.check_open()?;
            let refreshed = self.try_refresh(follower, tail.take());
            refreshed.map(|(found, read)| {
                *tail = Some(read);
                // No worker does it.
                self.filters.fit_due(self);
                found
            })
        })
    }

    /// Returns the number of the log whose files change streams read. It is odd, or changes, if
    /// they were replaced meanwhile.
    pub(crate) fn log_generation(&self) -> u64 {
        self.follower.as_ref().map_or(0, |follower| follower.log_generation.load(Acquire))
    }

    /// Keeps the files of the log in place, if this is a replica, until the guard is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: a failed refresh has replaced files of the log.
    pub(super) fn keep_log_files(&self) -> Result<Option<MutexGuard<'_, ()>>> {
        let held = self.lock_log_files();
        if !self.log_generation().is_multiple_of(2) {
            let cause = io::Error::other("a refresh of this replica failed; call it again");
            return Err(Error::io("copy the log of", &self.tables.folder, cause));
        }
        Ok(held)
    }

    /// Waits for copies of the log of this replica. Further ones wait until the guard is dropped.
    pub(crate) fn lock_log_files(&self) -> Option<MutexGuard<'_, ()>> {
        self.follower.as_ref().map(|follower| follower.log_files.lock())
    }

    /// Called before the manifest and the log of this replica are replaced, with the
    /// [lock](Self::lock_log_files) held until they are visible.
    pub(crate) fn begin_replacing(&self) {
        if let Some(follower) = &self.follower {
            follower.log_generation.fetch_or(1, AcqRel);
        }
    }

    /// Makes the manifest and the log of the directory visible, which have replaced the former
    /// ones of this replica since [`begin_replacing`](Self::begin_replacing).
    ///
    /// # Errors
    ///
    /// As [`refresh`](Self::refresh). The visible state is unchanged.
    pub(crate) fn show_replaced(&self) -> Result<()> {
        let Some(follower) = &self.follower else { return Ok(()) };
        let mut tail = follower.tail.lock();
        self.check_open()?;
        let (_, read) = self.try_refresh(follower, None)?;
        *tail = Some(read);
        self.filters.fit_due(self);
        follower.log_generation.fetch_add(1, AcqRel);
        // Change streams wait for it.
        self.writer.publish().notify();
        Ok(())
    }

    /// Refreshes until nothing is left that was written meanwhile, for the thread at an interval.
    pub(crate) fn refresh_to_end(&self) {
        // The next call repeats an error. A close ends the loop.
        while self.refresh().is_ok_and(|found| found == Refreshed::Much) {}
    }

    fn try_refresh(&self, follower: &Follower, tail: Option<Tail>) -> Result<(Refreshed, Tail)> {
        if let Some(mut tail) = tail {
            let found = |is_behind| if is_behind { Refreshed::Much } else { Refreshed::Some };
            match tail.read(self, |step| self.show_step(follower, step))? {
                Progress::None => return Ok((Refreshed::Nothing, tail)),
                Progress::Shown { is_behind } => return Ok((found(is_behind), tail)),
                Progress::Changed { is_behind } => {
                    self.show(follower, &mut tail)?;
                    return Ok((found(is_behind), tail));
                }
                Progress::Interrupted => {}
            }
        }
        let room = std::sync::Arc::clone(&self.tables.cache_room);
        let read = || {
            let room = std::sync::Arc::clone(&room);
            recovery::read_in(&self.options, &self.tables.folder, room)
        };
        let recovered = read_settled(&self.options, read)?;
        let (visible, last) = (self.writer.visible(), recovered.last_sequence);
        if last < visible {
            let path = self.tables.folder.clone();
            return Err(Error::FollowerAhead { path, follower: visible, store: last });
        }
        let mut tail = Tail::of(&self.options, &self.tables.folder, &recovered)?;
        self.show(follower, &mut tail)?;
        let Recovered { segments, value_files, .. } = &recovered;
        // Checkpoints and backups of a replica copy it.
        self.writer.log().replace(last, &self.tables.folder, segments, value_files);
        // As long as an opening.
        Ok((Refreshed::Much, tail))
    }

    /// Replaces the error of a missing file in a store that follows another process, which may have
    /// deleted it.
    pub(crate) fn gone(&self, error: Error) -> Error {
        match error {
            Error::Corrupt { path, source: sievedb_format::Corruption::Missing { .. }, .. }
                if self.options.follow =>
            {
                Error::FilesGone { path }
            }
            error => error,
        }
    }
}

/// Calls `read` until the manifest has the tables of each ingest in the log: later batches without
/// them are no state of the writer.
///
/// # Errors
///
/// Those of `read`.
pub(super) fn read_settled(
    options: &Options,
    read: impl Fn() -> Result<Recovered>,
) -> Result<Recovered> {
    let mut recovered = read()?;
    // Not before: the replay of a long log takes more time.
    let begun = options.clock.now();
    let mut pause = PAUSE;
    loop {
        let waited = options.clock.now().saturating_sub(begun);
        if !recovered.lacks_ingest || waited >= INGEST_WAIT_MAX {
            return Ok(recovered);
        }
        options.clock.sleep(pause);
        pause *= 2;
        recovered = read()?;
    }
}

/// Repeats `attempt` while it fails because of files that were replaced meanwhile.
///
/// # Errors
///
/// The last error of `attempt`.
pub(super) fn retry<T>(options: &Options, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let (mut before, mut repeats) = (None, 0);
    for _ in 1..ATTEMPTS_MAX {
        let error = match attempt() {
            Err(error) if may_pass(&error) => error,
            done => return done,
        };
        // Ids of files are not reused: another one is missing each time, unless it is damage.
        let path = path_of(&error);
        repeats = if path == before { repeats + 1 } else { 1 };
        if repeats == REPEATS_MAX {
            return Err(error);
        }
        before = path;
        options.clock.sleep(PAUSE * repeats);
    }
    attempt()
}

fn path_of(error: &Error) -> Option<PathBuf> {
    match error {
        Error::Corrupt { path, .. } | Error::Io { path, .. } => Some(path.clone()),
        _ => None,
    }
}

/// Returns `true` if a concurrent replacement of a file can cause `error`.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Corrupt { .. } | Error::NoStore { .. } | Error::FilesGone { .. } => true,
        Error::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}
