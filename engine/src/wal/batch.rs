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
//! | `value`    | prefixed | 1, 3, 5        | at most 256 MiB; of op 5 behind its [`expiry`]        |
//! | `start`    | prefixed | remove range   | first deleted key, at most 64 KiB                     |
//! | `end`      | prefixed | remove range   | first key after it, at most 64 KiB; empty: no bound   |
//! | `name`     | prefixed | create, rename | 1 to 255 bytes of UTF-8                               |
//! | `options`  | prefixed | create         | of the keyspace; opaque here                          |
//! | `ignored`  | prefixed | ignorable      | skipped by a reader that does not know the op         |
//!
//! Ops: 1 put, 2 tombstone, 3 merge operand, 5 put with expiry, 6 remove range (other [`Kind`]s are
//! reserved); 0x81 creates, 0x82 drops, 0x83 clears, 0x84 renames the keyspace. An op with bit 6 is
//! ignorable.
//!
//! [`expiry`]: sievedb_format::expiry

use bytes::Bytes;
use sievedb_format::{
    Corruption, Decoder, Encode, KEY_BYTES_MAX, Kind, VALUE_BYTES_MAX,
    codec::{VARINT_BYTES_MAX, varint_bytes},
    expiry::{EXPIRY_BYTES, STORED_VALUE_BYTES_MAX, split_expiry},
    range_tombstone::ends_above,
};

/// The longest name of a keyspace, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

const CREATE_KEYSPACE: u8 = 0x81;
const DROP_KEYSPACE: u8 = 0x82;
const CLEAR_KEYSPACE: u8 = 0x83;
const RENAME_KEYSPACE: u8 = 0x84;
/// Bit of ops whose entries a reader may skip if it does not know the op.
const IGNORABLE: u8 = 1 << 6;

/// `op`, `keyspace` and the length of a name or key or the end.
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
    /// An entry of a later release that may be skipped. It has a sequence number.
    Ignored {
        keyspace: u64,
    },
}

impl Entry<'_> {
    /// Returns whether the entry changes a whole keyspace.
    pub(crate) fn changes_keyspace(&self) -> bool {
        match self {
            Self::CreateKeyspace { .. }
            | Self::DropKeyspace { .. }
            | Self::ClearKeyspace { .. }
            | Self::RenameKeyspace { .. } => true,
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

    /// Returns the batch of a `payload` with this number of entries, to be extended.
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
        // A varint in place, without a buffer: seven bits a byte, the last one without the mark.
        let mut left = self.entries;
        for byte in &mut self.bytes[start..VARINT_BYTES_MAX] {
            *byte = left as u8 | 0x80;
            left >>= 7;
        }
        self.bytes[VARINT_BYTES_MAX - 1] &= 0x7f;
        Bytes::from(self.bytes).slice(start..)
    }

    fn entry(&mut self, op: u8, keyspace: u64) {
        self.entries += 1;
        self.bytes.put_u8(op);
        self.bytes.put_varint(keyspace);
    }
}

/// A stored batch, whose entries are checked while they are read.
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
mod tests {
    use super::*;

    fn sample() -> BatchEncoder {
        let mut batch = BatchEncoder::with_capacity(64);
        batch.create_keyspace(3, "users", b"\x01\x02");
        batch.put(3, Kind::Put, b"key", b"value");
        batch.put(0, Kind::Put, b"", b"");
        batch.remove(300, b"gone");
        batch.put(3, Kind::Merge, b"key", b"operand");
        batch.put_expiring(3, b"session", 77, b"anna");
        batch.remove_range(3, b"", b"z");
        batch.remove_range(3, b"a", b"");
        batch.clear_keyspace(3);
        batch.rename_keyspace(3, "people");
        batch.drop_keyspace(3);
        batch
    }

    fn entries(payload: &Bytes) -> Result<Vec<String>, Corruption> {
        let batch = Batch::decode(payload.clone())?;
        batch.iter().map(|entry| entry.map(|entry| format!("{entry:?}"))).collect()
    }

