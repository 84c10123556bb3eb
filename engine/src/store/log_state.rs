//! State of the store while the log is replayed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use sievedb_filter::hash::key_hash;
use sievedb_format::{Corruption, RangeTombstone, SequenceNumber, Trailer};
use sievedb_memtable::Memtable;

use crate::{
    Error, KeyspaceOptions, Options, Result,
    file_name::{FileName, ID_MAX},
    history_length::HistoryStart,
    keyspace_options::DEFAULT_KEYSPACE,
    manifest::{KeyspaceChanged, KeyspaceCreated, KeyspaceRenamed, ManifestState, VersionEdit},
    memory::MemoryAccount,
    merge_operator::NamedOperator,
    read::view::PlacedMemtable,
    resolve::is_tombstone,
    store::replayed_memtables::ReplayedMemtables,
    store_clock::StoreClock,
    wal::{batch::Entry, replay::ReplayedBatch},
};

/// State of the manifest, with the changes of the log so far.
#[derive(Debug)]
pub(super) struct LogState<'a> {
    options: &'a Options,
    state: &'a ManifestState,
    memory: &'a Arc<MemoryAccount>,
    edit: VersionEdit,
    /// Keyspaces that exist at this point of the log.
    live: BTreeSet<u64>,
    /// Size at which their memtables are frozen, by their options.
    memtable_bytes: BTreeMap<u64, usize>,
    /// Keyspaces that require a feature or a merge operator which this build lacks.
    lacking: BTreeMap<u64, Error>,
    /// Above the ids of all keyspaces so far.
    next_keyspace_id: u64,
    memtables: Unflushed,
    /// Changes of keyspaces were added to the edit, or tables were ingested.
    is_edited: bool,
    /// Sequence number of the last ingest.
    ingested: SequenceNumber,
}

/// Entries that the log adds to tables, by keyspace.
pub(super) type Unflushed = BTreeMap<u64, ReplayedMemtables>;

impl<'a> LogState<'a> {
    pub(super) fn new(
        options: &'a Options,
        state: &'a ManifestState,
        memory: &'a Arc<MemoryAccount>,
    ) -> Self {
        Self {
            options,
            state,
            memory,
            edit: VersionEdit::default(),
            live: state.keyspaces.keys().copied().collect(),
            memtable_bytes: BTreeMap::new(),
            lacking: BTreeMap::new(),
            next_keyspace_id: state.next_keyspace_id,
            memtables: BTreeMap::new(),
            is_edited: false,
            ingested: 0,
        }
    }

    /// Continues behind a part of the log that was applied before: `edit` and `memtables` are its
    /// [parts](Self::into_parts).
    pub(super) fn resume(
        options: &'a Options,
        state: &'a ManifestState,
        memory: &'a Arc<MemoryAccount>,
        edit: VersionEdit,
        memtables: Unflushed,
    ) -> Self {
        let mut log = Self::new(options, state, memory);
        log.live.extend(edit.keyspaces_created.iter().map(|created| created.id));
        for id in &edit.keyspaces_dropped {
            log.live.remove(id);
        }
        log.next_keyspace_id = log.next_keyspace_id.max(edit.next_keyspace_id.unwrap_or(0));
        log.memtables = memtables;
        log.edit = edit;
        log
    }

    /// Notes the size of memtables of the keyspace `id`, whose options were noted before.
    pub(super) fn note_memtable_bytes(&mut self, id: u64, bytes: usize) {
        self.memtable_bytes.insert(id, bytes);
    }

    /// Returns the sequence number of the last ingest in the log; 0 if there is none.
    pub(super) const fn ingested(&self) -> SequenceNumber {
        self.ingested
    }

    /// Charges the memory of the entries so far, and returns them. Returns `None` if keyspaces have
    /// changed, or tables were ingested, since [`resume`](Self::resume): the entries alone are not
    /// a state.
    pub(super) fn entries(&mut self) -> Option<&Unflushed> {
        self.charge();
        (!self.is_edited).then_some(&self.memtables)
    }

    /// Returns the keyspaces created and dropped, and the entries by keyspace.
    pub(super) fn into_parts(mut self) -> (VersionEdit, Unflushed) {
        let created = self.edit.keyspaces_created.iter();
        self.edit.next_keyspace_id = created.map(|created| created.id + 1).max();
        self.charge();
        (self.edit, self.memtables)
    }

