//! Copies the readable data of a damaged store into a new one.
//!
//! The tables of a keyspace are read from the oldest run to the newest, so that newer entries
//! replace older ones. Merge operands are copied as operands. The log comes last, up to its first
//! damage. An unreadable table or block may have held newer versions of keys that older runs have.
//! Such keys are removed again, unless the filter of the table, which is stored apart, rules them
//! out.
//!
//! The range tombstones of a table remove keys of older tables, then its entries are copied. If
//! they are lost, every older value in the range of the table may be outdated.

mod copied;
mod doubts;
mod keyspaces;
mod log;
mod log_changes;
mod lost;
mod merged;
mod rebuild;
mod report;
mod source;
mod stale;
mod state;
mod tables;
mod unfinished;

pub use self::report::RepairReport;
use self::{
    doubts::Doubts,
    log_changes::LogChanges,
    rebuild::FoundLog,
    state::{State, read_state},
};

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Bound,
    path::Path,
    sync::Arc,
};

use sievedb_filter::hash::key_hash;
use sievedb_format::{Kind, RangeTombstone, SEQUENCE_MAX};
use sievedb_memtable::MemtableRanges;

use crate::{
    DEFAULT_KEYSPACE, Db, Durability, Error, Keyspace, KeyspaceOptions, Options, Result,
    VerifyReport,
    file_name::FileName,
    fs::Fs,
    manifest::{KeyspaceState, VersionEdit, load::Loaded},
    store::folder::{check_apart, check_empty, lock_to_read},
    store::verify::{check_traces, list},
};

/// Treatment of keys whose only readable values may be outdated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OlderValues {
    /// Omits them from the new store.
    #[default]
    LeaveOut,
    /// Keeps these values, which may include removed keys.
    Keep,
}

