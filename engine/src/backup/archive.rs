//! Archives the log after a backup, for point-in-time recovery.
//!
//! An archive begins with a backup. Each update adds parts with the batches since the last update.
//! The batches come from the change stream, so a part has whole batches, without a gap, and each is
//! durable in the store. A new backup begins a new log. Before that, the old log is continued
//! beyond the backup, so that no point in between is lost.

use std::{
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use sievedb_format::SequenceNumber;

use super::{
    Backup, BackupSet,
    log_part::{PartEncoder, PartRange},
    objects::LOG,
};
use crate::{
    Changes, Db, Error, Result,
    changes::ChangesOptions,
    clock::{Clock as _, SystemClock},
    planted::PlantedBug,
    store::{Store, open_store::OpenStore},
    wal::batch::Entry,
};

/// Length at which a part ends, in bytes.
const PART_BYTES: usize = 4 << 20;

/// Maximum pause of [`Archive::run`] between two checks whether to stop.
const POLL: Duration = Duration::from_millis(50);

/// Default of [`Archive::backup_after_log_bytes`].
const LOG_BYTES_MAX: u64 = 64 << 20;

/// Number of parts after which an update creates a backup. A restore reads them one after another.
const PARTS_MAX: u64 = 2000;

/// Archives the log of a store into a [backup set](BackupSet): see [`BackupSet::archive`].
///
/// Does not keep the store open: after a close, updates fail with [`Error::Closed`].
#[derive(Debug)]
pub struct Archive {
    set: BackupSet,
    open: Weak<OpenStore>,
    store: Arc<Store>,
    log_bytes_max: u64,
    log: Option<ArchivedLog>,
}

/// The log that follows a backup.
#[derive(Debug)]
struct ArchivedLog {
    backup: u64,
    /// Stream of changes; `None` after an error.
    changes: Option<Changes>,
    /// Last sequence number up to which the set has every batch.
    archived: SequenceNumber,
    /// Time of the last sample in the set.
    sampled_ms: u64,
    bytes: u64,
    parts: u64,
    /// The log lacks entries of an ingest.
    has_ingest: bool,
    /// No newer backup with a number up to this one is of the store.
    checked: u64,
}

/// The result of an [update](Archive::update).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveUpdate {
    /// Sequence number up to which every write can be restored.
    pub sequence: u64,
    /// Bytes of log that were added.
    pub log_bytes_added: u64,
    /// The backup, if the update created one.
    pub backup: Option<Backup>,
}

impl BackupSet {
    /// Returns an archive of `db` into this set, so that [`RestoreOptions::to`] can restore any
    /// later point. Writes nothing until [`Archive::update`] or [`Archive::run`] is called.
    ///
    /// The store must [retain its changes](crate::Options::retain_changes) until the next update.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, set, new) = (dir.path().join("db"), dir.path().join("set"), dir.path().join("new"));
    /// use sievedb::{BackupSet, ChangeRetention, Db, Options, RestoreOptions};
    ///
    /// let db = Options::new().retain_changes(ChangeRetention::bytes(64 << 20)).open(path)?;
    /// let set = BackupSet::new(set);
    /// let mut archive = set.archive(&db)?;
    /// db.insert("key", "old")?;
    /// let good = archive.update()?.sequence;
    /// db.insert("key", "bad")?;
    /// archive.update()?;
    ///
    /// set.restore_with(&RestoreOptions::new().to(good), &new)?;
    /// assert_eq!(Db::open(new)?.get("key")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ChangesNotRetained`], [`Error::Closed`], [`Error::ForkedChild`].
    ///
    /// [`RestoreOptions::to`]: crate::RestoreOptions::to
    pub fn archive(&self, db: &Db) -> Result<Archive> {
        let open = Arc::downgrade(db.open_store());
        let store = Arc::clone(db.open_store().accept_shared()?);
        let set = self.frugal_for(&store);
        store.check_changes(store.writer.visible())?;
        store.begin_history();
        Ok(Archive { set, open, store, log_bytes_max: LOG_BYTES_MAX, log: None })
    }
}

