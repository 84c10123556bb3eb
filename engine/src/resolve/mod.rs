//! Resolves a key: the one place that decides which version of a key a reader sees.
//!
//! A caller passes the versions of a key one by one, newest first, from any source.
//! [`ReadPoint::resolve`] returns a [`Verdict`] on each: the key has a value, the key is deleted,
//! or older versions are needed. Reading the value is a separate step, because it can fail.
//!
//! | version                                | verdict                                       |
//! |----------------------------------------|-----------------------------------------------|
//! | newer than the reader                  | more needed: the version is invisible         |
//! | older than a range tombstone on the key | deleted                                      |
//! | put                                    | value, stored inline                          |
//! | tombstone, range tombstone             | deleted                                       |
//! | merge operand                          | more needed: the value below the operand      |
//! | blob reference                         | value, stored in a blob file                  |
//! | put with expiry                        | value until its expiry, deleted from then on  |
//!
//! | caller                  | uses                                                             |
//! |-------------------------|------------------------------------------------------------------|
//! | point lookups           | [`ReadPoint::resolve`]; [`older`] if more is needed              |
//! | scans, merges, repair   | [`ReadPoint::seen`]                                              |
//!
//! A value in a blob file is read by the caller: this module does no I/O.
//!
//! Time is read only for a put with expiry. A point lookup reads the store clock when it finds one;
//! all other readers have a [fixed clock](ReadPoint::at_time).
//!
//! Nothing here does I/O or takes a lock. Only [`older`] allocates, for merge operands.

pub(crate) mod older;
#[cfg(test)]
pub(crate) mod tests;

use sievedb_format::{
    Corruption, Kind, SEQUENCE_MAX, SequenceNumber, Trailer,
    expiry::{EXPIRY_BYTES, split_expiry},
};
use sievedb_sstable::TableProperties;

/// The sequence number and the time at which a reader reads. Ordered by sequence number, then by
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadPoint {
    /// Newer versions are invisible.
    pub(crate) sequence: SequenceNumber,
    /// Store clock, in milliseconds; [`UNREAD`] if it was not read yet.
    clock_ms: u64,
}

/// Time of a reader that has not read the store clock.
const UNREAD: u64 = u64::MAX;

/// A version of a key: the parts of its trailer and value that decide visibility.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version {
    sequence: SequenceNumber,
    kind: Kind,
    /// For a put with expiry: the first time of the store clock without the value, in milliseconds.
    expiry_ms: u64,
}

/// Effect of a version on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The key has the value of this version.
    Value(Stored),
    /// The key has no value.
    Deleted,
    /// Older versions decide.
    MoreNeeded(Needed),
}

/// Effect of a version on its key, for callers that read puts and merge operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The key has the value stored with the version, or the value of its [blob
    /// reference](is_in_blob_file).
    Value,
    /// The version gives the key no value: it is a removal, or has expired.
    Nothing,
    /// A merge operand. The key has a value, which needs older versions.
    Operand,
}

/// Location of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Stored with the key.
    Inline,
    /// In a blob file, to which the entry refers.
    Blob,
}

/// Reason why older versions are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needed {
    /// The version is newer than the reader.
    Invisible,
    /// The version is a merge operand, which applies to the value below it.
    Operand,
}

impl ReadPoint {
    /// Sees every version.
    #[cfg(test)]
    pub(crate) const LATEST: Self = Self::new(SEQUENCE_MAX);

    /// Sees every version, whether it has expired or not.
    pub(crate) const AS_STORED: Self = Self { sequence: SEQUENCE_MAX, clock_ms: 0 };

    /// Returns the read point of a reader at `sequence` that reads the store clock on demand.
    #[inline]
    pub(crate) const fn new(sequence: SequenceNumber) -> Self {
        Self { sequence, clock_ms: UNREAD }
    }

    /// Returns the read point of a reader at `sequence` and at this time of the store clock.
    #[inline]
    pub(crate) fn at_time(sequence: SequenceNumber, clock_ms: u64) -> Self {
        Self { sequence, clock_ms: clock_ms.min(UNREAD - 1) }
    }

