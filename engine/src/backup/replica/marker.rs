//! The file `REPLICA`: the backup of a replica, and the files that its store needs from the set.
//!
//! The magic number of its [frame](super::super::frame) is `SvReplic`. Its fields:
//!
//! | tag         | value                                                   | meaning              |
//! |-------------|---------------------------------------------------------|----------------------|
//! | 1, required | varint                                                  | number of the backup |
//! | 2, required | as field 3 of the [record](super::super::record); often | a file               |
//!
//! It is empty until the store is whole but for these files.

use sievedb_format::Corruption;

use crate::{
    backup::{
        frame::Frame,
        record::{StoredFile, decode_file},
    },
    log::fields::{EncodeFields, Fields, required, set_once},
};

const FRAME: Frame = Frame {
    magic: *b"SvReplic",
    what: "list of the files of a replica",
    what_version: "version of the list of the files of a replica",
};

const BACKUP: u64 = required(1);
const FILE: u64 = required(2);

/// The files of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marker {
    /// Number of the backup.
    pub(super) backup: u64,
    pub(super) files: Vec<StoredFile>,
}

impl Marker {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.put_varints_field(BACKUP, &[self.backup]);
        for file in &self.files {
            out.put_field(FILE, &file.encode());
        }
        Frame::end(out)
    }

    /// # Errors
    ///
    /// [`Corruption`] if the bytes break the format above.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let what = FRAME.what;
        let (mut backup, mut files) = (None, Vec::new());
        let mut fields = Fields::new(what, FRAME.fields(bytes)?);
        while let Some(field) = fields.next()? {
            match field.tag {
                BACKUP => set_once(&mut backup, field.varint(what)?, what)?,
                FILE => files.push(field.read(what, decode_file)?),
                _ => field.skip(what)?,
            }
        }
        let backup = backup.ok_or(Corruption::Missing { what: "backup of a replica" })?;
        Ok(Self { backup, files })
    }
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
        Marker { backup: 7, files: vec![file("000003.sst", 5000), file("000004.filter", 0)] }
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