impl Archive {
    /// Bytes of archived log after which the next update creates a backup; default 64 MiB. A
    /// restore reads at most this number of bytes, plus those of one update. The first open of the
    /// restored store holds them in memtables, also beyond the memory budget.
    ///
    /// After 2000 parts, an update creates a backup in any case. An update with writes adds a part
    /// for each 4 MiB, at least one.
    #[must_use]
    pub const fn backup_after_log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes_max = bytes;
        self
    }

    /// Archives all writes committed before the call, durable at return.
    ///
    /// The first update creates a backup. So does an update after [much
    /// log](Self::backup_after_log_bytes), after an ingest or another backup of the store, after a
    /// [prune](BackupSet::prune) of the last backup, and if the store has dropped changes. Syncs
    /// the log of the store. Uses memory for two batches and about 8 MiB.
    ///
    /// # Errors
    ///
    /// Earlier parts of the archive stay. The next call continues.
    ///
    /// * [`Error::Locked`]: another call changes the set.
    /// * [`Error::ChangesNotRetained`].
    /// * Errors of [`BackupSet::create`] and of [`Db::changes`].
    pub fn update(&mut self) -> Result<ArchiveUpdate> {
        self.store.check_open()?;
        let _lock = self.set.lock_for(&self.store)?;
        let (mut new_backup, mut log_bytes_added) = (None, 0);
        if let Some(log) = &mut self.log {
            log_bytes_added = match log.update(&self.set, &self.open, &self.store) {
                Err(Error::ChangesLost { .. }) => {
                    self.log = None;
                    0
                }
                added => added?,
            };
        }
        let numbers = self.set.numbers()?;
        let has_newer = match &mut self.log {
            Some(log) => log.has_newer_backup(&self.set, &self.store, &numbers)?,
            None => false,
        };
        let bytes_max = self.log_bytes_max;
        let is_long = |log: &ArchivedLog| log.bytes >= bytes_max || log.parts >= PARTS_MAX;
        let is_kept = |log: &ArchivedLog| numbers.contains(&log.backup);
        let ends = |log: &ArchivedLog| is_long(log) || log.has_ingest || !is_kept(log);
        if has_newer || self.log.as_ref().is_none_or(ends) {
            let created = self.set.create_of(&self.store)?;
            if let Some(log) = &mut self.log {
                // Archives at least up to the new backup, unless the store has dropped changes
                // during the backup.
                match log.update(&self.set, &self.open, &self.store) {
                    Err(Error::ChangesLost { .. }) => {}
                    added => log_bytes_added += added?,
                }
            }
            let archived = created.sequence;
            let sampled_ms = self.store.versions.with_times(|times| {
                let samples = times.samples().iter();
                samples.take_while(|(_, last)| *last <= archived).last().map_or(0, |(ms, _)| *ms)
            });
            self.log = Some(ArchivedLog {
                backup: created.number,
                changes: None,
                archived,
                sampled_ms,
                bytes: 0,
                parts: 0,
                has_ingest: false,
                checked: created.number,
            });
            new_backup = Some(created);
        }
        let sequence = self.log.as_ref().map_or(0, |log| log.archived);
        Ok(ArchiveUpdate { sequence, log_bytes_added, backup: new_backup })
    }

    /// Calls [`update`](Self::update) at once and then every `interval`, and a last time when
    /// `is_over` returns `true`. A loss of the machine loses at most the writes of about one
    /// interval. With [`Duration::MAX`] the second call is the last.
    ///
    /// Repeats calls that fail with [`Error::Locked`], [`Error::Io`] or [`Error::NoKey`] after the
    /// next interval, except the last.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    pub fn run(&mut self, interval: Duration, is_over: impl Fn() -> bool) -> Result<()> {
        let clock = SystemClock::new();
        loop {
            let ends = is_over();
            match self.update() {
                Err(Error::Locked { .. } | Error::Io { .. } | Error::NoKey { .. }) if !ends => {}
                updated => drop(updated?),
            }
            if ends {
                return Ok(());
            }
            let next = clock.now().saturating_add(interval);
            while clock.now() < next && !is_over() {
                thread::sleep(POLL.min(next.saturating_sub(clock.now())));
            }
        }
    }
}

