//! The bytes of a batch.
//!
//! A batch is a varint, the number of its entries, and then the entries. The first entry has the
//! sequence number of the record, each further one the next number.
//!
//! | field      | bytes    | of op          | meaning                                               |
//! |------------|----------|----------------|-------------------------------------------------------|
//! | `op`       | 1        | all            | see below                                             |
//! | `keyspace` | varint   | all            | id                                                    |
//! | `key`      | prefixed | 1, 2, 3, 5     | at most 64 KiB                                        |
//! | `value`    | prefixed | 1, 3, 5        | at most 256 MiB; of op 5 after its [`expiry`]         |
//! | `start`    | prefixed | remove range   | first deleted key, at most 64 KiB                     |
//! | `end`      | prefixed | remove range   | first key after it, at most 64 KiB; empty: no bound   |
//! | `name`     | prefixed | create, rename | 1 to 255 bytes of UTF-8                               |
//! | `options`  | prefixed | create         | of the keyspace; opaque here                          |
//! | `tables`   | prefixed | ingest         | ids, ascending: each a varint, less the one before    |
//! | `ignored`  | prefixed | ignorable      | skipped by a reader that does not know the op         |
//!
//! Ops: 1 put, 2 tombstone, 3 merge operand, 5 put with expiry, 6 remove range (other [`Kind`]s are
//! reserved); 0x81 creates, 0x82 drops, 0x83 clears, 0x84 renames the keyspace; 0x85 marks an
//! ingest into it, whose tables the manifest adds next, unless it failed. An op with bit 6 is
//! ignorable.
//!
//! [`expiry`]: sievedb_format::expiry

use bytes::{Buf as _, Bytes};
use sievedb_format::{
    Corruption, Decoder, Encode, KEY_BYTES_MAX, Kind, VALUE_BYTES_MAX,
    codec::{VARINT_BYTES_MAX, varint_bytes},
    expiry::{EXPIRY_BYTES, STORED_VALUE_BYTES_MAX, split_expiry},
    range_tombstone::ends_above,
};

/// Maximum length of the name of a keyspace, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

const CREATE_KEYSPACE: u8 = 0x81;
const DROP_KEYSPACE: u8 = 0x82;
const CLEAR_KEYSPACE: u8 = 0x83;
const RENAME_KEYSPACE: u8 = 0x84;
const INGEST: u8 = 0x85;
/// Bit of ops whose entries a reader may skip if it does not know the op.
const IGNORABLE: u8 = 1 << 6;

/// Minimum bytes of an entry: `op`, `keyspace` and the length of a name, key or end.
const ENTRY_BYTES_MIN: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// A version of a key. The value is a slice of the payload, empty for a tombstone.
    Point {
        keyspace: u64,
        kind: Kind,
        key: &'a [u8],
        value: Bytes,
    },
    /// Removes the keys from `start` up to `end`, exclusive; an empty `end` is no bound.
    RemoveRange {
        keyspace: u64,
        start: &'a [u8],
        end: &'a [u8],
    },
    CreateKeyspace {
        keyspace: u64,
        name: &'a str,
        options: &'a [u8],
    },
    /// The id of the keyspace is never reused.
    DropKeyspace {
        keyspace: u64,
    },
    /// Removes every key of the keyspace.
    ClearKeyspace {
        keyspace: u64,
    },
    RenameKeyspace {
        keyspace: u64,
        name: &'a str,
    },
    /// Tables with the sequence number of this entry were about to be added to the keyspace.
    Ingest {
        keyspace: u64,
        /// Ids of the tables, ascending.
        tables: Vec<u64>,
    },
    /// An entry of a later release that may be skipped. It has a sequence number.
    Ignored {
        keyspace: u64,
    },
}

