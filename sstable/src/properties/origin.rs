//! The origin of a table: its keyspace and level, for a repair without a manifest.

use sievedb_format::{Corruption, Decoder, Encode, SEQUENCE_MAX, SequenceNumber};

use super::field::{Field, ascending, sequence, text};
use crate::blob_file::BlobUse;

/// Numbers of the first and the last field.
pub(super) const FIRST: u64 = 24;
pub(super) const LAST: u64 = 31;

/// Keyspace and level of a table: a copy of the manifest's record.
///
/// Only a repair without a manifest reads it. An open table does not keep it in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableOrigin {
    /// Id of the keyspace.
    pub keyspace: u64,
    /// Name of the keyspace.
    pub name: Box<str>,
    /// Options of the keyspace, encoded as in the manifest; opaque here.
    pub options: Box<[u8]>,
    /// Level that the table was written for, from 0 to 6. The table may have moved deeper since.
    pub level: u8,
    /// Result of the flush or compaction, in its last table only.
    pub completed: Option<Completed>,
    /// Blob files that entries refer to, ascending.
    pub blob_files: Vec<BlobUse>,
    /// `true` for a table of an ingest. Its entries store the sequence number that was visible when
    /// the ingest began, which is smaller than their final one.
    pub is_ingested: bool,
    /// Final sequence numbers of earlier ingests into the keyspace, ascending, as far as their
    /// tables were in use when this table was written.
    pub ingests: Vec<SequenceNumber>,
}

/// Result of a flush or compaction. Stored in its last table only: if that table is durable, so are
/// the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completed {
    /// All entries of the keyspace up to this sequence number are in tables.
    pub flushed: SequenceNumber,
    /// Ids of obsolete tables, ascending: the inputs, and all tables of the store replaced or
    /// dropped before whose removal was not durable.
    pub replaced: Vec<u64>,
}

impl TableOrigin {
    pub(super) fn memory_bytes(&self) -> usize {
        let replaced = self.completed.as_ref().map_or(0, |done| done.replaced.capacity());
        let blobs = self.blob_files.capacity() * size_of::<BlobUse>();
        let ids = replaced + self.ingests.capacity();
        self.name.len() + self.options.len() + ids * size_of::<u64>() + blobs
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = Field> {
        let mut keyspace = Vec::new();
        keyspace.put_varint(self.keyspace);
        keyspace.put(self.name.as_bytes());
        let completed = self
            .completed
            .as_ref()
            .map(|done| [Field::varint(27, done.flushed), Field::ascending(28, &done.replaced)]);
        let blobs = (!self.blob_files.is_empty()).then(|| {
            let mut blobs = Vec::new();
            self.blob_files.iter().for_each(|file| file.encode(&mut blobs));
            let of = |file: &BlobUse| format!("{} bytes of {}", file.used_bytes, file.file_id);
            let meaning: Vec<_> = self.blob_files.iter().map(of).collect();
            Field::new(29, blobs, meaning.join(", "))
        });
        let ingested = self.is_ingested.then(|| Field::new(30, Vec::new(), "true".to_owned()));
        let ingests = (!self.ingests.is_empty()).then(|| Field::ascending(LAST, &self.ingests));
        let meaning = format!("{} {}", self.keyspace, self.name);
        let options = format!("{} bytes", self.options.len());
        [
            Field::new(FIRST, keyspace, meaning),
            Field::new(25, self.options.to_vec(), options),
            Field::varint(26, self.level.into()),
        ]
        .into_iter()
        .chain(completed.into_iter().flatten())
        .chain(blobs)
        .chain(ingested)
        .chain(ingests)
    }

    /// Decodes the field `number`, from 24 to 31.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if it violates the table of properties.
    pub(super) fn decode_field(
        &mut self,
        number: u64,
        what: &'static str,
        field: &mut Decoder<'_>,
    ) -> Result<(), Corruption> {
        match number {
            FIRST => {
                self.keyspace = field.varint(what)?;
                self.name = text(what, field)?;
            }
            25 => self.options = field.take(what, field.rest().len())?.into(),
            26 => {
                let level = field.varint(what)?;
                self.level = u8::try_from(level)
                    .map_err(|_| Corruption::OutOfRange { what, value: level })?;
            }
            27 => {
                self.completed.get_or_insert_default().flushed = sequence(what, field)?;
            }
            28 => {
                self.completed.get_or_insert_default().replaced = ascending(what, field)?;
            }
            30 => self.is_ingested = true,
            LAST => {
                self.ingests = ascending(what, field)?;
                if let Some(&value) = self.ingests.last().filter(|&&last| last > SEQUENCE_MAX) {
                    return Err(Corruption::OutOfRange { what, value });
                }
            }
            _ => {
                while !field.is_empty() {
                    let file = BlobUse::decode(field)?;
                    if self.blob_files.last().is_some_and(|last| last.file_id >= file.file_id) {
                        return Err(Corruption::Order { what });
                    }
                    self.blob_files.push(file);
                }
            }
        }
        Ok(())
    }
}
