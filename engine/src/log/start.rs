//! The start record of a file: tagged fields ([`super::fields`]).
//!
//! | tag         | value           | meaning                                                    |
//! |-------------|-----------------|------------------------------------------------------------|
//! | 1, required | two varints     | the manifest that counted: its id, its durable length      |
//! | 2, required | two varints     | the log before this one: its id, where its last record ends |
//!
//! In a manifest the first field names the manifest itself, with length 0.

use sievedb_format::{Annotation, Corruption, codec::VARINT_BYTES_MAX};

use super::{
    fields::{EncodeFields, Fields, required, set_once},
    record::Position,
};

const MANIFEST: u64 = required(1);
const PREVIOUS: u64 = required(2);

/// Maximum length of a payload: two fields of two varints each.
pub(super) const START_BYTES_MAX: usize = 2 * (2 + 2 * VARINT_BYTES_MAX);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    /// The current manifest at the creation of the file, and its durable length: a shorter manifest
    /// has lost edits.
    pub(crate) manifest: Position,
    /// The log that this one continues, and its logical end; `None` if none. A failed append left
    /// the bytes after that end.
    pub(crate) previous: Option<Position>,
}

impl Start {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48);
        bytes.put_varints_field(MANIFEST, &[self.manifest.file_id, self.manifest.offset]);
        if let Some(Position { file_id, offset }) = self.previous {
            bytes.put_varints_field(PREVIOUS, &[file_id, offset]);
        }
        bytes
    }

    /// # Errors
    ///
    /// [`Corruption`] if the payload breaks the table above.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Corruption> {
        let (mut manifest, mut previous) = (None, None);
        let mut fields = Fields::new("start record", payload);
        while let Some(field) = fields.next()? {
            let position = |what, slot: &mut Option<Position>| {
                let [file_id, offset] = field.varints(what)?;
                set_once(slot, Position { file_id, offset }, what)
            };
            match field.tag {
                MANIFEST => position("manifest of a start record", &mut manifest)?,
                PREVIOUS => position("previous log of a start record", &mut previous)?,
                _ => field.skip("field of a start record")?,
            }
        }
        let manifest =
            manifest.ok_or(Corruption::Missing { what: "manifest of a start record" })?;
        Ok(Self { manifest, previous })
    }

    /// Adds the fields of a valid `payload` at `at` to `annotation`.
    pub(crate) fn describe(payload: &[u8], at: u64, annotation: &mut Annotation) {
        let mut fields = Fields::new("start record", payload);
        while let Ok(Some(field)) = fields.next() {
            let place = at + field.place.0 as u64..at + field.place.1 as u64;
            let pair = |prefix: &str| {
                let pair = field.varints("start record").map(|[id, end]| (id, end));
                pair.map_or_else(
                    |e| e.to_string(),
                    |(id, end)| format!("{prefix} {id} up to {end}"),
                )
            };
            match field.tag {
                MANIFEST => annotation.field(place, "manifest", pair("id")),
                PREVIOUS => annotation.field(place, "previous_log", pair("id")),
                tag => annotation.field(place, format_args!("field {}", tag >> 1), "unknown"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_returns() {
        let manifest = Position { file_id: 3, offset: 4096 };
        for previous in [None, Some(Position { file_id: 9, offset: 1 << 40 })] {
            let start = Start { manifest, previous };
            assert_eq!(Start::decode(&start.encode()), Ok(start));
        }
    }

    #[test]
    fn start_refuses_what_it_cannot_use() {
        let manifest = Position { file_id: 3, offset: 4096 };
        let good = Start { manifest, previous: Some(manifest) }.encode();
        for cut in 0..good.len() {
            // A cut between the fields leaves a start without a previous log.
            assert_eq!(Start::decode(&good[..cut]).is_ok(), cut == 5, "cut at {cut}");
        }
        let twice = [&good[..], &good[..]].concat();
        assert!(matches!(Start::decode(&twice), Err(Corruption::Order { .. })));
        let mut newer = good;
        newer.put_varint_field(required(3), 1);
        assert!(matches!(Start::decode(&newer), Err(Corruption::Unsupported { value: 3, .. })));
    }
}