impl Entry<'_> {
    /// Returns `true` if the entry changes a whole keyspace.
    pub(crate) fn changes_keyspace(&self) -> bool {
        match self {
            Self::CreateKeyspace { .. }
            | Self::DropKeyspace { .. }
            | Self::ClearKeyspace { .. }
            | Self::RenameKeyspace { .. }
            | Self::Ingest { .. } => true,
            Self::Point { .. } | Self::RemoveRange { .. } | Self::Ignored { .. } => false,
        }
    }

    pub(crate) fn keyspace(&self) -> u64 {
        match *self {
            Self::Point { keyspace, .. }
            | Self::RemoveRange { keyspace, .. }
            | Self::CreateKeyspace { keyspace, .. }
            | Self::DropKeyspace { keyspace }
            | Self::ClearKeyspace { keyspace }
            | Self::RenameKeyspace { keyspace, .. }
            | Self::Ingest { keyspace, .. }
            | Self::Ignored { keyspace } => keyspace,
        }
    }
}

/// Encodes a batch. Callers check the lengths of keys, values and names.
#[derive(Debug, Clone)]
pub(crate) struct BatchEncoder {
    /// Space for the number of entries, then the entries.
    bytes: Vec<u8>,
    entries: u64,
}

impl Default for BatchEncoder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchEncoder {
    pub(crate) fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Returns an empty batch with space for `bytes` bytes of entries.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(VARINT_BYTES_MAX + bytes);
        buffer.resize(VARINT_BYTES_MAX, 0);
        Self { bytes: buffer, entries: 0 }
    }

    /// Returns the batch of a `payload` with this number of entries, which can be extended.
    pub(crate) fn resume(payload: &[u8], entries: u64) -> Self {
        let stored = &payload[varint_bytes(entries)..];
        let mut resumed = Self::with_capacity(stored.len());
        resumed.bytes.extend_from_slice(stored);
        Self { entries, ..resumed }
    }

    /// Returns the exact length of a version with a value, for
    /// [`with_capacity`](Self::with_capacity): the buffer is then neither moved nor cut.
    pub(crate) const fn put_bytes(keyspace: u64, key_bytes: usize, value_bytes: usize) -> usize {
        Self::remove_bytes(keyspace, key_bytes) + varint_bytes(value_bytes as u64) + value_bytes
    }

    pub(crate) const fn remove_bytes(keyspace: u64, key_bytes: usize) -> usize {
        1 + varint_bytes(keyspace) + varint_bytes(key_bytes as u64) + key_bytes
    }

    /// Adds a version of `key` of a kind that has a value.
    pub(crate) fn put(&mut self, keyspace: u64, kind: Kind, key: &[u8], value: &[u8]) {
        debug_assert!(kind != Kind::Tombstone, "a tombstone has no value");
        self.entry(kind as u8, keyspace);
        self.bytes.put_prefixed(key);
        self.bytes.put_prefixed(value);
    }

    /// Adds a put with expiry.
    pub(crate) fn put_expiring(&mut self, keyspace: u64, key: &[u8], expiry_ms: u64, value: &[u8]) {
        self.entry(Kind::PutWithExpiry as u8, keyspace);
        self.bytes.put_prefixed(key);
        self.bytes.put_varint((EXPIRY_BYTES + value.len()) as u64);
        self.bytes.put_u64(expiry_ms);
        self.bytes.put(value);
    }

    pub(crate) fn remove(&mut self, keyspace: u64, key: &[u8]) {
        self.entry(Kind::Tombstone as u8, keyspace);
        self.bytes.put_prefixed(key);
    }

    /// Adds a removal of the keys from `start` up to `end`, as in [`Entry::RemoveRange`].
    pub(crate) fn remove_range(&mut self, keyspace: u64, start: &[u8], end: &[u8]) {
        debug_assert!(ends_above(end, start), "an empty range is not written");
        self.entry(Kind::RangeTombstone as u8, keyspace);
        self.bytes.put_prefixed(start);
        self.bytes.put_prefixed(end);
    }

    pub(crate) fn create_keyspace(&mut self, keyspace: u64, name: &str, options: &[u8]) {
        self.entry(CREATE_KEYSPACE, keyspace);
        self.bytes.put_prefixed(name.as_bytes());
        self.bytes.put_prefixed(options);
    }

    pub(crate) fn drop_keyspace(&mut self, keyspace: u64) {
        self.entry(DROP_KEYSPACE, keyspace);
    }

    pub(crate) fn clear_keyspace(&mut self, keyspace: u64) {
        self.entry(CLEAR_KEYSPACE, keyspace);
    }

    /// Adds an ingest of `tables`, which must ascend.
    pub(crate) fn ingest(&mut self, keyspace: u64, tables: &[u64]) {
        debug_assert!(tables.is_sorted(), "differences are stored");
        self.entry(INGEST, keyspace);
        let (mut ids, mut before) = (Vec::new(), 0);
        for &id in tables {
            ids.put_varint(id - before);
            before = id;
        }
        self.bytes.put_prefixed(&ids);
    }

    pub(crate) fn rename_keyspace(&mut self, keyspace: u64, name: &str) {
        self.entry(RENAME_KEYSPACE, keyspace);
        self.bytes.put_prefixed(name.as_bytes());
    }

    #[cfg(test)]
    pub(crate) const fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the length of the entries so far.
    pub(crate) const fn entry_bytes(&self) -> usize {
        self.bytes.len() - VARINT_BYTES_MAX
    }

    /// Returns the payload, without a copy.
    pub(crate) fn finish(mut self) -> Bytes {
        let start = VARINT_BYTES_MAX - varint_bytes(self.entries);
        // Writes the varint in place, without a buffer: 7 bits per byte, the last byte without the
        // continuation bit.
        let mut left = self.entries;
        for byte in &mut self.bytes[start..VARINT_BYTES_MAX] {
            *byte = left as u8 | 0x80;
            left >>= 7;
        }
        self.bytes[VARINT_BYTES_MAX - 1] &= 0x7f;
        let mut payload = Bytes::from(self.bytes);
        // `slice` would allocate a reference count; `advance` does not.
        payload.advance(start);
        payload
    }

    fn entry(&mut self, op: u8, keyspace: u64) {
        self.entries += 1;
        self.bytes.put_u8(op);
        self.bytes.put_varint(keyspace);
    }
}