impl ArchivedLog {
    /// Returns `true` if the set has a newer backup of the store. A restore begins with that
    /// backup, so the log must too. `numbers` are those of all backups.
    fn has_newer_backup(
        &mut self,
        set: &BackupSet,
        store: &Store,
        numbers: &[u64],
    ) -> Result<bool> {
        let checked = self.checked;
        for &number in numbers.iter().filter(|&&number| number > checked) {
            match set.record(number) {
                Ok(record) if record.state.store_id != store.tables.store_id => {}
                Err(error @ Error::Io { .. }) => return Err(error),
                // An unreadable backup may be of the store.
                _ => return Ok(true),
            }
            self.checked = number;
        }
        Ok(false)
    }

    /// Adds all batches committed so far. Returns the bytes added.
    fn update(
        &mut self,
        set: &BackupSet,
        open: &Weak<OpenStore>,
        store: &Arc<Store>,
    ) -> Result<u64> {
        let taken = self.changes.take();
        let new = || {
            let options = ChangesOptions::new();
            Changes::new(Weak::clone(open), Arc::clone(store), self.archived, options)
        };
        let mut changes = taken.map_or_else(new, Ok)?;
        // Read before the batches, so every later write is placed after this time.
        let now_ms = store.versions.clock().now_ms();
        let end = store.writer.visible();
        let (mut archived, mut sampled_ms, mut bytes) = (self.archived, self.sampled_ms, 0);
        loop {
            let mut part = PartEncoder::new();
            while part.bytes() < PART_BYTES && changes.seen() < end {
                let Some(tail) = changes.next_tail()? else { break };
                part.put_batch(tail.first, tail.batch.payload());
                // An ingest is a batch of its own.
                self.has_ingest |=
                    matches!(tail.batch.iter().next(), Some(Ok(Entry::Ingest { .. })));
            }
            let is_whole = part.bytes() < PART_BYTES;
            let range = PartRange { backup: self.backup, after: archived, upto: changes.seen() };
            let samples = store.versions.with_times(|times| {
                let samples = times.samples().iter().copied();
                let new = samples.skip_while(|&(ms, _)| ms <= sampled_ms);
                new.take_while(|&(_, last)| last <= range.upto).collect::<Vec<_>>()
            });
            sampled_ms = samples.last().map_or(sampled_ms, |&(ms, _)| ms);
            let whole_ms = is_whole.then_some(now_ms);
            let part = part.finish(range, store.tables.store_id, whole_ms, &samples);
            // An empty part replaces the empty one before it.
            if range.upto > range.after {
                bytes += part.len() as u64;
                self.parts += 1;
            }
            let omits = store.options.has_bug(PlantedBug::OmitArchivedPart);
            if !(omits && range.upto.is_multiple_of(3) && range.upto > range.after) {
                set.put_object(LOG, &range.name(), &part)?;
            }
            // Synced before the next part, which is useless without this one.
            set.sync(LOG)?;
            archived = range.upto;
            if is_whole {
                break;
            }
        }
        self.changes = Some(changes);
        (self.archived, self.sampled_ms) = (archived, sampled_ms);
        self.bytes += bytes;
        Ok(bytes)
    }
}

#[cfg(all(test, not(any(miri, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::{
        ChangeRetention, Options, RestoreOptions, backup::RECORD_BYTES_MAX, clock::ManualClock,
        fs::MemoryFs,
    };

    #[test]
    fn a_part_longer_than_a_record_is_restored() {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(0);
        let options = options.retain_changes(ChangeRetention::bytes(1 << 20));
        let db = options.clone().open("db").expect("a new store");
        let set = BackupSet::with_fs("set", fs, Arc::new(ManualClock::new()));
        let mut archive = set.archive(&db).expect("changes are retained");
        archive.update().expect("there is room");
        let value = vec![7; RECORD_BYTES_MAX as usize];
        db.insert("key", &value).expect("there is room");
        archive.update().expect("there is room");
        let restored = set.restore_with(&RestoreOptions::new(), "new");
        restored.expect("the set is whole");
        let copy = options.open("new").expect("a store");
        assert_eq!(copy.get("key").expect("it can be read").as_deref(), Some(&*value));
    }
}