    fn charge(&mut self) {
        self.memtables.values_mut().for_each(ReplayedMemtables::charge);
    }

    /// Notes the stored options of the keyspace `id`; `error` adds their position.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]. A missing feature is an error only of keyspaces that remain: see
    /// [`check_features`](Self::check_features).
    pub(super) fn note_options(
        &mut self,
        id: u64,
        name: &str,
        encoded: &[u8],
        error: impl FnOnce(Corruption) -> Error,
    ) -> Result<()> {
        match present_options(self.options, name, encoded) {
            Ok(options) => {
                self.memtable_bytes.insert(id, options.memtable_bytes);
                if let Err(error) = check_operator(name, encoded, &options) {
                    self.lacking.insert(id, error);
                }
            }
            Err(source @ Corruption::NeedsFeature { .. }) => {
                self.lacking.insert(id, error(source).of_keyspace(name));
            }
            Err(source) => return Err(error(source).of_keyspace(name)),
        }
        Ok(())
    }

    /// # Errors
    ///
    /// [`Error::NeedsFeature`] if a keyspace requires a feature which this build lacks;
    /// [`Error::UnknownMergeOperator`], [`Error::MergeOperatorFixed`].
    pub(super) fn check_features(&mut self) -> Result<()> {
        self.lacking.pop_first().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Applies a batch.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if its entries cannot be read, or are of unknown keyspaces.
    pub(super) fn apply(&mut self, replayed: &ReplayedBatch<'_>) -> Result<()> {
        let batch = replayed.sequence;
        for (sequence, entry) in (batch..).zip(&replayed.batch) {
            let entry = entry.map_err(|source| replayed.corrupt(source))?;
            let corrupt = |source| replayed.corrupt(source);
            match entry {
                Entry::Point { keyspace, kind, key, value } => {
                    let (seed, charge) =
                        (self.state.hash_seed, Memtable::charge(key.len(), value.len()));
                    let placed = self.place(keyspace, batch, sequence, charge).map_err(corrupt)?;
                    if let Some(placed) = placed {
                        let (hash, trailer) = (key_hash(key, seed), Trailer::new(sequence, kind));
                        placed.memtable.insert(hash, key, trailer, &value);
                        if is_tombstone(trailer) {
                            placed.note_tombstone();
                        }
                    }
                }
                Entry::RemoveRange { keyspace, start, end } => {
                    let charge = Memtable::range_tombstone_charge(start.len(), end.len());
                    let placed = self.place(keyspace, batch, sequence, charge).map_err(corrupt)?;
                    if let Some(placed) = placed {
                        let tombstone = RangeTombstone::new(start, end, sequence);
                        placed.memtable.insert_range_tombstone(tombstone);
                    }
                }
                Entry::CreateKeyspace { keyspace, name, options } => {
                    self.create(keyspace, name, options, corrupt)?;
                }
                // The manifest has the tables, or the ingest failed.
                Entry::Ingest { keyspace, .. } => {
                    (self.ingested, self.is_edited) = (sequence, true);
                    self.end_memtable(keyspace);
                }
                Entry::Ignored { .. } => {}
                Entry::DropKeyspace { keyspace } => self.drop_keyspace(keyspace),
                Entry::ClearKeyspace { keyspace } => self.clear_keyspace(keyspace, sequence),
                Entry::RenameKeyspace { keyspace, name } => {
                    self.rename_keyspace(keyspace, sequence, name);
                }
            }
        }
        Ok(())
    }

    /// Begins a memtable of a follower at an ingest: views without the tables must not see the
    /// entries behind it.
    fn end_memtable(&mut self, keyspace: u64) {
        if let Some(memtables) = self.memtables.get_mut(&keyspace)
            && self.options.is_refreshed()
        {
            let own = self.memtable_bytes.get(&keyspace).copied();
            memtables.begin(own.unwrap_or(0), self.memory);
        }
    }

    fn drop_keyspace(&mut self, id: u64) {
        if self.live.remove(&id) {
            self.is_edited = true;
            self.edit.keyspaces_dropped.push(id);
            self.memtables.remove(&id);
            self.lacking.remove(&id);
        }
    }

    fn clear_keyspace(&mut self, id: u64, sequence: SequenceNumber) {
        // The manifest already has an older change.
        if self.live.contains(&id) && sequence > self.flushed(id) {
            self.is_edited = true;
            self.edit.keyspaces_cleared.push((id, sequence));
            self.memtables.remove(&id);
        }
    }

    fn rename_keyspace(&mut self, id: u64, sequence: SequenceNumber, name: &str) {
        let renamed = self.state.keyspaces.get(&id).map_or(0, |known| known.renamed);
        // The manifest already has an older change.
        if self.live.contains(&id) && sequence > renamed {
            self.is_edited = true;
            let renamed = KeyspaceRenamed { id, sequence, name: name.to_owned() };
            self.edit.keyspaces_renamed.push(renamed);
        }
    }

    /// Returns the sequence number up to which the manifest has the entries of a keyspace.
    fn flushed(&self, id: u64) -> SequenceNumber {
        self.state.keyspaces.get(&id).map_or(0, |known| known.flushed)
    }

    fn create(
        &mut self,
        id: u64,
        name: &str,
        options: &[u8],
        corrupt: impl Fn(Corruption) -> Error,
    ) -> Result<()> {
        if id < self.next_keyspace_id {
            // The manifest has the creation, and may have the drop.
            return Ok(());
        }
        // Here, where the position of the record is known.
        self.note_options(id, name, options, &corrupt)?;
        if id >= ID_MAX {
            let error = corrupt(Corruption::OutOfRange { what: "keyspace id", value: id });
            return Err(error.of_keyspace(name));
        }
        self.next_keyspace_id = id + 1;
        self.live.insert(id);
        self.is_edited = true;
        let (name, options) = (name.to_owned(), options.to_owned());
        self.edit.keyspaces_created.push(KeyspaceCreated { id, name, options });
        Ok(())
    }

    /// Places an entry that takes `charge_bytes`, of the batch at `batch`. Returns its memtable;
    /// `None` if the entry is not needed.
    fn place(
        &mut self,
        keyspace: u64,
        batch: SequenceNumber,
        sequence: SequenceNumber,
        charge_bytes: usize,
    ) -> Result<Option<&PlacedMemtable>, Corruption> {
        if !self.live.contains(&keyspace) {
            if keyspace < self.next_keyspace_id {
                // Dropped.
                return Ok(None);
            }
            let (expected, found) = (self.next_keyspace_id, keyspace);
            return Err(Corruption::Mismatch { what: "keyspace of an entry", expected, found });
        }
        if sequence <= self.flushed(keyspace) {
            return Ok(None);
        }
        let own = self.memtable_bytes.get(&keyspace).copied();
        // If the options are unreadable, the open fails later.
        let frozen_at = own.unwrap_or_else(|| self.options.new_keyspace().memtable_bytes);
        let (memory, rotates) = (self.memory, self.options.is_refreshed());
        let new = || match rotates {
            true => ReplayedMemtables::rotated(frozen_at, memory),
            false => ReplayedMemtables::new(frozen_at, memory),
        };
        let memtables = self.memtables.entry(keyspace).or_insert_with(new);
        if rotates {
            memtables.rotate(batch, frozen_at, memory);
        }
        Ok(Some(memtables.place(sequence, charge_bytes)))
    }
}

/// Returns the stored options of a keyspace; for the default keyspace those of the opening, if any.
pub(super) fn present_options(
    options: &Options,
    name: &str,
    encoded: &[u8],
) -> Result<KeyspaceOptions, Corruption> {
    let stored = KeyspaceOptions::decode(encoded);
    let present = match &options.keyspace {
        Some(given) if name == DEFAULT_KEYSPACE => {
            // Options of a later release are refused, not replaced.
            if let Err(newer @ Corruption::Unsupported { .. }) = stored {
                return Err(newer);
            }
            given.clone()
        }
        _ => stored?,
    };
    let present = present.with_functions(&options.prefix_functions);
    let present = present.with_operators(&options.merge_operators);
    Ok(present.with_filters(&options.compaction_filters))
}

/// Returns an error if the keyspace cannot be opened with the merge operator of `present`, its
/// present options.
pub(super) fn check_operator(name: &str, encoded: &[u8], present: &KeyspaceOptions) -> Result<()> {
    let stored = KeyspaceOptions::decode(encoded).map(|stored| stored.merge_operator);
    stored.unwrap_or_default().check_change(name, &present.merge_operator)?;
    match &present.merge_operator {
        NamedOperator::Missing(operator) | NamedOperator::Reserved(operator) => {
            let (keyspace, operator) = (name.to_owned(), operator.clone());
            Err(Error::UnknownMergeOperator { keyspace, operator })
        }
        NamedOperator::Present(_) | NamedOperator::None => Ok(()),
    }
}

/// Returns the options of the opening for the default keyspace, if they differ from the stored
/// ones. Later openings without options use them.
pub(super) fn changed_options(
    options: &Options,
    state: &ManifestState,
    edit: &VersionEdit,
) -> Option<KeyspaceChanged> {
    let given = options.keyspace.as_ref()?.encode();
    let (id, stored) = stored_default(state, edit)?;
    (*stored != given).then_some(KeyspaceChanged { id, options: given })
}

/// Returns the default keyspace and `last`, the last sequence number, if the options of the opening
/// begin a history: versions before may be missing.
pub(super) fn begun_history(
    options: &Options,
    state: &ManifestState,
    edit: &VersionEdit,
    last: SequenceNumber,
) -> Option<(u64, HistoryStart)> {
    options.keyspace.as_ref()?.history?;
    let (id, stored) = stored_default(state, edit)?;
    let stored = KeyspaceOptions::decode(stored).ok()?;
    let clock = StoreClock::open(Arc::clone(&options.clock), state.store_clock_ms, true);
    let start = HistoryStart { sequence: last, clock_ms: clock.now_ms() };
    stored.history.is_none().then_some((id, start))
}

/// Returns the id and the stored options of the default keyspace.
fn stored_default<'s>(
    state: &'s ManifestState,
    edit: &'s VersionEdit,
) -> Option<(u64, &'s Vec<u8>)> {
    let known = state.keyspaces.iter().map(|(&id, known)| (id, &known.name, &known.options));
    let created = edit.keyspaces_created.iter();
    let created = created.map(|created| (created.id, &created.name, &created.options));
    let mut all = known.chain(created);
    all.find(|(_, name, _)| *name == DEFAULT_KEYSPACE).map(|(id, _, stored)| (id, stored))
}