impl Options {
    /// Copies the readable data of the store in the directory `from` into a new store in the
    /// directory `to`, which must be missing or empty. `from` must not be open, need not be fit to
    /// be opened, and is not changed. These options are those of the new store; keyspaces keep
    /// theirs.
    ///
    /// Damaged blocks, missing tables, and the log from its first damage on are lost, so batches
    /// may be split. Of a damaged value in a blob file, only the value is lost. A block that the
    /// device cannot read counts as damaged. A table with a damaged footer or index is scanned
    /// block by block, since each block has a checksum. If only `CURRENT` is lost and there is one
    /// manifest, nothing is lost: [`RepairReport::replaced`].
    ///
    /// Without a readable manifest, keyspaces are taken from the tables and the log, and the entry
    /// with the largest sequence number counts for each key. Tables that others list as replaced
    /// are omitted. Lost then: keyspaces that neither a table nor the log names, and names and
    /// options changed since the newest table. The [store clock](crate::Db::store_time) starts at
    /// Unix time: if it was ahead, expired values may reappear. If the footer of a table is damaged
    /// too, the table is lost, and other tables may have older values of its keys:
    /// [`RepairReport::tables_unknown`].
    ///
    /// Until the repair ends, the file `REPAIR` marks `to`, and [`open`](Self::open) fails with
    /// [`Error::IncompleteRepair`]. After an interruption, remove `to` and repeat the repair.
    ///
    /// Reads every table twice, and writes every entry as [`Keyspace::insert`] does. An entry too
    /// large for the [memory budget](Self::memory_budget) raises it during the call. In addition to
    /// the budget, uses about 16 bytes of memory for each key that counts as
    /// [`older`](RepairReport::older), and without a manifest about 32 bytes for each key in the
    /// log, and a few blocks of each table with the current key in its range.
    ///
    /// # Errors
    ///
    /// Errors of [`verify`](Self::verify) for `from`, those of [`open`](Self::open) and
    /// [`Keyspace::insert`] for `to`, and:
    ///
    /// * [`Error::Io`]: a file cannot be read for a reason that is not its own, such as too many
    ///   open files or missing permission. Try again, with another `to`.
    /// * [`Error::Corrupt`]: no manifest, no table and no log segment can be read.
    /// * [`Error::NewerRelease`], [`Error::NeedsFeature`]: another release or build can read a
    ///   file. Repair the store with that one.
    /// * [`Error::NoKey`], [`Error::WrongKey`]: the root key of a file is missing, or the key
    ///   provider failed. Try again with all keys of the store, and another `to`. If a key is lost
    ///   for good, remove its files from a copy of the store: they then count as lost.
    /// * [`Error::DirectoryNotEmpty`]: `to` has files.
    /// * [`Error::DirectoriesOverlap`]: one directory is or contains the other, symbolic links
    ///   resolved.
    pub fn repair(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        older: OlderValues,
    ) -> Result<RepairReport> {
        let files = self.stored_fs(Arc::clone(&self.fs));
        let (shared_fs, folder, to) = (files.logical(), from.as_ref(), to.as_ref());
        let fs = &*shared_fs;
        check_apart(fs, folder, to)?;
        check_empty(fs, to)?;
        check_traces(fs, folder)?;
        files.check(folder).map_err(|(path, error)| Error::io("open", path, error))?;
        let _lock = lock_to_read(fs, folder)?;
        let names = list(fs, folder)?;
        let State { loaded, rebuilt, current, lost } = read_state(&shared_fs, folder, &names)?;
        unfinished::mark(fs, to)?;
        let options = Self { is_repair: true, ..self.clone() };
        let db = options.read_only(false).create_if_missing(true).open(to)?;
        let namesakes = rebuilt.as_ref().map(|rebuilt| &rebuilt.namesakes);
        let mut repair = Repair {
            options: self,
            folder,
            loaded: &loaded,
            db: &db,
            older,
            saved: BTreeMap::new(),
            rescanned: 0,
            dropped: namesakes.map(|it| it.dropped.clone()).unwrap_or_default(),
            unnamed: namesakes.map(|it| it.unnamed.clone()).unwrap_or_default(),
            logs: rebuilt.as_ref().map(|rebuilt| &*rebuilt.logs),
            unordered: rebuilt
                .as_ref()
                .map(|rebuilt| rebuilt.unordered.clone())
                .unwrap_or_default(),
            is_cut: false,
            changes: rebuilt.as_ref().map(|rebuilt| rebuilt.changes.clone()).unwrap_or_default(),
            emptied: rebuilt.as_ref().map(|rebuilt| rebuilt.emptied.clone()).unwrap_or_default(),
            older_left_out: 0,
            found: VerifyReport::default(),
        };
        let unknown = rebuilt.iter().flat_map(|rebuilt| &rebuilt.unknown);
        for error in lost.iter().chain(unknown) {
            repair.found.error(error);
        }
        for (&id, keyspace) in &loaded.state.keyspaces {
            repair.keyspace(id, keyspace)?;
        }
        repair.log(&names)?;
        let older = repair.saved.values().map(|saved| saved.older.len() as u64).sum::<u64>();
        let older = older + repair.older_left_out;
        let (tables_rescanned, keyspaces_unnamed) = (repair.rescanned, repair.unnamed);
        let VerifyReport { problems: lost, tables, log_batches, .. } = repair.found;
        let store_clock_ms = Some(loaded.state.store_clock_ms);
        let store = db.store();
        // Writes of the repair are not part of the history.
        let history_from = store.begin_histories();
        let edit = VersionEdit { store_clock_ms, history_from, ..VersionEdit::default() };
        store.edit_manifest(|_| Some(edit), |_| ())?;
        db.flush()?;
        db.persist(Durability::Disk)?;
        unfinished::unmark(fs, to)?;
        let mut replaced = VerifyReport::default();
        current.iter().for_each(|error| replaced.error(error));
        Ok(RepairReport {
            lost,
            replaced: replaced.problems,
            older,
            tables,
            tables_rescanned,
            log_batches,
            is_rebuilt: rebuilt.is_some(),
            keyspaces_unnamed,
            tables_left_out: rebuilt.as_ref().map_or(0, |rebuilt| rebuilt.left_out),
            logs_cut: rebuilt
                .iter()
                .flat_map(|rebuilt| &rebuilt.logs)
                .filter(|log| log.is_cut)
                .count() as u64,
            tables_unknown: rebuilt.as_ref().map_or(0, |rebuilt| rebuilt.unknown.len() as u64),
        })
    }
}

