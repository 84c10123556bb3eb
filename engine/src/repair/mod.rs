//! Writes what can be read of a damaged store to a new one.
//!
//! The tables of a keyspace are read from the oldest run to the newest, so that what is newer takes
//! the place of what is older, and the log comes last, up to its first damage. Where a table, or a
//! block of it, cannot be read, something newer may be lost than what older runs had of its keys:
//! these keys are taken out again, unless the filter of the table, which lies apart, knows that
//! they were not in there.

mod keyspaces;
mod log;
mod lost;
mod merged;
mod rebuild;
mod report;
mod source;
mod state;
mod tables;

pub use self::report::RepairReport;
use self::{
    rebuild::FoundLog,
    state::{State, read_state},
};

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use sievedb_filter::hash::key_hash;

use crate::{
    DEFAULT_KEYSPACE, Db, Durability, Error, Keyspace, KeyspaceOptions, Options, Result,
    VerifyReport,
    file_name::FileName,
    fs::Fs,
    manifest::{KeyspaceState, load::Loaded},
    store::folder::lock_to_read,
    store::verify::{check_traces, list},
};

/// Treatment of keys whose only readable values may be outdated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OlderValues {
    /// They are not in the new store.
    #[default]
    LeaveOut,
    /// They are in the new store with these values; keys that were removed may be among them.
    Keep,
}

