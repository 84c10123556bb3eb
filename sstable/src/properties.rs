//! Properties of a table: statistics, and the options that it was built with.
//!
//! # Encoded form
//!
//! Tagged fields, ascending by number: a tag (varint: number × 2, plus 1 if a reader must refuse
//! the table unless it knows the field), a length (varint), and that many bytes.
//!
//! | number | field                   | bytes                                                    |
//! |--------|-------------------------|----------------------------------------------------------|
//! | 1 !    | `comparator`            | 1 byte; 1: byte order of user keys                       |
//! | 2 !    | `index_levels`          | varint, 1 or 2                                           |
//! | 3 !    | `content_bytes_max`     | varint; length of the longest content of a block         |
//! | 4      | `counts`                | (kind, varint) per kind that occurs, ascending           |
//! | 5      | `user_keys`             | varint; distinct user keys of point entries              |
//! | 6      | `smallest`              | smallest user key, range tombstones included             |
//! | 7      | `largest`               | largest user key, range tombstones included              |
//! | 8      | `smallest_sequence`     | varint                                                   |
//! | 9      | `largest_sequence`      | varint                                                   |
//! | 10     | `expiry`                | see [`table_expiry`](crate::table_expiry); absent if nothing expires |
//! | 11     | `filter`                | kind (1 byte), expected false-positive rate (`f64`); absent without a filter |
//! | 12     | `key_bytes`             | varint; sum over all point entries                       |
//! | 13     | `value_bytes`           | varint; sum over all point entries                       |
//! | 14     | `data_blocks`           | varint                                                   |
//! | 15     | `index_partitions`      | varint; 0 if the index has one level                     |
//! | 16     | `block_bytes`           | varint; option                                           |
//! | 17     | `content_bytes`         | varint; content of all data blocks, uncompressed         |
//! | 18     | `compression`           | 1 byte; option: 0 none, 1 LZ4, 2 zstd                    |
//! | 19     | `filter_millibits`      | varint; option: thousandths of a bit per key             |
//! | 20     | `index_partition_bytes` | varint; option                                           |
//! | 21     | `prefix_filter`         | kind (1 byte), expected false-positive rate (`f64`), name of the prefix extractor (the rest, UTF-8); absent without one |
//! | 22     | `range_filter`          | kind (1 byte), expected false-positive rate of a range of one point (`f64`); absent without one |
//! | 23 !   | `excluded_bounds`       | varint; bit 0: `smallest` is exclusive, bit 1: `largest`; absent if neither is |
//! | 24     | `keyspace`              | id (varint) and name (the rest, UTF-8) of the keyspace   |
//! | 25     | `keyspace_options`      | its options, encoded as in a manifest                    |
//! | 26     | `level`                 | varint; level that the table was written for             |
//! | 27     | `flushed`               | varint; all entries of the keyspace up to this sequence number are in tables |
//! | 28     | `replaced`              | ids of obsolete tables, ascending: the first, then differences (varints) |
//! | 29     | `blob_files`            | each blob file that entries refer to ([`BlobUse::encode`](crate::BlobUse::encode)) |
//! | 30     | `ingested`              | empty; absent unless the table was ingested              |
//! | 31     | `ingests`               | sequence numbers of ingests, ascending: the first, then differences (varints); absent if empty |
//!
//! A reader must know fields marked `!`. Fields 10, 11 and 21 to 31 are optional. In a table
//! without entries, fields 6 to 9 are empty or 0. Fields 24 to 31 are for a repair without a
//! manifest. Fields 27 and 28 are only in the last table of a flush or compaction.

mod field;
mod origin;

use sievedb_format::{
    Annotation, Corruption, Decoder, Encode, KEY_BYTES_MAX, Kind, SEQUENCE_MAX, SequenceNumber,
    TableBounds, annotation::printable,
};

use self::field::{Field, sequence, text, user_key};
pub use self::{
    field::FilterProperties,
    origin::{Completed, TableOrigin},
};
use crate::{options::TableOptions, table_expiry::TableExpiry};

/// Comparator: byte order of user keys.
const COMPARATOR_BYTES: u8 = 1;

/// [`TableProperties::compression`] for zstd.
pub(crate) const COMPRESSION_ZSTD: u8 = 2;

/// Numbers of optional fields.
const OPTIONAL: [u64; 13] = [10, 11, 21, 22, EXCLUDED_BOUNDS, 24, 25, 26, 27, 28, 29, 30, 31];