/// A stored batch. Its entries are checked when they are read.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    payload: Bytes,
    entries: u64,
    start: usize,
}

impl Batch {
    /// # Errors
    ///
    /// [`Corruption`] if the payload cannot hold its number of entries.
    pub(crate) fn decode(payload: Bytes) -> Result<Self, Corruption> {
        let mut decoder = Decoder::new(&payload);
        let entries = decoder.varint("entries of a batch")?;
        let start = decoder.offset();
        let entries_max = (decoder.rest().len() / ENTRY_BYTES_MIN) as u64;
        if entries > entries_max {
            return Err(Corruption::OutOfRange { what: "entries of a batch", value: entries });
        }
        Ok(Self { payload, entries, start })
    }

    /// Returns the number of entries, at most half of the payload's bytes.
    pub(crate) const fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) const fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Iterates over the entries up to the last one or the first error. Bytes after the last entry
    /// are an error too.
    pub(crate) fn iter(&self) -> Entries<'_> {
        let mut decoder = Decoder::new(&self.payload);
        decoder.take("entries of a batch", self.start).expect("decode read as many bytes");
        Entries { payload: &self.payload, decoder, left: self.entries, done: false }
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Result<Entry<'a>, Corruption>;
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

#[derive(Debug)]
pub(crate) struct Entries<'a> {
    payload: &'a Bytes,
    decoder: Decoder<'a>,
    left: u64,
    done: bool,
}

impl<'a> Entries<'a> {
    /// Returns the bytes of the payload read so far.
    pub(crate) const fn offset(&self) -> usize {
        self.decoder.offset()
    }

