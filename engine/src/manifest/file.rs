//! Creates a manifest and appends to it.
//!
//! Each edit is durable when [`ManifestFile::append`] returns, and carries the synced mark of all
//! edits before it. So a bad record followed by a good one is damage.
//!
//! The next process continues a manifest only if it is known to be durable as a whole
//! ([`Loaded::is_durable`]), as after a clean close. After a crash a sync may have failed, so
//! recovery creates a new one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use sievedb_format::{FileHeader, FileKind};

use super::{current::Current, edit::VersionEdit, load::Loaded, state::ManifestState};
use crate::{
    Error, Result,
    error::SYNC,
    file_name::FileName,
    fs::Fs,
    log::{Payload, PendingRecord, Position, Start, Writer, draw_secret},
};

/// Minimum length of a manifest for a rewrite. It must also exceed [`GROWTH_MAX`] times its first
/// edit.
const REWRITE_BYTES_MIN: u64 = 1 << 20;

/// Bounds the cost of rewrites to a small multiple of the bytes of edits.
const GROWTH_MAX: u64 = 8;

/// Minimum length of a manifest that is rewritten when the store is opened. It must also exceed
/// [`KEPT_GROWTH_MAX`] times its first edit. The rewrite makes later opens faster.
const KEPT_BYTES_MIN: u64 = 64 << 10;

const KEPT_GROWTH_MAX: u64 = 2;

/// The current manifest, open for appending.
#[derive(Debug)]
pub(crate) struct ManifestFile {
    fs: Arc<dyn Fs>,
    folder: PathBuf,
    state: ManifestState,
    writer: Writer,
    /// Number of the last edit.
    edits: u64,
    /// Length after the first edit.
    first_bytes: u64,
    /// Length of a manifest that is too long to continue.
    rewrite_bytes: u64,
    /// Position for which `CLOSED` vouches; the default for none.
    noted: Position,
    health: Health,
}