    /// Returns the fixed clock, in milliseconds.
    pub(crate) fn clock_ms(self) -> u64 {
        debug_assert!(self.clock_ms != UNREAD, "the store clock was not read");
        self.clock_ms
    }

    /// Returns the first point after this one.
    pub(crate) fn successor(self) -> Self {
        Self { clock_ms: self.clock_ms() + 1, ..self }
    }

    /// Fixes the clock, unless it is fixed. `clock_ms` reads the store clock.
    #[inline]
    pub(crate) fn with_clock(self, clock_ms: impl FnOnce() -> u64) -> Self {
        if self.clock_ms == UNREAD { Self::at_time(self.sequence, clock_ms()) } else { self }
    }

    /// Returns the effect of `version` on its key.
    ///
    /// `cover` returns the sequence number of the newest visible range tombstone over the key; 0 if
    /// there is none. It is called at most once, and not for a tombstone.
    #[inline]
    pub(crate) fn resolve(
        self,
        version: Version,
        cover: impl FnOnce() -> SequenceNumber,
    ) -> Verdict {
        let Version { sequence, kind, expiry_ms } = version;
        debug_assert!(!self.needs_clock(version), "the store clock was not read");
        if sequence > self.sequence {
            return Verdict::MoreNeeded(Needed::Invisible);
        }
        let verdict = match kind {
            Kind::Put => Verdict::Value(Stored::Inline),
            Kind::BlobReference => Verdict::Value(Stored::Blob),
            Kind::PutWithExpiry if self.clock_ms < expiry_ms => Verdict::Value(Stored::Inline),
            Kind::Merge => Verdict::MoreNeeded(Needed::Operand),
            Kind::Tombstone | Kind::RangeTombstone | Kind::PutWithExpiry => {
                return Verdict::Deleted;
            }
        };
        if cover() > sequence { Verdict::Deleted } else { verdict }
    }

    /// Returns the effect of the version with this trailer and stored value on its key. `cover` as
    /// in [`resolve`](Self::resolve).
    ///
    /// # Errors
    ///
    /// [`Refused`] if the result depends on the store clock and it is not fixed, or if the value is
    /// too short for its expiry.
    #[inline]
    pub(crate) fn seen<'v>(
        self,
        trailer: Trailer,
        stored: impl FnOnce() -> &'v [u8],
        cover: impl FnOnce() -> SequenceNumber,
    ) -> Result<Seen, Refused> {
        let version = Version::decode(trailer, stored)?;
        if self.needs_clock(version) {
            return Err(Refused::Unsupported(trailer.kind()));
        }
        match self.resolve(version, cover) {
            Verdict::Value(_) => Ok(Seen::Value),
            Verdict::Deleted | Verdict::MoreNeeded(Needed::Invisible) => Ok(Seen::Nothing),
            Verdict::MoreNeeded(Needed::Operand) => Ok(Seen::Operand),
        }
    }

    /// Returns `true` if the verdict on `version` depends on the store clock, which is not fixed.
    #[inline]
    fn needs_clock(self, version: Version) -> bool {
        expires(version.kind) && self.clock_ms == UNREAD
    }
}

impl Version {
    /// Decodes the version with this trailer. `stored` is its stored value, read only for a put
    /// with expiry.
    ///
    /// # Errors
    ///
    /// [`Refused`] for a range tombstone, which is not stored among points, and for a value that is
    /// too short for its expiry.
    #[inline]
    pub(crate) fn decode<'v>(
        trailer: Trailer,
        stored: impl FnOnce() -> &'v [u8],
    ) -> Result<Self, Refused> {
        let (sequence, kind) = (trailer.sequence(), trailer.kind());
        let expiry_ms = match kind {
            Kind::Put | Kind::Tombstone | Kind::Merge | Kind::BlobReference => u64::MAX,
            Kind::PutWithExpiry => expiry_of(stored())?,
            Kind::RangeTombstone => return Err(Refused::Unsupported(kind)),
        };
        Ok(Self { sequence, kind, expiry_ms })
    }

    /// Returns the expiry of the version, in milliseconds of the store clock; `None` if it never
    /// expires.
    pub(crate) fn expiry_ms(self) -> Option<u64> {
        expires(self.kind).then_some(self.expiry_ms)
    }

    /// Returns the length of the bytes before the value in the stored value.
    #[inline]
    pub(crate) fn prefix_bytes(self) -> usize {
        prefix_bytes(self.kind)
    }
}