impl Options {
    /// Writes what can be read of the store in the folder `from`, which need not be fit to be
    /// opened, into a new one in the folder `to`, which must be missing or empty. `from` stays as
    /// it is; it must not be open. These options are those of the new store; keyspaces keep theirs.
    ///
    /// Damaged blocks and missing tables are lost, and the log from its first damage on. So batches
    /// may be torn apart. A table whose footer or index is damaged is scanned block by block: each
    /// block carries its checksum. If only `CURRENT` is lost and there is
    /// one manifest, nothing is lost: [`RepairReport::replaced`]. If nothing is damaged the new
    /// store holds what the old one does. What the disk does not give back counts as damaged.
    ///
    /// If no manifest can be read, tables and log say which keyspaces there are, and of each key
    /// the entry with the largest sequence number counts. Tables that others name as replaced are
    /// left out. Not known then: keyspaces that neither a table nor the log names, and changes of
    /// options since the newest table. A table whose footer is damaged as well is lost, and what
    /// other tables have of its keys may be older: [`RepairReport::tables_unknown`].
    ///
    /// Reads every table twice, and writes every entry as [`Keyspace::insert`] does. An entry that
    /// is too large for the [memory budget](Self::memory_budget) raises it until this returns.
    /// Beside the budget takes some 16 bytes for each of the keys that the report counts as
    /// [`older`](RepairReport::older). Without a manifest it also takes some 32 bytes for each key
    /// that the log has.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] also if a file cannot be read for a reason that is none of its own, such as
    /// too many open files or no right to read it: it would be lost for nothing. To be tried again,
    /// with another `to`. [`Error::Corrupt`] if no manifest can be read, and no table and no
    /// segment of a log. [`Error::NewerRelease`] if a later release wrote a file: repair the store
    /// with that one. [`Error::DirectoryNotEmpty`] if `to` has files. [`Error::DirectoriesOverlap`] if
    /// `to` is `from`, or one of them is inside of the other, symbolic links resolved. As
    /// [`verify`](Self::verify) for the one store, and as [`open`](Self::open) and
    /// [`Keyspace::insert`] for the other.
    pub fn repair(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        older: OlderValues,
    ) -> Result<RepairReport> {
        let (fs, folder, to) = (&*self.fs, from.as_ref(), to.as_ref());
        check_apart(fs, folder, to)?;
        check_traces(fs, folder)?;
        let _lock = lock_to_read(fs, folder)?;
        let names = list(fs, folder)?;
        let State { loaded, rebuilt, current, lost } = read_state(&self.fs, folder, &names)?;
        check_empty(fs, to)?;
        let db = self.clone().read_only(false).create_if_missing(true).open(to)?;
        let mut repair = Repair {
            options: self,
            folder,
            loaded: &loaded,
            db: &db,
            older,
            saved: BTreeMap::new(),
            rescanned: 0,
            dropped: rebuilt.as_ref().map(|rebuilt| rebuilt.dropped.clone()).unwrap_or_default(),
            unnamed: Vec::new(),
            logs: rebuilt.as_ref().map(|rebuilt| &*rebuilt.logs),
            is_cut: false,
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
        db.flush()?;
        db.persist(Durability::Disk)?;
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

/// Refuses directories of which one lies in the other: a repair never changes the damaged store.
fn check_apart(fs: &dyn Fs, from: &Path, to: &Path) -> Result<()> {
    let resolve = |path: &Path| fs.resolve(path).map_err(|error| Error::io("resolve", path, error));
    let (damaged, new) = (resolve(from)?, resolve(to)?);
    if damaged.starts_with(&new) || new.starts_with(&damaged) {
        return Err(Error::DirectoriesOverlap { from: from.to_owned(), to: to.to_owned() });
    }
    Ok(())
}

/// Refuses a folder with files of anybody: what is there would mix with what is saved.
fn check_empty(fs: &dyn Fs, folder: &Path) -> Result<()> {
    match fs.list(folder).unwrap_or_default().into_iter().next() {
        Some(name) => Err(Error::DirectoryNotEmpty { path: folder.to_owned(), name }),
        None => Ok(()),
    }
}

/// A repair in progress.
struct Repair<'a> {
    options: &'a Options,
    /// Of the damaged store.
    folder: &'a Path,
    loaded: &'a Loaded,
    /// The new store.
    db: &'a Db,
    older: OlderValues,
    /// By the id that they had.
    saved: BTreeMap<u64, Saved>,
    /// Tables that were read without their footer.
    rescanned: u64,
    /// Ids of keyspaces that are gone.
    dropped: BTreeSet<u64>,
    /// Names given to keyspaces that nothing names.
    unnamed: Vec<String>,
    /// Each log, if `loaded` was made of tables and log.
    logs: Option<&'a [FoundLog]>,
    /// Whether the log that is copied is cut.
    is_cut: bool,
    /// Keyspaces of which no table counts.
    emptied: BTreeMap<u64, Arc<KeyspaceState>>,
    /// Entries of a cut log of keyspaces that nothing else has.
    older_left_out: u64,
    found: VerifyReport,
}

/// A keyspace of the new store.
struct Saved {
    keyspace: Keyspace,
    /// Of the keys that it has, or has lost again: the hashes of those whose values may be older
    /// than what is lost.
    older: HashSet<u64>,
    /// Without a manifest: by 128 bits of hash of the key, the largest sequence number so far of
    /// what was not known to be flushed.
    unflushed: HashMap<u128, u64>,
    hash_seed: u64,
}

impl Saved {
    fn hash(&self, key: &[u8]) -> u64 {
        key_hash(key, self.hash_seed)
    }

    fn hash_128(&self, key: &[u8]) -> u128 {
        u128::from(self.hash(key)) << 64 | u128::from(key_hash(key, !self.hash_seed))
    }

    /// Stores a value, or removes the key, in place of all that is older.
    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.older.remove(&self.hash(key));
        self.store(key, value)
    }

    /// Returns whether no entry of the key that was read before has a larger number. Notes the
    /// number then.
    fn is_newest(&mut self, sequence: u64, key: &[u8]) -> bool {
        let newest = self.unflushed.entry(self.hash_128(key)).or_default();
        let is_newest = *newest <= sequence;
        *newest = sequence.max(*newest);
        is_newest
    }

    /// Notes that what there is of a key may be older than what is lost, and removes it, or lets
    /// `keep` keep it.
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

    fn store(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let Some(value) = value else { return self.keyspace.remove(key) };
        match self.keyspace.insert(key, value) {
            Err(Error::WriteTooLarge { bytes, .. }) => {
                let store = self.keyspace.open_store().store();
                store.change_memory_budget(|budget| budget.make_room_for(bytes))?;
                self.keyspace.insert(key, value)
            }
            stored => stored,
        }
    }
}

impl Repair<'_> {
    /// Where both stores are. Closes tables of the new one rather than open too many files.
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
        // Deeper levels are older, and of two runs of a level the one with the smaller number.
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

    /// The problems from `first` on are about this keyspace.
    fn name_keyspace(&mut self, first: usize, name: &str) {
        for problem in &mut self.found.problems[first..] {
            problem.keyspace = Some(name.to_owned());
        }
    }

    fn create(&mut self, id: u64, name: &str, encoded: &[u8]) -> Result<()> {
        let decoded = KeyspaceOptions::decode(encoded, &self.options.prefix_functions);
        let options = decoded.map_err(|source| {
            let path = FileName::Manifest(self.loaded.end.file_id).path(self.folder);
            Error::corrupt(path, self.loaded.end.offset, source).of_keyspace(name)
        })?;
        let keyspace = if name == DEFAULT_KEYSPACE {
            self.db.default_keyspace().set_options(options)?;
            self.db.keyspace(name)?
        } else {
            self.db.keyspace_with(name, &options)?
        };
        let hash_seed = self.loaded.state.hash_seed;
        self.saved.insert(
            id,
            Saved { keyspace, older: HashSet::new(), unflushed: HashMap::new(), hash_seed },
        );
        Ok(())
    }
}