#[derive(Debug)]
enum Health {
    Good,
    /// The file may end in part of a record, so the next edit goes to a new file.
    NeedsNewFile,
    /// The state on the disk is unknown.
    Failed(Arc<Error>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct Appended {
    /// The previous manifest, replaced by a new one, which may be deleted.
    pub(crate) replaced: Option<u64>,
}

impl ManifestFile {
    /// Creates manifest `id` with `state` and makes it the current one, durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. Either the new or the previous manifest may then be the current one.
    pub(crate) fn create(
        fs: Arc<dyn Fs>,
        folder: PathBuf,
        id: u64,
        mut state: ManifestState,
    ) -> Result<Self> {
        state.next_file_id = state.next_file_id.max(id + 1);
        let writer = begin(&*fs, &folder, id, &state)?;
        let first_bytes = writer.offset();
        let (edits, noted, health) = (1, Position::default(), Health::Good);
        let rewrite_bytes = rewrite_bytes(first_bytes);
        Ok(Self { fs, folder, state, writer, edits, first_bytes, rewrite_bytes, noted, health })
    }

    /// Returns `true` if [`reopen`](Self::reopen) may continue a manifest.
    pub(crate) fn may_reopen(loaded: &Loaded) -> bool {
        let kept_bytes_max = KEPT_BYTES_MIN.max(KEPT_GROWTH_MAX * loaded.first_bytes);
        loaded.is_durable && loaded.end.offset <= kept_bytes_max
    }

    /// Continues the current manifest, if it [may be](Self::may_reopen) continued. Writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn reopen(fs: Arc<dyn Fs>, folder: PathBuf, loaded: Loaded) -> Result<Self> {
        let Loaded { state, end, secret, edits, first_bytes, .. } = loaded;
        let writer =
            Writer::reopen(&*fs, FileName::Manifest(end.file_id).path(&folder), end, secret)?;
        let (noted, health, rewrite_bytes) = (end, Health::Good, rewrite_bytes(first_bytes));
        Ok(Self { fs, folder, state, writer, edits, first_bytes, rewrite_bytes, noted, health })
    }

    /// Writes `CLOSED` if the whole manifest is durable and the file does not record that yet.
    pub(crate) fn close(&self) {
        let (store_id, manifest) = (self.state.store_id, self.writer.position());
        if matches!(self.health, Health::Good) && self.noted != manifest {
            // A failure costs the next open a few syncs.
            let _ = Current { store_id, manifest }.write_closed(&*self.fs, &self.folder);
        }
    }

    /// Returns the state with all appended edits.
    pub(crate) const fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Returns the manifest's number and durable length, for the start record of a log.
    pub(crate) const fn position(&self) -> Position {
        self.writer.position()
    }

    /// Applies `edit` and makes it durable. `new_id` returns the number of a new manifest, which is
    /// required after a full disk, or if this one is too long.
    ///
    /// # Errors
    ///
    /// After an error the edit is not part of [`state`](Self::state), but may reappear after a
    /// crash. So no file named by the edit or the state may be deleted until a later edit is
    /// durable.
    ///
    /// [`Error::Corrupt`] if the edit does not fit the state; nothing was written.
    /// [`Error::is_retryable`] if the disk was full or no file could be opened: another attempt
    /// creates a new manifest. Other errors, such as a failed sync, are final:
    /// [`is_failed`](Self::is_failed) is `true`, and every further call returns
    /// [`Error::ReadOnly`].
    pub(crate) fn append(
        &mut self,
        edit: &VersionEdit,
        new_id: impl FnOnce() -> u64,
    ) -> Result<Appended> {
        if let Health::Failed(cause) = &self.health {
            return Err(Error::ReadOnly { cause: cause.clone() });
        }
        let mut state = self.state.clone();
        let applied = state.apply(edit);
        let offset = self.writer.offset();
        applied.map_err(|source| Error::corrupt(self.writer.path(), offset, source))?;

        let old = self.writer.file_id();
        let written = match self.health {
            Health::NeedsNewFile => self.rewrite(&mut state, new_id()),
            _ if offset > self.rewrite_bytes => self.shorten(&mut state, edit, new_id()),
            _ => self.write(edit),
        };
        match written {
            Ok(()) => {
                debug_assert!(state.last_sequence >= self.state.last_sequence);
                debug_assert!(state.next_file_id > self.writer.file_id());
                self.state = state;
                self.health = Health::Good;
                let is_new = self.writer.file_id() != old;
                Ok(Appended { replaced: is_new.then_some(old) })
            }
            Err(error) => {
                self.health = if error.is_retryable() {
                    Health::NeedsNewFile
                } else {
                    Health::Failed(Arc::new(error.clone()))
                };
                Err(error)
            }
        }
    }

    /// Returns `true` after an edit failed on a full disk: the next one creates a new manifest.
    pub(crate) const fn needs_new_file(&self) -> bool {
        matches!(self.health, Health::NeedsNewFile)
    }

    /// Makes the next edit create a new manifest.
    #[cfg(feature = "encryption")]
    pub(crate) fn leave(&mut self) {
        if matches!(self.health, Health::Good) {
            self.health = Health::NeedsNewFile;
        }
    }

    /// Returns `true` after a final error: [`append`](Self::append) never succeeds again.
    pub(crate) const fn is_failed(&self) -> bool {
        matches!(self.health, Health::Failed(_))
    }

    fn write(&mut self, edit: &VersionEdit) -> Result<()> {
        debug_assert!(self.edits > 0, "the first edit recreates the state");
        debug_assert!(self.first_bytes <= self.writer.offset());
        let record = record(self.edits + 1, edit);
        // All previous edits are synced.
        self.writer.append(&[record], self.writer.position())?;
        self.writer.sync_data()?;
        self.edits += 1;
        Ok(())
    }

    fn rewrite(&mut self, state: &mut ManifestState, id: u64) -> Result<()> {
        state.next_file_id = state.next_file_id.max(id + 1);
        self.writer = begin(&*self.fs, &self.folder, id, state)?;
        (self.edits, self.first_bytes) = (1, self.writer.offset());
        self.rewrite_bytes = rewrite_bytes(self.first_bytes);
        Ok(())
    }

    /// Rewrites a manifest that is too long. Without room for a whole manifest, continues it for a
    /// while: the edit may be one that frees space.
    fn shorten(&mut self, state: &mut ManifestState, edit: &VersionEdit, id: u64) -> Result<()> {
        let next_file_id = state.next_file_id;
        match self.rewrite(state, id) {
            // `CURRENT` still names this file.
            Err(error) if error.is_retryable() => {
                state.next_file_id = next_file_id;
                self.rewrite_bytes = self.writer.offset() + REWRITE_BYTES_MIN;
                self.write(edit)
            }
            rewritten => rewritten,
        }
    }
}

/// Returns the length of a manifest that is too long to continue.
fn rewrite_bytes(first_bytes: u64) -> u64 {
    REWRITE_BYTES_MIN.max(GROWTH_MAX * first_bytes)
}

/// Writes a manifest and makes it the current one.
fn begin(fs: &dyn Fs, folder: &Path, id: u64, state: &ManifestState) -> Result<Writer> {
    let path = FileName::Manifest(id).path(folder);
    let begun = write_first(fs, folder, &path, id, state).and_then(|writer| {
        let current = Current { store_id: state.store_id, manifest: writer.position() };
        current.install(fs, folder)?;
        Ok(writer)
    });
    begun.inspect_err(|error| {
        if error.is_retryable() {
            // Frees the space of a file that `CURRENT` does not name; recovery would do so too.
            let _ = fs.unlink(&path);
        }
    })
}

/// Writes the file with one edit that recreates `state`, durable with its directory entry.
fn write_first(
    fs: &dyn Fs,
    folder: &Path,
    path: &Path,
    id: u64,
    state: &ManifestState,
) -> Result<Writer> {
    let secret = draw_secret(fs, path)?;
    let header = FileHeader::of_records(FileKind::Manifest, state.store_id, id, secret);
    let start = Start { manifest: Position { file_id: id, offset: 0 }, previous: None };
    let first = record(1, &state.to_edit());
    let mark = Position::default();
    let writer = Writer::create(fs, path.to_owned(), &header, &start, &[first], mark)?;
    writer.sync_data()?;
    fs.sync_dir(folder).map_err(|e| Error::io(SYNC, folder, e))?;
    Ok(writer)
}

fn record(number: u64, edit: &VersionEdit) -> PendingRecord {
    PendingRecord { sequence: number, payload: Payload::new(edit.encode().into()) }
}
