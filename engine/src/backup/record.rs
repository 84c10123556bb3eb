//! The record of a backup: the state of the store, and the object of each of its files.
//!
//! The magic number of its [frame](super::frame) is `SvBackup`. Its fields:
//!
//! | tag         | value                                   | meaning                            |
//! |-------------|-----------------------------------------|------------------------------------|
//! | 1, required | two varints                             | time in milliseconds, sequence     |
//! | 2, required | an edit of the manifest                 | the state of the store             |
//! | 3, required | name prefixed, bytes varint, two u64; often | a file: its length and digest  |

use std::path::{Path, PathBuf};

use sievedb_format::{Corruption, Decoder, Encode};

use super::{frame::Frame, objects::OBJECTS};
use crate::{
    file_name::FileName,
    log::fields::{EncodeFields, Fields, required, set_once},
    manifest::{ManifestState, VersionEdit},
};

const FRAME: Frame = Frame {
    magic: *b"SvBackup",
    what: "record of a backup",
    what_version: "version of the record of a backup",
};

const POINT: u64 = required(1);
const STATE: u64 = required(2);
const FILE: u64 = required(3);

/// The record of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Unix time, in milliseconds.
    pub(super) time_ms: u64,
    /// Sequence number of the newest write.
    pub(super) sequence: u64,
    pub(super) state: ManifestState,
    pub(super) files: Vec<StoredFile>,
}

/// A file of the store, and its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredFile {
    /// Name in the directory of the store.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// xxh3_64 of the content, and a second number that distinguishes files of equal hash: the salt
    /// of a table, or xxh3_64 with another seed.
    pub(super) digest: [u64; 2],
}

impl StoredFile {
    /// Returns the name of the object, derived from its content.
    pub(super) fn object(&self) -> String {
        let [hash, salt] = self.digest;
        format!("{hash:016x}{salt:016x}-{}", self.bytes)
    }

    /// Returns the path in `folder`, the object and the length.
    pub(super) fn arriving(&self, folder: &Path) -> (PathBuf, String, u64) {
        (folder.join(&self.name), format!("{OBJECTS}/{}", self.object()), self.bytes)
    }

    /// Returns the encoding, which [`decode_file`] reads.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut file = Vec::with_capacity(64);
        file.put_prefixed(self.name.as_bytes());
        file.put_varint(self.bytes);
        self.digest.iter().for_each(|&number| file.put_u64(number));
        file
    }
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.put_varints_field(POINT, &[self.time_ms, self.sequence]);
        out.put_field(STATE, &self.state.to_edit().encode());
        for file in &self.files {
            out.put_field(FILE, &file.encode());
        }
        Frame::end(out)
    }

    /// # Errors
    ///
    /// [`Corruption`] if the bytes break the format above.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let (what, fields) = (FRAME.what, FRAME.fields(bytes)?);
        let (mut point, mut state, mut files) = (None, None, Vec::new());
        let mut fields = Fields::new(what, fields);
        while let Some(field) = fields.next()? {
            match field.tag {
                POINT => set_once(&mut point, field.varints(what)?, what)?,
                STATE => {
                    let edit = VersionEdit::decode(field.value)?;
                    set_once(&mut state, ManifestState::from_edit(&edit)?, what)?;
                }
                FILE => files.push(field.read(what, decode_file)?),
                _ => field.skip(what)?,
            }
        }
        let [time_ms, sequence] = point.ok_or(Corruption::Missing { what: "time of a backup" })?;
        let state = state.ok_or(Corruption::Missing { what: "state of a backup" })?;
        Ok(Self { time_ms, sequence, state, files })
    }
}

pub(super) fn decode_file(decoder: &mut Decoder<'_>) -> Result<StoredFile, Corruption> {
    let what = "file of a backup";
    let name = decoder.prefixed(what)?;
    let name = std::str::from_utf8(name)
        .map_err(|e| Corruption::OutOfRange { what, value: e.valid_up_to() as u64 })?;
    // A name with a directory would escape from the restored store.
    if FileName::parse(name).and_then(FileName::id).is_none() {
        return Err(Corruption::OutOfRange { what, value: name.len() as u64 });
    }
    let bytes = decoder.varint(what)?;
    let digest = [decoder.u64(what)?, decoder.u64(what)?];
    Ok(StoredFile { name: name.to_owned(), bytes, digest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        manifest::KeyspaceCreated,
        tests::{check_golden, hex},
    };

    fn record() -> Record {
        let mut state = ManifestState::new(7 << 64 | 9, 11);
        let created = KeyspaceCreated { id: 1, name: "default".to_owned(), options: vec![1, 2] };
        let edit = VersionEdit {
            next_file_id: Some(9),
            next_keyspace_id: Some(2),
            keyspaces_created: vec![created],
            ..VersionEdit::default()
        };
        state.apply(&edit).expect("it fits");
        let file = |name: &str, bytes| StoredFile {
            name: name.to_owned(),
            bytes,
            digest: [bytes * 3, u64::MAX],
        };
        let files = vec![file("000003.sst", 5000), file("000004.log", 0)];
        Record { time_ms: 1_700_000_000_000, sequence: 1 << 40, state, files }
    }

    #[test]
    fn records_return() {
        let record = record();
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn the_bytes_of_a_record_are_pinned() {
        check_golden("backup/record", &hex(&record().encode()));
    }

    #[test]
    fn every_flipped_bit_every_cut_and_a_rest_is_refused() {
        let good = record().encode();
        for at in 0..good.len() {
            assert!(Record::decode(&good[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                assert!(Record::decode(&bytes).is_err(), "bit {bit} of byte {at}");
            }
        }
        assert!(Record::decode(&[&good[..], &[0]].concat()).is_err());
    }

    #[test]
    fn names_that_lead_out_of_the_store_are_refused() {
        for name in ["../000003.sst", "CURRENT", "/etc/passwd", "000003.sst/x", ""] {
            let mut record = record();
            record.files[0].name = name.to_owned();
            assert!(Record::decode(&record.encode()).is_err(), "{name}");
        }
    }
}