const EXCLUDED_BOUNDS: u64 = 23;

/// Numbers of fields that a reader must know.
const REQUIRED: [u64; 4] = [1, 2, 3, EXCLUDED_BOUNDS];

/// Names of the fields, from number 1 on.
const NAMES: [&str; 31] = [
    "comparator",
    "index_levels",
    "content_bytes_max",
    "counts",
    "user_keys",
    "smallest",
    "largest",
    "smallest_sequence",
    "largest_sequence",
    "expiry",
    "filter",
    "key_bytes",
    "value_bytes",
    "data_blocks",
    "index_partitions",
    "block_bytes",
    "content_bytes",
    "compression",
    "filter_millibits",
    "index_partition_bytes",
    "prefix_filter",
    "range_filter",
    "excluded_bounds",
    "keyspace",
    "keyspace_options",
    "level",
    "flushed",
    "replaced",
    "blob_files",
    "ingested",
    "ingests",
];

/// Statistics of a table, and the options that it was built with.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct TableProperties {
    /// Levels of the index, 1 or 2.
    pub index_levels: u8,
    /// Length of the longest content of a block, in bytes. Bounds the memory of decompression.
    pub content_bytes_max: u64,
    /// Number of entries of each kind, in the order of [`Kind::ALL`].
    pub counts: [u64; Kind::ALL.len()],
    /// Number of distinct user keys of point entries, which filters are built from.
    pub user_keys: u64,
    /// Range of the user keys, range tombstones included.
    pub bounds: TableBounds,
    /// Smallest sequence number.
    pub smallest_sequence: SequenceNumber,
    /// Largest sequence number.
    pub largest_sequence: SequenceNumber,
    /// The entries that expire; `None` if there are none.
    pub expiry: Option<Box<TableExpiry>>,
    /// The point filter; `None` if the table was built without.
    pub filter: Option<FilterProperties>,
    /// The prefix filter and the name of its extractor; `None` if the table was built without.
    pub prefix_filter: Option<(FilterProperties, Box<str>)>,
    /// The range filter; `None` if the table was built without.
    pub range_filter: Option<FilterProperties>,
    /// Total length of the user keys of all point entries, in bytes.
    pub key_bytes: u64,
    /// Total length of the values of all point entries, in bytes.
    pub value_bytes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Number of index partitions below the top index; 0 if the index has one level.
    pub index_partitions: u64,
    /// [`TableOptions::block_bytes`] of the writer.
    pub block_bytes: u64,
    /// Total length of the content of all data blocks before compression, in bytes.
    pub content_bytes: u64,
    /// [`TableOptions::compression`] of the writer, as its byte: 0 none, 1 LZ4, 2 zstd.
    pub compression: u8,
    /// [`TableOptions::filter_bits_per_key`] of the writer, in thousandths.
    pub filter_millibits: u64,
    /// [`TableOptions::index_partition_bytes`] of the writer.
    pub index_partition_bytes: u64,
    /// Origin of the table. `None` if the file has none, and in an open table.
    pub origin: Option<Box<TableOrigin>>,
}

/// Returns the maximum memory of an index partition of `partition_bytes` bytes: its struct and
/// content, and per entry a slot and a head. Short keys make more entries.
pub(crate) fn partition_memory_bytes(partition_bytes: u64) -> u64 {
    5 * partition_bytes + (1 << 10)
}

impl TableProperties {
    /// Returns the properties of an empty table.
    pub(crate) fn new(options: &TableOptions) -> Self {
        Self {
            block_bytes: options.block_bytes as u64,
            compression: options.compression.kind(),
            filter_millibits: options.filter_millibits(),
            index_partition_bytes: options.index_partition_bytes as u64,
            ..Self::default()
        }
    }