struct Repair<'a> {
    options: &'a Options,
    /// Directory of the damaged store.
    folder: &'a Path,
    loaded: &'a Loaded,
    /// The new store.
    db: &'a Db,
    older: OlderValues,
    /// By the id in the damaged store.
    saved: BTreeMap<u64, Saved>,
    /// Tables that were read without their footer.
    rescanned: u64,
    /// Ids of dropped keyspaces.
    dropped: BTreeSet<u64>,
    /// Names chosen for keyspaces without a known name.
    unnamed: Vec<String>,
    /// All logs, if `loaded` was rebuilt from tables and log.
    logs: Option<&'a [FoundLog]>,
    /// Changes in all logs, if `loaded` was rebuilt; else none.
    changes: LogChanges,
    /// Ids of ingested tables that may be newer than each table with a larger sequence number.
    unordered: BTreeSet<u64>,
    /// `true` if the end of the log being copied is missing.
    is_cut: bool,
    /// Keyspaces without a relevant table.
    emptied: BTreeMap<u64, Arc<KeyspaceState>>,
    /// Entries of a cut log that belong to keyspaces without other data.
    older_left_out: u64,
    found: VerifyReport,
}

/// A keyspace of the new store.
struct Saved {
    keyspace: Keyspace,
    /// Hashes of keys whose values may be outdated, kept or removed.
    older: HashSet<u64>,
    /// Keys with lost versions, of all tables read so far.
    doubts: Doubts,
    /// Without a manifest: the largest sequence number so far of entries not known to be flushed,
    /// by 128 bits of the key's hash.
    unflushed: HashMap<u128, u64>,
    /// Without a manifest: the range tombstones of tables and log.
    ranges: MemtableRanges,
    hash_seed: u64,
}

impl Saved {
    fn hash(&self, key: &[u8]) -> u64 {
        key_hash(key, self.hash_seed)
    }

    fn hash_128(&self, key: &[u8]) -> u128 {
        u128::from(self.hash(key)) << 64 | u128::from(key_hash(key, !self.hash_seed))
    }

    /// Stores a value of this kind in its stored form, or removes the key, replacing older
    /// versions.
    fn put(&mut self, key: &[u8], value: Option<(Kind, &[u8])>) -> Result<()> {
        self.older.remove(&self.hash(key));
        self.store(key, value)
    }

    /// Records the sequence number of an entry. Returns its order relative to the newest entry of
    /// the key so far.
    fn compare_newest(&mut self, sequence: u64, key: &[u8]) -> Ordering {
        let newest = self.unflushed.entry(self.hash_128(key)).or_default();
        let order = sequence.cmp(newest);
        *newest = sequence.max(*newest);
        order
    }

    /// Records that the value of a key may be outdated, and removes the key or calls `keep`.
    fn note_older(
        &mut self,
        older: OlderValues,
        key: &[u8],
        keep: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        match older {
            OlderValues::LeaveOut => self.store(key, None)?,
            OlderValues::Keep => keep(self)?,
        }
        self.older.insert(self.hash(key));
        Ok(())
    }

    /// Removes a range of keys.
    fn remove_range(&self, RangeTombstone { start, end, .. }: &RangeTombstone) -> Result<()> {
        match end.is_empty() {
            true => self.keyspace.remove_range(&**start..),
            false => self.keyspace.remove_range(&**start..&**end),
        }
    }

