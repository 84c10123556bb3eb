//! Loads the manifest.

use std::{
    io,
    path::{Path, PathBuf},
};

use sievedb_format::{Corruption, FileHeader, FileKind};

use super::{current::Current, edit::VersionEdit, state::ManifestState};
use crate::{
    Error, Result,
    file_name::FileName,
    fs::{Fs, existing},
    log::{Next, Position, Reader, Record, RecordType, Start},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// State after all readable edits.
    pub(crate) state: ManifestState,
    /// The manifest's number, and the end of its last good edit.
    pub(crate) end: Position,
    /// Random number in the manifest's header.
    pub(crate) secret: u64,
    /// Number of edits read.
    pub(crate) edits: u64,
    /// Length after the first edit.
    pub(crate) first_bytes: u64,
    /// `true` if the file and `CURRENT` are known to be durable.
    pub(crate) is_durable: bool,
    /// Reason why the bytes after the last good edit are none. They are an edit that was never
    /// acknowledged, or the last edit, damaged since. The two cannot be distinguished.
    pub(crate) torn: Option<Corruption>,
    /// Length of the torn bytes.
    pub(crate) torn_bytes: u64,
}

impl Loaded {
    /// Refuses the manifest if a log saw more of it. `seen` is
    /// [`manifest`](crate::wal::replay::Replayed::manifest) of the replay.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if durable edits are missing, or `CURRENT` names a replaced manifest.
    pub(crate) fn check_vouched(&self, folder: &Path, seen: Position) -> Result<()> {
        if seen <= self.end {
            return Ok(());
        }
        if seen.file_id > self.end.file_id {
            let (expected, found) = (seen.file_id, self.end.file_id);
            let what = "manifest that CURRENT names";
            let path = FileName::Current.path(folder);
            return Err(Error::corrupt(path, 0, Corruption::Mismatch { what, expected, found }));
        }
        let (need, have) = (seen.offset, self.end.offset);
        let missing = Corruption::Truncated { what: "manifest", need, have };
        let path = FileName::Manifest(self.end.file_id).path(folder);
        Err(Error::corrupt(path, have, self.torn.clone().unwrap_or(missing)))
    }
}

/// Loads the manifest named by `CURRENT`, without writing. Returns `None` without `CURRENT`: the
/// directory has no store, or one whose creation was interrupted. No log and no table has data
/// before the first `CURRENT` is durable.
///
/// # Errors
///
/// [`Error::Io`]. [`Error::Corrupt`] if `CURRENT` or the manifest is damaged: a bad record is a
/// torn tail only if nothing vouches for it. Also if `CURRENT` is missing and data exist.
pub(crate) fn load(fs: &dyn Fs, folder: &Path) -> Result<Option<Loaded>> {
    let Some(current) = Current::read(fs, folder)? else {
        check_no_store(fs, folder)?;
        return Ok(None);
    };
    let id = current.manifest.file_id;
    let path = FileName::Manifest(id).path(folder);
    let file = fs.open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::corrupt(&path, 0, Corruption::Missing { what: "manifest" })
        }
        _ => Error::io("open", &path, error),
    })?;
    let mut reader = Reader::new(file, path, id)?;
    let (kind, store_id) = (FileKind::Manifest, current.store_id);
    reader.check_header(&FileHeader::new(kind, store_id, id))?;
    load_from(fs, folder, reader, store_id, current.manifest).map(Some)
}

/// Loads the manifest of `reader`, which must be complete up to `current`.
fn load_from(
    fs: &dyn Fs,
    folder: &Path,
    mut reader: Reader,
    store_id: u128,
    current: Position,
) -> Result<Loaded> {
    let id = reader.file_id();
    let Edits { state, edits, first_bytes, torn } = read_edits(&mut reader, store_id)?;

    let end = Position { file_id: id, offset: reader.offset() };
    let closed = Current::read_closed(fs, folder, store_id);
    if closed.file_id > id {
        let (what, path) = ("manifest that CURRENT names", FileName::Current.path(folder));
        let source = Corruption::Mismatch { what, expected: closed.file_id, found: id };
        return Err(Error::corrupt(path, 0, source));
    }
    let vouched = current.max(reader.scan()?.newest_mark).max(closed);
    if vouched > end {
        let (need, have) = (vouched.offset, end.offset);
        let missing = Corruption::Truncated { what: "manifest", need, have };
        return Err(reader.corrupt(have, torn.unwrap_or(missing)));
    }
    let missing = Corruption::Missing { what: "first edit" };
    let state = state.ok_or_else(|| reader.corrupt(end.offset, missing))?;
    state.check().map_err(|reason| reader.corrupt(end.offset, reason))?;
    let torn_bytes = reader.file_bytes().saturating_sub(end.offset);
    // The length in `CURRENT` is not used: its name may be lost after a failed sync.
    let is_durable = torn_bytes == 0 && closed == end;
    let secret = reader.secret();
    Ok(Loaded { state, end, secret, edits, first_bytes, is_durable, torn, torn_bytes })
}