    fn entry(&mut self) -> Result<Entry<'a>, Corruption> {
        let op = self.decoder.u8("op of an entry")?;
        let keyspace = self.decoder.varint("keyspace of an entry")?;
        match op {
            CREATE_KEYSPACE => {
                let name = self.name()?;
                let options = self.decoder.prefixed("options of a keyspace")?;
                Ok(Entry::CreateKeyspace { keyspace, name, options })
            }
            DROP_KEYSPACE => Ok(Entry::DropKeyspace { keyspace }),
            CLEAR_KEYSPACE => Ok(Entry::ClearKeyspace { keyspace }),
            INGEST => Ok(Entry::Ingest { keyspace, tables: self.table_ids()? }),
            RENAME_KEYSPACE => Ok(Entry::RenameKeyspace { keyspace, name: self.name()? }),
            op if op & IGNORABLE != 0 => {
                self.decoder.prefixed("ignorable entry")?;
                Ok(Entry::Ignored { keyspace })
            }
            _ => match Kind::decode(op)? {
                kind @ (Kind::Put | Kind::Merge) => {
                    let key = self.bounded("key", KEY_BYTES_MAX)?;
                    let value = self.bounded("value", VALUE_BYTES_MAX)?;
                    let value = self.payload.slice_ref(value);
                    Ok(Entry::Point { keyspace, kind, key, value })
                }
                kind @ Kind::Tombstone => {
                    let key = self.bounded("key", KEY_BYTES_MAX)?;
                    Ok(Entry::Point { keyspace, kind, key, value: Bytes::new() })
                }
                kind @ Kind::PutWithExpiry => {
                    let key = self.bounded("key", KEY_BYTES_MAX)?;
                    let stored = self.bounded("value", STORED_VALUE_BYTES_MAX)?;
                    split_expiry(stored)?;
                    let value = self.payload.slice_ref(stored);
                    Ok(Entry::Point { keyspace, kind, key, value })
                }
                Kind::RangeTombstone => {
                    let start = self.bounded("start of a range", KEY_BYTES_MAX)?;
                    let end = self.bounded("end of a range", KEY_BYTES_MAX)?;
                    if !ends_above(end, start) {
                        return Err(Corruption::Order { what: "start and end of a range" });
                    }
                    Ok(Entry::RemoveRange { keyspace, start, end })
                }
                Kind::BlobReference => {
                    Err(Corruption::Unsupported { what: "kind of an entry", value: op.into() })
                }
            },
        }
    }

    fn table_ids(&mut self) -> Result<Vec<u64>, Corruption> {
        let what = "tables of an ingest";
        let mut ids = Decoder::new(self.decoder.prefixed(what)?);
        let (mut tables, mut id) = (Vec::new(), 0_u64);
        while !ids.is_empty() {
            let more = ids.varint(what)?;
            let next = id.checked_add(more).filter(|_| more > 0);
            id = next.ok_or(Corruption::Order { what })?;
            tables.push(id);
        }
        Ok(tables)
    }

    fn name(&mut self) -> Result<&'a str, Corruption> {
        let name = self.bounded("name of a keyspace", NAME_BYTES_MAX)?;
        let out_of_range = |value| Corruption::OutOfRange { what: "name of a keyspace", value };
        if name.is_empty() {
            return Err(out_of_range(0));
        }
        std::str::from_utf8(name).map_err(|e| out_of_range(e.valid_up_to() as u64))
    }

    fn bounded(&mut self, what: &'static str, bytes_max: usize) -> Result<&'a [u8], Corruption> {
        let bytes = self.decoder.prefixed(what)?;
        if bytes.len() > bytes_max {
            return Err(Corruption::OutOfRange { what, value: bytes.len() as u64 });
        }
        Ok(bytes)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Corruption>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if self.left == 0 {
            self.done = true;
            return self.decoder.finish("batch").err().map(Err);
        }
        self.left -= 1;
        let entry = self.entry();
        self.done = entry.is_err();
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