    /// Without a manifest: removes the keys of a range whose newest entry is older than the range
    /// tombstone.
    fn remove_older(&mut self, tombstone: RangeTombstone) -> Result<()> {
        let (start, end) = (Bound::Included(&*tombstone.start), Bound::Excluded(&*tombstone.end));
        let end = if tombstone.end.is_empty() { Bound::Unbounded } else { end };
        let mut keys = self.keyspace.range::<&[u8]>((start, end)).keys();
        while let Some(key) = keys.next_ref()? {
            if self.compare_newest(tombstone.sequence, key).is_ge() {
                self.put(key, None)?;
            }
        }
        self.ranges.insert(tombstone);
        Ok(())
    }

    /// Without a manifest: returns `true` if a range tombstone is newer than an entry of the key.
    fn is_removed(&self, sequence: u64, key: &[u8]) -> bool {
        self.ranges.newest_cover(key, SEQUENCE_MAX) > Some(sequence)
    }

    /// Removes all keys.
    fn clear(&mut self) -> Result<()> {
        self.older.clear();
        self.unflushed.clear();
        self.ranges = MemtableRanges::default();
        self.keyspace.clear()
    }

    fn store(&self, key: &[u8], value: Option<(Kind, &[u8])>) -> Result<()> {
        match value {
            Some((kind, value)) => self.with_room(|keyspace| keyspace.put_stored(key, kind, value)),
            None => self.keyspace.remove(key),
        }
    }
}

impl Repair<'_> {
    /// Returns the file system of both stores: that of the new store, which closes tables when
    /// descriptors run out.
    fn fs(&self) -> &Arc<dyn Fs> {
        &self.db.store().tables.fs
    }

    fn keyspace(&mut self, id: u64, state: &KeyspaceState) -> Result<()> {
        self.create(id, &state.name, &state.options)?;
        if self.logs.is_some() {
            let first = self.found.problems.len();
            let mut saved = self.saved.remove(&id).expect("it was just created");
            let done = self.merged(&mut saved, state);
            self.saved.insert(id, saved);
            self.name_keyspace(first, &state.name);
            return done;
        }
        let mut tables: Vec<_> = state.tables.values().collect();
        // Oldest first: deeper levels, and smaller run numbers within a level.
        tables.sort_by_key(|meta| (u8::MAX - meta.level, meta.run));
        for meta in tables {
            let first = self.found.problems.len();
            let Some(mut saved) = self.saved.remove(&id) else { break };
            let done = self.table(&mut saved, meta);
            self.saved.insert(id, saved);
            self.name_keyspace(first, &state.name);
            done?;
        }
        Ok(())
    }

    /// Sets the keyspace of the problems from `first` on.
    fn name_keyspace(&mut self, first: usize, name: &str) {
        for problem in &mut self.found.problems[first..] {
            problem.keyspace = Some(name.to_owned());
        }
    }

    fn create(&mut self, id: u64, name: &str, encoded: &[u8]) -> Result<()> {
        let decoded = KeyspaceOptions::decode(encoded);
        let options = decoded.map_err(|source| {
            let path = FileName::Manifest(self.loaded.end.file_id).path(self.folder);
            Error::corrupt(path, self.loaded.end.offset, source).of_keyspace(name)
        })?;
        let options = options.with_functions(&self.options.prefix_functions);
        let options = options.with_operators(&self.options.merge_operators);
        // The compaction filter stays missing: compactions of a repair keep all values.
        let keyspace = if name == DEFAULT_KEYSPACE {
            self.db.default_keyspace().set_options(options)?;
            self.db.keyspace(name)?
        } else {
            self.db.keyspace_with(name, &options)?
        };
        let hash_seed = self.loaded.state.hash_seed;
        self.saved.insert(
            id,
            Saved {
                keyspace,
                older: HashSet::new(),
                doubts: Doubts::default(),
                unflushed: HashMap::new(),
                ranges: MemtableRanges::default(),
                hash_seed,
            },
        );
        Ok(())
    }
}