/// Returns `true` if a range tombstone with the sequence number `cover` deletes all versions of its
/// keys in a source whose largest sequence number is `newest`. `cover` is 0 without one.
///
/// Equal numbers mean that the source has the range tombstone itself: no version has its number.
#[inline]
pub(crate) fn hides_up_to(cover: SequenceNumber, newest: SequenceNumber) -> bool {
    cover > 0 && newest <= cover
}

#[cold]
fn expiry_of(stored: &[u8]) -> Result<u64, Refused> {
    match split_expiry(stored) {
        Ok((expiry_ms, _)) => Ok(expiry_ms),
        Err(_) => Err(Refused::ShortExpiry(stored.len() as u8)),
    }
}

/// Returns the length of the bytes before the value in a stored value of this kind.
#[inline]
pub(crate) fn prefix_bytes(kind: Kind) -> usize {
    if expires(kind) { EXPIRY_BYTES } else { 0 }
}

/// Returns `true` if a version of this kind may expire.
#[inline]
pub(crate) fn expires(kind: Kind) -> bool {
    kind == Kind::PutWithExpiry
}

/// Returns `true` for a version that no time of the store clock expires. `stored` is its stored
/// value.
pub(crate) fn expires_never(trailer: Trailer, stored: &[u8]) -> bool {
    Version::decode(trailer, || stored).is_ok_and(|version| version.expiry_ms == u64::MAX)
}

/// Returns the trailer of a tombstone in the place of the version with this trailer.
pub(crate) fn tombstone_for(trailer: Trailer) -> Trailer {
    Trailer::new(trailer.sequence(), Kind::Tombstone)
}

#[inline]
pub(crate) fn is_tombstone(trailer: Trailer) -> bool {
    trailer.kind() == Kind::Tombstone
}

/// Returns `true` if a table has only values that are stored with their keys and never expire.
pub(crate) fn has_lasting_values_only(properties: &TableProperties) -> bool {
    properties.count(Kind::Put) == properties.entries()
}

/// Returns `true` for a value in a blob file.
#[inline]
pub(crate) fn is_in_blob_file(trailer: Trailer) -> bool {
    trailer.kind() == Kind::BlobReference
}

/// Returns `true` for a value that is stored with its key and never expires.
#[inline]
pub(crate) fn is_lasting_value(trailer: Trailer) -> bool {
    trailer.kind() == Kind::Put
}

/// Returns the trailer of a put with this sequence number.
pub(crate) fn put_at(sequence: SequenceNumber) -> Trailer {
    Trailer::new(sequence, Kind::Put)
}

/// Returns the trailer of a put in the place of the version with this trailer.
pub(crate) fn put_for(trailer: Trailer) -> Trailer {
    put_at(trailer.sequence())
}

/// Returns the trailer of a blob reference in the place of the version with this trailer.
pub(crate) fn blob_for(trailer: Trailer) -> Trailer {
    Trailer::new(trailer.sequence(), Kind::BlobReference)
}

#[inline]
pub(crate) fn is_operand(trailer: Trailer) -> bool {
    trailer.kind() == Kind::Merge
}

/// An entry that cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The kind is not supported by this release.
    Unsupported(Kind),
    /// A put with expiry whose stored value has only this many bytes.
    ShortExpiry(u8),
}

impl Refused {
    /// A merge operand in a keyspace without a merge operator.
    pub(crate) const OPERAND: Self = Self::Unsupported(Kind::Merge);

    /// A blob reference in a source without blob files.
    pub(crate) const BLOB: Self = Self::Unsupported(Kind::BlobReference);
}

impl From<Refused> for Corruption {
    #[cold]
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unsupported(kind) => {
                Self::Unsupported { what: "kind of an entry", value: kind as u64 }
            }
            Refused::ShortExpiry(bytes) => Self::Truncated {
                what: "expiry of an entry",
                need: EXPIRY_BYTES as u64,
                have: bytes.into(),
            },
        }
    }
}
