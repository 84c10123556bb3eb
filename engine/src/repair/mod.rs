//! What can be read of a damaged store is written into a new one.
//!
//! The tables of a keyspace are read from the oldest run to the newest, so that what is newer takes the place
//! of what is older, and the log comes last, up to its first damage. Where a table, or a block of it, cannot
//! be read, something newer may be lost than what older runs had of its keys: these keys are taken out again,
//! unless the filter of the table, which lies apart, knows that they were not in there.

mod keyspaces;
mod log;
mod lost;
mod merged;
mod rebuild;
mod source;
mod tables;

use self::{lost::check_lost, rebuild::rebuild};

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    path::Path,
    sync::Arc,
};

use sievedb_filter::hash::key_hash;

use crate::{
    DEFAULT_KEYSPACE, Db, Durability, Error, Keyspace, KeyspaceOptions, Options, Result,
    VerifyProblem, VerifyReport,
    file_name::FileName,
    fs::Fs,
    manifest::{
        KeyspaceState, load,
        load::{Loaded, load_newest},
    },
    store::folder::lock_to_read,
    store::verify::{check_traces, current_is_missing, list},
    text,
    text::counted,
};

/// What becomes of keys of which only values are left that may be older than what is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OlderValues {
    /// They are not in the new store.
    #[default]
    LeaveOut,
    /// They are in the new store with these values; keys that were removed may be among them.
    Keep,
}

/// What a repair could not read: see [`Options::repair`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// What was damaged, with its keyspace and its keys if it held entries.
    pub lost: Vec<VerifyProblem>,
    /// Keys of which only values are left that may be older than what is lost. Counted by 64 bits of hash each, so
    /// that of a billion there may be one too few; the store does not depend on it.
    pub older: u64,
    /// Tables that were read, those with damaged blocks included.
    pub tables: u64,
    /// Of these, tables whose footer or index is damaged, so that they were scanned block by block.
    pub tables_rescanned: u64,
    /// Batches of the log that were read.
    pub log_batches: u64,
    /// Whether the manifest is lost, so that tables and log said which keyspaces there are.
    pub is_rebuilt: bool,
    /// Without a manifest: tables that were left out, because others replace them or their keyspace
    /// was dropped.
    pub tables_left_out: u64,
    /// Without a manifest: new names of keyspaces that only the log has, which does not name them.
    /// Their options are the defaults.
    pub keyspaces_unnamed: Vec<String>,
    /// Without a manifest: lost tables of which neither keyspace nor keys are known.
    pub tables_unknown: u64,
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for lost in &self.lost {
            writeln!(f, "lost: {lost}")?;
        }
        let read = format!(
            "{} and {} of the log were read",
            counted(self.tables, ["table", "tables"]),
            counted(self.log_batches, ["batch", "batches"])
        );
        if self.tables_rescanned > 0 {
            let tables = counted(self.tables_rescanned, ["table", "tables"]);
            writeln!(f, "{tables} scanned block by block, because footer or index is damaged")?;
        }
        if self.is_rebuilt {
            writeln!(f, "the manifest is lost: tables and log say which keyspaces there are")?;
        }
        if self.tables_left_out > 0 {
            let tables = counted(self.tables_left_out, ["table", "tables"]);
            writeln!(f, "{tables} left out: replaced by others, or of a dropped keyspace")?;
        }
        for name in &self.keyspaces_unnamed {
            writeln!(f, "keyspace {name:?} is in the log without its name and options")?;
        }
        if self.tables_unknown > 0 {
            let tables = counted(self.tables_unknown, ["table", "tables"]);
            writeln!(f, "keyspace and keys of {tables} are unknown; other values may be older")?;
        }
        if self.lost.is_empty() {
            return write!(f, "nothing is lost: {read}");
        }
        let places = counted(self.lost.len() as u64, ["place", "places"]);
        write!(f, "{read}, {places} cannot be read")?;
        let lost_bytes = self.lost.iter().fold(0, |sum: u64, lost| sum.saturating_add(lost.bytes));
        if lost_bytes > 0 {
            write!(f, " ({} of blocks)", text::bytes(lost_bytes))?;
        }
        if self.older > 0 {
            let keys = counted(self.older, ["key", "keys"]);
            write!(f, "; of {keys} only what may be older than that is left")?;
        }
        Ok(())
    }
}

