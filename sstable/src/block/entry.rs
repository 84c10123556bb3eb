//! One entry of a block, as it is stored.

use std::ops::Range;

use sievedb_format::{Corruption, Decoder, Encode, KEY_BYTES_MAX, Kind, SEQUENCE_MAX, Trailer};

use super::BlockRole;

/// The kind byte of [`Trailer::OLDEST`], which no write has.
const KIND_OLDEST: u8 = 0;

/// Places of the parts of an entry within the content of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Bytes of the user key that are those of the entry before.
    pub(crate) shared: usize,
    /// The rest of the user key.
    pub(crate) suffix: Range<usize>,
    /// Sequence number and kind, as stored.
    kind: u8,
    sequence: u64,
    /// The value; the next entry starts where it ends.
    pub(crate) value: Range<usize>,
}

impl Entry {
    /// Appends the fields before the suffix.
    pub(crate) fn encode_head(
        out: &mut Vec<u8>,
        shared: usize,
        unshared: usize,
        trailer: Trailer,
        value_bytes: usize,
    ) {
        out.put_varint(shared as u64);
        out.put_varint(unshared as u64);
        let oldest = trailer == Trailer::OLDEST;
        out.put_u8(if oldest { KIND_OLDEST } else { trailer.kind() as u8 });
        out.put_varint(trailer.sequence());
        out.put_varint(value_bytes as u64);
    }

    /// Reads the entry at the decoder and checks what can be checked without the one before.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are short or a field breaks the table of [`super`].
    pub(crate) fn decode(decoder: &mut Decoder<'_>, role: BlockRole) -> Result<Self, Corruption> {
        let shared = decoder.varint_usize("shared bytes of a key")?;
        let unshared = decoder.varint_usize("unshared bytes of a key")?;
        if shared > KEY_BYTES_MAX || unshared > KEY_BYTES_MAX - shared {
            let value = shared.saturating_add(unshared) as u64;
            return Err(Corruption::OutOfRange { what: "bytes of a key", value });
        }
        let kind = decoder.u8("kind of an entry")?;
        let sequence = decoder.varint("sequence number of an entry")?;
        let is_oldest = role == BlockRole::Index && kind == KIND_OLDEST;
        if sequence > SEQUENCE_MAX || (is_oldest && sequence > 0) {
            let what = "sequence number of an entry";
            return Err(Corruption::OutOfRange { what, value: sequence });
        }
        // A range is not a point: its tombstone among the points would shadow one key only.
        if !is_oldest && Kind::decode(kind)? == Kind::RangeTombstone {
            return Err(Corruption::OutOfRange { what: "kind of an entry", value: kind.into() });
        }
        let value_bytes = decoder.varint_usize("bytes of a value")?;
        let suffix_at = decoder.offset();
        decoder.take("rest of a key", unshared)?;
        let value_at = decoder.offset();
        decoder.take("value", value_bytes)?;
        let (suffix, value) = (suffix_at..value_at, value_at..decoder.offset());
        Ok(Self { shared, suffix, kind, sequence, value })
    }

    /// Reads the entry at `offset` of content that was checked: the fast twin of
    /// [`decode`](Self::decode).
    #[inline]
    pub(crate) fn read(content: &[u8], mut offset: usize) -> Self {
        let at = &mut offset;
        let shared = read_varint(content, at) as usize;
        let unshared = read_varint(content, at) as usize;
        let kind = content[*at];
        *at += 1;
        let sequence = read_varint(content, at);
        let value_bytes = read_varint(content, at) as usize;
        let value_at = offset + unshared;
        let (suffix, value) = (offset..value_at, value_at..value_at + value_bytes);
        Self { shared, suffix, kind, sequence, value }
    }

    /// Which version of its user key the entry is.
    #[inline]
    pub(crate) fn trailer(&self) -> Trailer {
        if self.kind == KIND_OLDEST {
            return Trailer::OLDEST;
        }
        Trailer::new(self.sequence, Kind::decode(self.kind).expect("decode checked the kind"))
    }
}

/// Reads a varint that was checked.
#[inline]
fn read_varint(content: &[u8], at: &mut usize) -> u64 {
    let first = content[*at];
    *at += 1;
    if first < 0x80 {
        return first.into(); // Most lengths are short.
    }
    let mut value = u64::from(first & 0x7f);
    let mut shift = 7;
    loop {
        let byte = content[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(shared: usize, suffix: &[u8], trailer: Trailer, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Entry::encode_head(&mut bytes, shared, suffix.len(), trailer, value.len());
        [&bytes, suffix, value].concat()
    }

    #[test]
    fn both_readers_agree() {
        for shared in [0, 1, 127, 128, 60_000] {
            for suffix in [0, 1, 127, 128, 5000] {
                for sequence in [0, 1, 300, SEQUENCE_MAX] {
                    for value in [0, 1, 127, 128, 20_000] {
                        let trailer = Trailer::new(sequence, Kind::Tombstone);
                        let bytes = encode(shared, &vec![1; suffix], trailer, &vec![2; value]);
                        let mut decoder = Decoder::new(&bytes);
                        let entry = Entry::decode(&mut decoder, BlockRole::Data).unwrap();
                        assert_eq!(entry, Entry::read(&bytes, 0));
                        assert_eq!(entry.trailer(), trailer);
                        assert_eq!((entry.shared, entry.suffix.len()), (shared, suffix));
                        assert_eq!((entry.value.len(), entry.value.end), (value, bytes.len()));
                    }
                }
            }
        }
    }

    #[test]
    fn oldest_is_for_indexes() {
        let bytes = encode(0, b"k", Trailer::OLDEST, b"v");
        let index = Entry::decode(&mut Decoder::new(&bytes), BlockRole::Index).unwrap();
        assert_eq!(index.trailer(), Trailer::OLDEST);
        assert_eq!(
            Entry::decode(&mut Decoder::new(&bytes), BlockRole::Data),
            Err(Corruption::Unsupported { what: "kind of an entry", value: 0 })
        );
    }

    #[test]
    fn decode_refuses_malformed_entries() {
        use Corruption::{OutOfRange, Truncated, Unsupported};
        let cases: [(&str, &[u8], Corruption); 8] = [
            (
                "a key of 65537 bytes",
                b"\x80\x80\x04\x01\x01\x01\0",
                OutOfRange { what: "bytes of a key", value: 65537 },
            ),
            (
                "lengths that overflow",
                b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\x01\0",
                OutOfRange { what: "bytes of a key", value: u64::MAX },
            ),
            (
                "a kind of the future",
                b"\0\x01\x07\x01\0k",
                Unsupported { what: "kind of an entry", value: 7 },
            ),
            (
                "a range among points",
                b"\0\x01\x06\x01\0k",
                OutOfRange { what: "kind of an entry", value: 6 },
            ),
            (
                "a sequence number of 57 bits",
                b"\0\x01\x01\x80\x80\x80\x80\x80\x80\x80\x80\x01\0k",
                OutOfRange { what: "sequence number of an entry", value: 1 << 56 },
            ),
            (
                "half a key",
                b"\0\x02\x01\x01\0k",
                Truncated { what: "rest of a key", need: 2, have: 1 },
            ),
            (
                "half a value",
                b"\0\x01\x01\x01\x02kv",
                Truncated { what: "value", need: 2, have: 1 },
            ),
            ("nothing", b"", Truncated { what: "shared bytes of a key", need: 1, have: 0 }),
        ];
        for (name, bytes, want) in cases {
            let found = Entry::decode(&mut Decoder::new(bytes), BlockRole::Data);
            assert_eq!(found, Err(want), "{name}");
        }
    }
}