/// Loads the newest manifest, for a repair without a usable `CURRENT`. Returns `None` if it is
/// incomplete: an older manifest names tables that have been replaced.
///
/// # Errors
///
/// [`Error::Io`]. [`Error::Corrupt`] with [`Corruption::Unsupported`] for a manifest of a later
/// release.
pub(crate) fn load_newest(fs: &dyn Fs, folder: &Path, names: &[String]) -> Result<Option<Loaded>> {
    let id = |name: &String| match FileName::parse(name) {
        Some(FileName::Manifest(id)) => Some(id),
        _ => None,
    };
    let Some(id) = names.iter().filter_map(id).max() else { return Ok(None) };
    let path = FileName::Manifest(id).path(folder);
    let file = fs.open(&path).map_err(|error| Error::io("open", &path, error))?;
    let mut reader = Reader::new(file, path, id)?;
    let header = match FileHeader::decode(reader.header()?) {
        Ok(header) => header,
        Err(newer @ Corruption::Unsupported { .. }) => return Err(reader.corrupt(0, newer)),
        Err(_) => return Ok(None),
    };
    if header.kind != FileKind::Manifest || header.file_id != id {
        return Ok(None);
    }
    reader.check_header(&FileHeader::new(FileKind::Manifest, header.store_id, id))?;
    match load_from(fs, folder, reader, header.store_id, Position::default()) {
        Err(Error::Corrupt { source, .. }) if !matches!(source, Corruption::Unsupported { .. }) => {
            Ok(None)
        }
        loaded => loaded.map(Some),
    }
}

/// Refuses a directory with data and without `CURRENT`: a new store there would delete the data as
/// orphans.
///
/// # Errors
///
/// [`Error::Corrupt`], [`Error::Io`].
pub(crate) fn check_no_store(fs: &dyn Fs, folder: &Path) -> Result<()> {
    let names = existing(fs.list(folder)).map_err(|e| Error::io("list", folder, e))?;
    for name in &names.unwrap_or_default() {
        let holds_data = match FileName::parse(name) {
            Some(FileName::Table(_)) => true,
            Some(FileName::Log(id)) => log_holds_data(fs, folder.join(name), id)?,
            _ => false,
        };
        if holds_data {
            let path = FileName::Current.path(folder);
            return Err(Error::corrupt(path, 0, Corruption::Missing { what: "CURRENT" }));
        }
    }
    Ok(())
}

/// Returns whether a log has records. An unreadable log may have some.
fn log_holds_data(fs: &dyn Fs, path: PathBuf, id: u64) -> Result<bool> {
    let opened = fs.open(&path).map_err(|error| Error::io("open", &path, error));
    let read = opened.and_then(|file| Reader::new(file, path, id)?.holds_records());
    read.or_else(|error| if error.is_of_file() { Ok(true) } else { Err(error) })
}

struct Edits {
    /// `None` without a first edit.
    state: Option<ManifestState>,
    edits: u64,
    first_bytes: u64,
    torn: Option<Corruption>,
}

/// Applies edits up to the end or the first bad record.
fn read_edits(reader: &mut Reader, store_id: u128) -> Result<Edits> {
    let (mut state, mut edits, mut first_bytes) = (None, 0, 0);
    loop {
        let Record { offset, record_type, sequence, payload } = match reader.next()? {
            Next::Record(record) => record,
            Next::End(torn) => return Ok(Edits { state, edits, first_bytes, torn }),
        };
        let applied = match record_type {
            RecordType::Start => Start::decode(&payload).map(drop),
            RecordType::Seal => Ok(()),
            _ => {
                edits += 1;
                if edits == 1 {
                    first_bytes = reader.offset();
                }
                apply(&mut state, store_id, edits, sequence, &payload)
            }
        };
        applied.map_err(|reason| reader.corrupt(offset, reason))?;
    }
}

fn apply(
    state: &mut Option<ManifestState>,
    store_id: u128,
    expected: u64,
    found: u64,
    payload: &[u8],
) -> Result<(), Corruption> {
    if found != expected {
        return Err(Corruption::Mismatch { what: "number of an edit", expected, found });
    }
    let edit = VersionEdit::decode(payload)?;
    match state {
        Some(state) => state.apply_unchecked(&edit),
        None => {
            let hash_seed = edit.hash_seed.ok_or(Corruption::Missing { what: "hash seed" })?;
            edit.store_id.ok_or(Corruption::Missing { what: "store id" })?;
            state.insert(ManifestState::new(store_id, hash_seed)).apply_unchecked(&edit)
        }
    }
}