    #[test]
    fn batch_returns() {
        let payload = sample().finish();
        let batch = Batch::decode(payload.clone()).expect("well formed");
        assert_eq!((sample().entries(), batch.entries()), (11, 11));
        let got: Result<Vec<_>, _> = batch.iter().collect();
        fn point(
            kind: Kind,
            keyspace: u64,
            key: &'static [u8],
            value: &'static [u8],
        ) -> Entry<'static> {
            Entry::Point { keyspace, kind, key, value: Bytes::from_static(value) }
        }
        let want = vec![
            Entry::CreateKeyspace { keyspace: 3, name: "users", options: &[1, 2] },
            point(Kind::Put, 3, b"key", b"value"),
            point(Kind::Put, 0, b"", b""),
            point(Kind::Tombstone, 300, b"gone", b""),
            point(Kind::Merge, 3, b"key", b"operand"),
            point(Kind::PutWithExpiry, 3, b"session", b"M\0\0\0\0\0\0\0anna"),
            Entry::RemoveRange { keyspace: 3, start: b"", end: b"z" },
            Entry::RemoveRange { keyspace: 3, start: b"a", end: b"" },
            Entry::ClearKeyspace { keyspace: 3 },
            Entry::RenameKeyspace { keyspace: 3, name: "people" },
            Entry::DropKeyspace { keyspace: 3 },
        ];
        assert_eq!(got, Ok(want));
        assert_eq!(entries(&BatchEncoder::new().finish()), Ok(vec![]));
    }

    #[test]
    fn values_are_slices_of_the_payload() {
        let payload = sample().finish();
        let batch = Batch::decode(payload.clone()).expect("well formed");
        let Some(Ok(Entry::Point { value, .. })) = batch.iter().nth(1) else {
            panic!("the second entry is a put");
        };
        assert!(payload.as_ptr_range().contains(&value.as_ptr()));
    }

    #[test]
    fn a_long_batch_has_a_long_count() {
        let mut batch = BatchEncoder::new();
        for key in 0..1000_u32 {
            batch.put(1, Kind::Put, &key.to_be_bytes(), b"v");
        }
        let batch = Batch::decode(batch.finish()).expect("well formed");
        assert_eq!(batch.entries(), 1000);
        assert!(batch.iter().all(|entry| entry.is_ok()));
    }

    #[test]
    fn batch_refuses_malformed_bytes() {
        use Corruption::{Order, OutOfRange, Trailing, Truncated, Unsupported};
        let long_name = [&[1, 0x81, 1, 0x80, 2][..], &[b'n'; 256], &[0]].concat();
        let long_key = [&[1, 2, 1, 0x81, 0x80, 4][..], &[0; KEY_BYTES_MAX + 1]].concat();
        let name = "name of a keyspace";
        let short = Truncated { what: "expiry of an entry", need: 8, have: 7 };
        let long_end = [&[1, 6, 1, 0, 0x81, 0x80, 4][..], &[0; KEY_BYTES_MAX + 1]].concat();
        let (order, too_long) = ("start and end of a range", KEY_BYTES_MAX as u64 + 1);
        let cases: [(&str, &[u8], Corruption); 14] = [
            ("range", &[1, 6, 1, 1, b'b', 1, b'b'], Order { what: order }),
            ("no end", &[1, 6, 1, 1, b'b'], Truncated { what: "end of a range", need: 1, have: 0 }),
            ("long end", &long_end, OutOfRange { what: "end of a range", value: too_long }),
            ("nothing", &[], Truncated { what: "entries of a batch", need: 1, have: 0 }),
            ("count", &[9, 1, 1], OutOfRange { what: "entries of a batch", value: 9 }),
            ("rest", &[0, 7], Trailing { what: "batch", bytes: 1 }),
            ("op", &[1, 7, 1], Unsupported { what: "kind of an entry", value: 7 }),
            ("blob", &[1, 4, 1, 0, 0], Unsupported { what: "kind of an entry", value: 4 }),
            ("expiry", &[1, 5, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0], short),
            ("value", &[1, 1, 1, 0, 9], Truncated { what: "value", need: 9, have: 0 }),
            ("no name", &[1, 0x81, 1, 0, 0], OutOfRange { what: name, value: 0 }),
            ("no text", &[1, 0x81, 1, 1, 0xff, 0], OutOfRange { what: name, value: 0 }),
            ("long name", &long_name, OutOfRange { what: name, value: 256 }),
            ("long key", &long_key, OutOfRange { what: "key", value: KEY_BYTES_MAX as u64 + 1 }),
        ];
        for (name, bytes, want) in cases {
            assert_eq!(entries(&Bytes::copy_from_slice(bytes)), Err(want), "{name}");
        }
    }

    #[test]
    fn every_cut_and_every_flip_ends_in_entries_or_an_error() {
        let good = sample().finish();
        for at in 0..good.len() {
            assert!(entries(&good.slice(..at)).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bytes = good.to_vec();
                bytes[at] ^= 1 << bit;
                // Another batch is fine: the checksum of the record detects it. It must not panic.
                let _ = entries(&bytes.into());
            }
        }
    }
}