/// Returns the error for a state that cannot be applied to the manifest in `folder`.
pub(super) fn corrupt_state(folder: &Path, source: Corruption) -> Error {
    Error::corrupt(FileName::Current.path(folder), 0, source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::KeyspaceState;

    /// Returns the charge of a memtable of these options with one entry, in an account without a
    /// limit.
    fn charged(given: Option<KeyspaceOptions>, state: &ManifestState, log: &VersionEdit) -> u64 {
        let options = Options { keyspace: given, ..Options::new() };
        let memory = Arc::<MemoryAccount>::default();
        let mut log_state = LogState::new(&options, state, &memory);
        let error = |source| Error::corrupt("", 0, source);
        for (&id, keyspace) in &state.keyspaces {
            log_state.note_options(id, &keyspace.name, &keyspace.options, error).expect("good");
        }
        for KeyspaceCreated { id, name, options } in &log.keyspaces_created {
            log_state.create(*id, name, options, error).expect("good");
        }
        log_state.place(1, 1, 1, 3).expect("it is there");
        memory.memtable_bytes()
    }

    #[test]
    fn a_replayed_memtable_is_of_the_size_of_its_keyspace() {
        let sized = |bytes| KeyspaceOptions::new().memtable_bytes(bytes);
        let named = |name: &str, options: &KeyspaceOptions| {
            let mut state = ManifestState::new(1, 2);
            state.next_keyspace_id = 2;
            let (name, options) = (name.to_owned(), options.encode());
            let keyspace = KeyspaceState { name, options, ..KeyspaceState::default() };
            state.keyspaces.insert(1, Arc::new(keyspace));
            state
        };
        let none = VersionEdit::default();
        let small = charged(None, &named("users", &sized(1 << 20)), &none);
        let large = charged(None, &named("users", &sized(64 << 20)), &none);
        assert!(large > 32 * small, "{large} and {small}");
        let given = charged(Some(sized(64 << 20)), &named("default", &sized(1 << 20)), &none);
        assert_eq!(given, large, "options of the opening apply");
        let others = charged(Some(sized(64 << 20)), &named("users", &sized(1 << 20)), &none);
        assert_eq!(others, small, "they apply to the default keyspace only");
        let (name, options) = ("users".to_owned(), sized(1 << 20).encode());
        let created = vec![KeyspaceCreated { id: 1, name, options }];
        let log = VersionEdit { keyspaces_created: created, ..VersionEdit::default() };
        assert_eq!(charged(None, &ManifestState::new(1, 2), &log), small, "created in the log");
    }
}
