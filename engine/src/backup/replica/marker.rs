//! The file `REPLICA`: the backup of a replica, and the files that its store needs from the set.
//!
//! The magic number of its [frame](super::super::frame) is `SvReplic`. Its fields:
//!
//! | tag         | value                                                   | meaning              |
//! |-------------|---------------------------------------------------------|----------------------|
//! | 1, required | varint                                                  | number of the backup |
//! | 2, required | as field 3 of the [record](super::super::record); often | a file of the set    |
//! | 3, required | two varints                       | number of refreshes, last sequence number  |
//! | 4, required | as field 2, digest 0; often       | a log, its blob file, or the manifest      |
//!
//! It is empty until the store is whole but for the files of the set. Without fields 3 and 4 the
//! replica cannot be refreshed.

use std::{collections::BTreeSet, path::Path};

use sievedb_format::Corruption;

use crate::{
    Error, Result as StoreResult,
    backup::{
        frame::Frame,
        record::{StoredFile, decode_file},
    },
    file_name::FileName,
    fs::Fs,
    log::fields::{EncodeFields, Fields, required, set_once},
};

const FRAME: Frame = Frame {
    magic: *b"SvReplic",
    what: "list of the files of a replica",
    what_version: "version of the list of the files of a replica",
};

const BACKUP: u64 = required(1);
const FILE: u64 = required(2);
const POINT: u64 = required(3);
const OWN: u64 = required(4);

/// The files of a replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Marker {
    /// Number of the backup.
    pub(super) backup: u64,
    /// Number of attempts to refresh it.
    pub(super) generation: u64,
    /// Last sequence number of the replica.
    pub(super) sequence: u64,
    /// Tables, filters and blob files, which never change.
    pub(super) files: Vec<StoredFile>,
    /// Logs with their blob files, and the manifest.
    pub(super) own: Vec<StoredFile>,
}

impl Marker {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.put_varints_field(BACKUP, &[self.backup]);
        out.put_varints_field(POINT, &[self.generation, self.sequence]);
        for file in &self.files {
            out.put_field(FILE, &file.encode());
        }
        for file in &self.own {
            out.put_field(OWN, &file.encode());
        }
        Frame::end(out)
    }

    /// # Errors
    ///
    /// [`Corruption`] if the bytes break the format above.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let what = FRAME.what;
        let (mut backup, mut point, mut files, mut own) = (None, None, Vec::new(), Vec::new());
        let mut fields = Fields::new(what, FRAME.fields(bytes)?);
        while let Some(field) = fields.next()? {
            match field.tag {
                BACKUP => set_once(&mut backup, field.varint(what)?, what)?,
                FILE => files.push(field.read(what, decode_file)?),
                POINT => set_once(&mut point, field.varints(what)?, what)?,
                OWN => own.push(field.read(what, decode_file)?),
                _ => field.skip(what)?,
            }
        }
        let backup = backup.ok_or(Corruption::Missing { what: "backup of a replica" })?;
        let [generation, sequence] = point.unwrap_or_default();
        Ok(Self { backup, generation, sequence, files, own })
    }

    /// Returns the names of the files that the replica needs.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().chain(&self.own).map(|file| &*file.name)
    }
}

/// Returns the logs, their blob files and the manifest in `folder` whose names have the suffix
/// `end`. The returned names lack the suffix.
///
/// # Errors
///
/// [`Error::Io`].
pub(super) fn own_files(fs: &dyn Fs, folder: &Path, end: &str) -> StoreResult<Vec<StoredFile>> {
    let names = fs.list(folder).map_err(|error| Error::io("list", folder, error))?;
    let mut own = Vec::new();
    for (listed, name) in
        names.iter().filter_map(|listed| Some((listed, listed.strip_suffix(end)?)))
    {
        let parsed = FileName::parse(name);
        if let Some(FileName::Log(_) | FileName::Blobs(_) | FileName::Manifest(_)) = parsed {
            let path = folder.join(listed);
            let opened = fs.open(&path).and_then(|file| file.len());
            let bytes = opened.map_err(|error| Error::io("open", path, error))?;
            own.push(StoredFile { name: name.to_owned(), bytes, digest: [0, 0] });
        }
    }
    Ok(own)
}

/// Returns the files that `folder` lacks, filters first: they are short, and every read needs them.
/// A file of another length, or too damaged to have one, counts as missing.
///
/// # Errors
///
/// [`Error::Io`].
pub(super) fn missing_files(
    fs: &dyn Fs,
    folder: &Path,
    files: &[StoredFile],
) -> StoreResult<Vec<StoredFile>> {
    let names = fs.list(folder).map_err(|error| Error::io("list", folder, error))?;
    let present: BTreeSet<_> = names.into_iter().collect();
    let mut missing = Vec::new();
    for file in files {
        let has_length = || {
            let path = folder.join(&file.name);
            let found = fs.open(&path).and_then(|opened| opened.len());
            match found.map_err(|error| Error::io("open", path, error)) {
                Err(Error::Corrupt { .. }) => Ok(false),
                found => found.map(|bytes| bytes == file.bytes),
            }
        };
        if !present.contains(&file.name) || !has_length()? {
            missing.push(file.clone());
        }
    }
    missing.sort_by_key(|file| !matches!(FileName::parse(&file.name), Some(FileName::Filter(_))));
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_golden, hex};

    fn marker() -> Marker {
        let file = |name: &str, bytes| StoredFile {
            name: name.to_owned(),
            bytes,
            digest: [bytes * 3, u64::MAX],
        };
        Marker {
            backup: 7,
            generation: 2,
            sequence: 300,
            files: vec![file("000003.sst", 5000), file("000004.filter", 0)],
            own: vec![file("000005.log", 70), file("MANIFEST-000006", 90)],
        }
    }

    #[test]
    fn the_bytes_of_a_marker_are_pinned_and_return() {
        check_golden("backup/replica", &hex(&marker().encode()));
        assert_eq!(Marker::decode(&marker().encode()), Ok(marker()));
    }

    #[test]
    fn every_flipped_bit_every_cut_and_a_rest_is_refused() {
        let good = marker().encode();
        for at in 0..good.len() {
            assert!(Marker::decode(&good[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                assert!(Marker::decode(&bytes).is_err(), "bit {bit} of byte {at}");
            }
        }
        assert!(Marker::decode(&[&good[..], &[0]].concat()).is_err());
    }
}