    /// Returns the number of entries of this kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize - 1]
    }

    pub(crate) fn count_mut(&mut self, kind: Kind) -> &mut u64 {
        &mut self.counts[kind as usize - 1]
    }

    /// Counts an entry and its sequence number.
    pub(crate) fn add_entry(&mut self, kind: Kind, sequence: SequenceNumber) {
        debug_assert!(sequence <= SEQUENCE_MAX);
        let is_first = self.entries() == 0;
        *self.count_mut(kind) += 1;
        let smallest = if is_first { sequence } else { self.smallest_sequence };
        self.smallest_sequence = smallest.min(sequence);
        self.largest_sequence = self.largest_sequence.max(sequence);
        debug_assert!(self.smallest_sequence <= self.largest_sequence);
    }

    /// Returns the number of entries of all kinds, range tombstones included.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the number of point entries, which cursors return: all kinds but range tombstones.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.entries().saturating_sub(self.count(Kind::RangeTombstone))
    }

    /// Returns the number of point entries with a newer version of their key in the table. Includes
    /// versions older than a merge operand.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.points().saturating_sub(self.user_keys)
    }

    /// Returns the number of merge operands.
    #[must_use]
    pub fn merge_operands(&self) -> u64 {
        self.count(Kind::Merge)
    }

    /// Returns the number of tombstones, range tombstones included.
    #[must_use]
    pub fn tombstones(&self) -> u64 {
        self.count(Kind::Tombstone).saturating_add(self.range_tombstones())
    }

    /// Returns the number of range tombstones.
    #[must_use]
    pub fn range_tombstones(&self) -> u64 {
        self.count(Kind::RangeTombstone)
    }

    /// Returns the maximum memory of one index partition, in bytes: about 5 times
    /// [`TableOptions::index_partition_bytes`], or the longest separator if longer. 0 for an index
    /// of one level, which is resident.
    #[must_use]
    pub fn partition_memory_bytes_max(&self) -> u64 {
        if self.index_levels < 2 {
            return 0;
        }
        // Bounds the result if the file records a damaged option.
        let longest = self.content_bytes_max;
        let single = longest.min(KEY_BYTES_MAX as u64) + (1 << 10);
        partition_memory_bytes(self.index_partition_bytes.min(longest)).max(single)
    }

    /// Returns the memory of bounds, names and lists, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let name = self.prefix_filter.as_ref().map_or(0, |(_, name)| name.len());
        let origin = self.origin.as_ref().map_or(0, |origin| origin.memory_bytes());
        self.bounds.memory_bytes() + name + origin
    }

    /// Appends the encoded form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for field in self.fields() {
            field.encode(out);
        }
    }

    /// Adds the fields to `annotation`, whose base is the start of the encoded form.
    pub(crate) fn describe(&self, annotation: &mut Annotation) {
        let mut bytes = Vec::new();
        for field in self.fields() {
            let from = bytes.len() as u64;
            field.encode(&mut bytes);
            annotation.field(from..bytes.len() as u64, field.name, field.meaning);
        }
    }

    /// Returns the fields, ascending by number.
    fn fields(&self) -> Vec<Field> {
        let mut counts = Vec::new();
        let occurring = Kind::ALL.into_iter().zip(self.counts).filter(|(_, count)| *count > 0);
        for (kind, count) in occurring.clone() {
            counts.put_u8(kind as u8);
            counts.put_varint(count);
        }
        let counts_meaning: Vec<_> =
            occurring.map(|(kind, count)| format!("{kind:?} {count}")).collect();
        let exclusions = self.bounds.exclusions();
        let excluded = (exclusions > 0).then(|| Field::varint(EXCLUDED_BOUNDS, exclusions));
        [
            Some(Field::new(1, vec![COMPARATOR_BYTES], "byte order".to_owned())),
            Some(Field::varint(2, self.index_levels.into())),
            Some(Field::varint(3, self.content_bytes_max)),
            Some(Field::new(4, counts, counts_meaning.join(", "))),
            Some(Field::varint(5, self.user_keys)),
            Some(Field::new(6, self.bounds.smallest.to_vec(), printable(&self.bounds.smallest))),
            Some(Field::new(7, self.bounds.largest.to_vec(), printable(&self.bounds.largest))),
            Some(Field::varint(8, self.smallest_sequence)),
            Some(Field::varint(9, self.largest_sequence)),
            self.expiry.as_ref().map(|expiry| Field::expiry(10, expiry)),
            self.filter.map(|filter| Field::filter(11, filter, "")),
            Some(Field::varint(12, self.key_bytes)),
            Some(Field::varint(13, self.value_bytes)),
            Some(Field::varint(14, self.data_blocks)),
            Some(Field::varint(15, self.index_partitions)),
            Some(Field::varint(16, self.block_bytes)),
            Some(Field::varint(17, self.content_bytes)),
            Some(Field::varint(18, self.compression.into())),
            Some(Field::varint(19, self.filter_millibits)),
            Some(Field::varint(20, self.index_partition_bytes)),
            self.prefix_filter.as_ref().map(|(filter, name)| Field::filter(21, *filter, name)),
            self.range_filter.map(|filter| Field::filter(22, filter, "")),
            excluded,
        ]
        .into_iter()
        .flatten()
        .chain(self.origin.iter().flat_map(|origin| origin.fields()))
        .collect()
    }

    /// Decodes properties.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field violates the table above or is missing, or a required field is
    /// unknown.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let mut decoder = Decoder::new(bytes);
        let mut properties = Self::default();
        let mut before = 0;
        while !decoder.is_empty() {
            let tag = decoder.varint("tag of a property")?;
            let mut field = Decoder::new(decoder.prefixed("property")?);
            let number = tag >> 1;
            if number <= before {
                return Err(Corruption::Order { what: "properties" });
            }
            check_presence(before, number)?;
            before = number;
            let name = usize::try_from(number - 1).ok().and_then(|index| NAMES.get(index));
            match name {
                Some(what) => {
                    properties.decode_field(number, what, &mut field)?;
                    field.finish(what)?;
                }
                None if tag & 1 == 1 => {
                    return Err(Corruption::Unsupported { what: "property", value: number });
                }
                None => {}
            }
        }
        check_presence(before, u64::MAX)?;
        Ok(properties)
    }

    fn decode_field(
        &mut self,
        number: u64,
        what: &'static str,
        field: &mut Decoder<'_>,
    ) -> Result<(), Corruption> {
        match number {
            1 => {
                let value = field.u8(what)?;
                if value != COMPARATOR_BYTES {
                    return Err(Corruption::Unsupported { what, value: value.into() });
                }
            }
            2 => {
                self.index_levels = field.u8(what)?;
                if !(1..=2).contains(&self.index_levels) {
                    return Err(Corruption::OutOfRange { what, value: self.index_levels.into() });
                }
            }
            3 => {
                self.content_bytes_max = field.varint(what)?;
                // Positions in a block have 32 bits.
                if self.content_bytes_max > u32::MAX.into() {
                    let value = self.content_bytes_max;
                    return Err(Corruption::OutOfRange { what, value });
                }
            }
            4 => {
                let mut before = 0;
                while !field.is_empty() {
                    let kind = field.u8(what)?;
                    if kind <= before {
                        return Err(Corruption::Order { what });
                    }
                    before = kind;
                    *self.count_mut(Kind::decode(kind)?) = field.varint(what)?;
                }
            }
            5 => self.user_keys = field.varint(what)?,
            6 => self.bounds.smallest = user_key(what, field)?,
            7 => self.bounds.largest = user_key(what, field)?,
            8 => self.smallest_sequence = sequence(what, field)?,
            9 => self.largest_sequence = sequence(what, field)?,
            10 => self.expiry = Some(TableExpiry::decode(what, field)?.into()),
            11 => self.filter = Some(FilterProperties::decode(what, field)?),
            12 => self.key_bytes = field.varint(what)?,
            13 => self.value_bytes = field.varint(what)?,
            14 => self.data_blocks = field.varint(what)?,
            15 => self.index_partitions = field.varint(what)?,
            16 => self.block_bytes = field.varint(what)?,
            17 => self.content_bytes = field.varint(what)?,
            18 => self.compression = field.u8(what)?,
            19 => self.filter_millibits = field.varint(what)?,
            20 => self.index_partition_bytes = field.varint(what)?,
            21 => {
                let filter = FilterProperties::decode(what, field)?;
                self.prefix_filter = Some((filter, text(what, field)?));
            }
            22 => self.range_filter = Some(FilterProperties::decode(what, field)?),
            EXCLUDED_BOUNDS => self.bounds.set_exclusions(what, field.varint(what)?)?,
            _ => self.origin.get_or_insert_default().decode_field(number, what, field)?,
        }
        Ok(())
    }
}

/// Checks that no required field between `before` and `number` is missing.
fn check_presence(before: u64, number: u64) -> Result<(), Corruption> {
    let names = NAMES.iter().zip(1..);
    let skipped = |at: u64| before < at && at < number && !OPTIONAL.contains(&at);
    let missing = names.into_iter().find(|(_, at)| skipped(*at));
    missing.map_or(Ok(()), |(what, _)| Err(Corruption::Missing { what }))
}

#[cfg(test)]
mod tests;
