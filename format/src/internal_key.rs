//! Internal keys and the order of versions.
//!
//! An internal key is a user key with a [`Trailer`]: the sequence number and the kind of the write.
//! Internal keys compare field by field: user key ascending, sequence number descending, kind
//! descending. So the newest version of a key comes first. They are never compared as one
//! concatenated string: `"a"` with a trailer could then sort after `"aa"`.

use std::cmp::Ordering;

use crate::Corruption;

/// Position of a write in the history of a store. Each entry of a batch has its own.
///
/// Writes have 1 to [`SEQUENCE_MAX`]; 0 means "before every write". Tables store 0 for puts that
/// every reader sees and that hide no older version.
pub type SequenceNumber = u64;

/// The largest sequence number: 56 bits.
pub const SEQUENCE_MAX: SequenceNumber = (1 << 56) - 1;

/// Maximum length of a user key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Maximum length of a value, in bytes. The memory budget of a store may be a lower limit.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// The effect of a write on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key has this value.
    Put = 1,
    /// The key is deleted.
    Tombstone = 2,
    /// A merge operand for the value of the key.
    Merge = 3,
    /// The value is in a blob file, which the stored value names.
    BlobReference = 4,
    /// The key has this value until a time of the store clock: see [`expiry`](crate::expiry).
    PutWithExpiry = 5,
    /// Every key from this one up to the value, exclusive, is deleted.
    RangeTombstone = 6,
}

impl Kind {
    /// All kinds, ordered by their bytes.
    pub const ALL: [Self; 6] = [
        Self::Put,
        Self::Tombstone,
        Self::Merge,
        Self::BlobReference,
        Self::PutWithExpiry,
        Self::RangeTombstone,
    ];

    /// Decodes a stored kind.
    ///
    /// # Errors
    ///
    /// [`Corruption::Unsupported`] if this release does not support it.
    pub fn decode(byte: u8) -> Result<Self, Corruption> {
        let index = usize::from(byte).wrapping_sub(1);
        let known = Self::ALL.get(index).copied();
        known.ok_or(Corruption::Unsupported { what: "kind of an entry", value: byte.into() })
    }
}

/// Sequence number and kind of a write, packed into 64 bits: `sequence << 8 | kind`.
///
/// Ordered as a number: a larger trailer is a newer write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trailer(u64);

impl Trailer {
    /// A trailer that sorts after every version of a user key.
    pub const OLDEST: Self = Self(0);

    /// Creates the trailer of a write.
    ///
    /// # Panics
    ///
    /// If `sequence` is above [`SEQUENCE_MAX`].
    #[must_use]
    pub const fn new(sequence: SequenceNumber, kind: Kind) -> Self {
        assert!(sequence <= SEQUENCE_MAX, "a sequence number exceeds 56 bits");
        Self(sequence << 8 | kind as u64)
    }

    /// Creates the trailer from a number that was validated: `sequence << 8 | kind`.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Returns a trailer that sorts before every version visible at `sequence` and after all newer
    /// versions.
    ///
    /// For comparison only: it has no [`kind`](Self::kind).
    #[must_use]
    pub const fn seek(sequence: SequenceNumber) -> Self {
        Self(sequence << 8 | 0xff)
    }

    /// Returns a trailer that sorts after this version and before all older ones.
    ///
    /// For comparison only: it has no [`kind`](Self::kind). [`OLDEST`](Self::OLDEST) returns
    /// itself.
    #[must_use]
    pub const fn older(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the sequence number of the write.
    #[must_use]
    pub const fn sequence(self) -> SequenceNumber {
        self.0 >> 8
    }

    /// Returns the kind of the write.
    ///
    /// # Panics
    ///
    /// If this is [`OLDEST`](Self::OLDEST) or comes from [`seek`](Self::seek), which no entry has.
    #[must_use]
    pub fn kind(self) -> Kind {
        Kind::decode(self.0 as u8).expect("the trailer of an entry has a known kind")
    }
}

/// A user key and the trailer of one of its versions. Borrowed, so copies are cheap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InternalKey<'a> {
    /// The key as the user passed it.
    pub user_key: &'a [u8],
    /// The version.
    pub trailer: Trailer,
}

impl<'a> InternalKey<'a> {
    /// Creates the key of one version of `user_key`.
    #[must_use]
    pub const fn new(user_key: &'a [u8], trailer: Trailer) -> Self {
        Self { user_key, trailer }
    }

    /// Creates the seek target of a reader at `sequence` for `user_key`.
    #[must_use]
    pub const fn seek(user_key: &'a [u8], sequence: SequenceNumber) -> Self {
        Self { user_key, trailer: Trailer::seek(sequence) }
    }
}

impl Ord for InternalKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.user_key.cmp(other.user_key).then_with(|| other.trailer.cmp(&self.trailer))
    }
}

impl PartialOrd for InternalKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_and_versions_descend() {
        let put = |key, sequence| InternalKey::new(key, Trailer::new(sequence, Kind::Put));
        let sorted = [
            put(b"", 7),
            put(b"a", SEQUENCE_MAX),
            InternalKey::seek(b"a", 9),
            put(b"a", 9),
            put(b"a", 3),
            InternalKey::new(b"a", Trailer::OLDEST),
            put(b"a\0", 9),
            put(b"aa", 1),
            put(b"\xff", 1),
        ];
        for pair in sorted.array_windows::<2>() {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
    }

    #[test]
    fn older_sorts_between_a_version_and_the_next() {
        for kind in Kind::ALL {
            let version = Trailer::new(5, kind);
            assert!(version.older() < version, "{kind:?}");
            for older in Kind::ALL {
                assert!(version.older() > Trailer::new(4, older), "{kind:?} above {older:?}");
            }
        }
        assert_eq!(Trailer::OLDEST.older(), Trailer::OLDEST);
    }

    #[test]
    fn every_kind_round_trips() {
        for byte in 0..=u8::MAX {
            match Kind::decode(byte) {
                Ok(kind) => assert_eq!(kind as u8, byte),
                Err(error) => assert_eq!(
                    error,
                    Corruption::Unsupported { what: "kind of an entry", value: byte.into() }
                ),
            }
        }
        assert_eq!(Kind::ALL.map(|kind| Trailer::new(5, kind).kind()), Kind::ALL);
    }
}