impl Options {
    /// Writes what can be read of the store in the folder `from`, which need not be fit to be opened, into a new
    /// one in the folder `to`, which must be missing or empty. `from` stays as it is; it must not be open. These
    /// options are those of the new store; keyspaces keep theirs.
    ///
    /// Damaged blocks and missing tables are lost, and the log from its first damage on. So batches
    /// may be torn apart. A table whose footer or index is damaged is scanned block by block, in
    /// memory of its length: each block carries its checksum. If `CURRENT` is lost, the newest
    /// manifest in the directory that reads back whole counts; the report names `CURRENT` then. If
    /// nothing is damaged the new store holds what the old one does. What the disk does not give
    /// back counts as damaged.
    ///
    /// If no manifest can be read, tables and log say which keyspaces there are, and of each key
    /// the entry with the largest sequence number counts. Tables that others name as replaced are
    /// left out. Not known then: keyspaces that neither a table nor the log names, and changes of
    /// options since the newest table. A table whose footer is damaged as well is lost, and what
    /// other tables have of its keys may be older: [`RepairReport::tables_unknown`]. Tables that
    /// were replaced or dropped, and whose files are still there, come back if no table was written
    /// since: so may keys that were removed.
    ///
    /// Reads every table twice, and writes every entry as [`Keyspace::insert`] does. An entry that is too large
    /// for the [memory budget](Self::memory_budget) raises it until this returns. Beside the budget takes some
    /// 16 bytes for each of the keys that the report counts as [`older`](RepairReport::older).
    /// Without a manifest it also takes the keys that the log has, each once.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] also if a file cannot be read for a reason that is none of its own, such as too many open files
    /// or no right to read it: it would be lost for nothing. To be tried again, with another `to`.
    /// [`Error::Corrupt`] if no manifest can be read, and no table and no segment of a log.
    /// [`Error::NewerRelease`] if a later release wrote a file: repair the store with that one.
    /// [`Error::FolderNotEmpty`] if `to` has files. As [`verify`](Self::verify) for the one store, and as
    /// [`open`](Self::open) and [`Keyspace::insert`] for the other.
    pub fn repair(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        older: OlderValues,
    ) -> Result<RepairReport> {
        let (fs, folder, to) = (&*self.fs, from.as_ref(), to.as_ref());
        check_traces(fs, folder)?;
        let _lock = lock_to_read(fs, folder)?;
        let names = list(fs, folder)?;
        let (mut without_current, mut rebuilt) = (None, None);
        let loaded =
            match load(fs, folder).and_then(|it| it.ok_or_else(|| current_is_missing(folder))) {
                Ok(loaded) => loaded,
                Err(error) => {
                    check_lost(&error)?;
                    let found = match load_newest(fs, folder, &names).map_err(Error::of_opening)? {
                        Some(loaded) => loaded,
                        None => {
                            let found = rebuild(&self.fs, folder, &names)?;
                            rebuilt.insert(found.ok_or_else(|| error.clone())?).loaded.clone()
                        }
                    };
                    without_current = Some(error);
                    found
                }
            };
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
            rebuilt_log: rebuilt.as_ref().map(|rebuilt| &*rebuilt.segments),
            found: VerifyReport::default(),
        };
        if let Some(error) = &without_current {
            repair.found.error(error);
        }
        for error in rebuilt.iter().flat_map(|rebuilt| &rebuilt.unknown) {
            repair.found.error(error);
        }
        for (&id, keyspace) in &loaded.state.keyspaces {
            repair.keyspace(id, keyspace)?;
        }
        repair.log(&names)?;
        let older = repair.saved.values().map(|saved| saved.older.len() as u64).sum();
        let (tables_rescanned, keyspaces_unnamed) = (repair.rescanned, repair.unnamed);
        let VerifyReport { problems: lost, tables, log_batches, .. } = repair.found;
        db.flush()?;
        db.persist(Durability::Disk)?;
        Ok(RepairReport {
            lost,
            older,
            tables,
            tables_rescanned,
            log_batches,
            is_rebuilt: rebuilt.is_some(),
            keyspaces_unnamed,
            tables_left_out: rebuilt.as_ref().map_or(0, |rebuilt| rebuilt.left_out),
            tables_unknown: rebuilt.as_ref().map_or(0, |rebuilt| rebuilt.unknown.len() as u64),
        })
    }
}

/// Refuses a folder with files of anybody: what is there would mix with what is saved.
fn check_empty(fs: &dyn Fs, folder: &Path) -> Result<()> {
    match fs.list(folder).unwrap_or_default().into_iter().next() {
        Some(name) => Err(Error::FolderNotEmpty { path: folder.to_owned(), name }),
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
    /// The segments of each log, if `loaded` was made of tables and log.
    rebuilt_log: Option<&'a [Vec<u64>]>,
    found: VerifyReport,
}

/// A keyspace of the new store.
struct Saved {
    keyspace: Keyspace,
    /// Of the keys that it has, or has lost again: the hashes of those whose values may be older than what is
    /// lost.
    older: HashSet<u64>,
    /// Without a manifest: by key, the largest sequence number so far of what was not known to be
    /// flushed.
    unflushed: HashMap<Box<[u8]>, u64>,
    hash_seed: u64,
}

impl Saved {
    fn hash(&self, key: &[u8]) -> u64 {
        key_hash(key, self.hash_seed)
    }

    /// Stores a value, or removes the key, in place of all that is older.
    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.older.remove(&self.hash(key));
        self.store(key, value)
    }

    /// As [`put`](Self::put), for an entry of a log without a manifest, unless there was one of the
    /// key with a larger number.
    fn replay(&mut self, sequence: u64, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        match self.unflushed.get_mut(key) {
            Some(newest) if *newest > sequence => return Ok(()),
            Some(newest) => *newest = sequence,
            None => drop(self.unflushed.insert(key.into(), sequence)),
        }
        self.put(key, value)
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
        if self.rebuilt_log.is_some() {
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
            self.db.set_options(options)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VerifyProblemKind;

    #[test]
    fn a_report_says_what_there_is_to_say() {
        let lost = VerifyProblem {
            path: "000012.sst".into(),
            offset: 7,
            keyspace: None,
            keys: None,
            bytes: 0,
            kind: VerifyProblemKind::Damaged,
            message: "is gone".to_owned(),
        };
        let nothing = RepairReport { tables: 3, log_batches: 1, ..RepairReport::default() };
        let some = RepairReport { lost: vec![lost], ..nothing.clone() };
        let older = RepairReport { older: 2, ..some.clone() };
        let read = "3 tables and 1 batch of the log were read";
        let damaged =
            format!("lost: 000012.sst near byte 7: is gone\n{read}, 1 place cannot be read");
        let cases = [
            (nothing, format!("nothing is lost: {read}")),
            (some, damaged.clone()),
            (older, damaged + "; of 2 keys only what may be older than that is left"),
        ];
        for (report, want) in cases {
            assert_eq!(report.to_string(), want);
        }
    }
}
