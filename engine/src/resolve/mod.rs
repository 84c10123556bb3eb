//! Decides what a key is: the one place that says which version of a key a reader sees.
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
//! | scans, merges, repair   | [`ReadPoint::seen`], which refuses what they cannot read         |
//! | opening a table         | [`check_kind`]                                                   |
//!
//! This release writes puts, tombstones and merge operands. The other kinds have verdicts, and each
//! step that is missing for them returns [`Unsupported`] instead of a wrong answer.
//!
//! Nothing here does I/O or takes a lock. Only [`older`] allocates, for merge operands.

pub(crate) mod older;
#[cfg(test)]
pub(crate) mod tests;

use sievedb_format::{Corruption, Kind, SEQUENCE_MAX, SequenceNumber, Trailer};

/// The point in history and in time at which a reader reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadPoint {
    /// Newer versions are invisible.
    pub(crate) sequence: SequenceNumber,
    /// Store clock, in milliseconds. 0 outside of tests: no stored version has an expiry.
    clock_ms: u64,
}

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
    /// The key has the value beside it.
    Value,
    /// The key has no value by this version: it is removed, or the version is invisible.
    Nothing,
    /// A merge operand. The key has a value, which needs older versions.
    Operand,
}

/// Place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Beside the key.
    Inline,
    /// In a blob file, which the entry names.
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
    pub(crate) const LATEST: Self = Self::new(SEQUENCE_MAX);

    /// Returns the read point of a reader at `sequence`.
    #[inline]
    pub(crate) const fn new(sequence: SequenceNumber) -> Self {
        Self { sequence, clock_ms: 0 }
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

    /// Returns what the version with this trailer shows of its key. `cover` as in
    /// [`resolve`](Self::resolve).
    ///
    /// # Errors
    ///
    /// [`Unsupported`] if the answer needs blob files or an expiry.
    #[inline]
    pub(crate) fn seen(
        self,
        trailer: Trailer,
        cover: impl FnOnce() -> SequenceNumber,
    ) -> Result<Seen, Unsupported> {
        match self.resolve(Version::decode(trailer)?, cover) {
            Verdict::Value(Stored::Inline) => Ok(Seen::Value),
            Verdict::Deleted | Verdict::MoreNeeded(Needed::Invisible) => Ok(Seen::Nothing),
            Verdict::MoreNeeded(Needed::Operand) => Ok(Seen::Operand),
            Verdict::Value(Stored::Blob) => Err(Unsupported(trailer.kind())),
        }
    }
}

impl Version {
    /// Decodes the version with this trailer.
    ///
    /// # Errors
    ///
    /// [`Unsupported`] for kinds without a stored form among points: a put with expiry and a range
    /// tombstone.
    #[inline]
    pub(crate) fn decode(trailer: Trailer) -> Result<Self, Unsupported> {
        let (sequence, kind) = (trailer.sequence(), trailer.kind());
        match kind {
            Kind::Put | Kind::Tombstone | Kind::Merge | Kind::BlobReference => {
                Ok(Self { sequence, kind, expiry_ms: u64::MAX })
            }
            Kind::PutWithExpiry | Kind::RangeTombstone => Err(Unsupported(kind)),
        }
    }
}

#[inline]
pub(crate) fn is_tombstone(trailer: Trailer) -> bool {
    trailer.kind() == Kind::Tombstone
}

/// Returns `true` for a value that time does not remove.
pub(crate) fn is_lasting_value(trailer: Trailer) -> bool {
    trailer.kind() == Kind::Put
}

#[inline]
pub(crate) fn is_operand(trailer: Trailer) -> bool {
    trailer.kind() == Kind::Merge
}

/// Refuses entries of a kind that this release cannot apply, range tombstones included.
///
/// # Errors
///
/// [`Unsupported`].
pub(crate) fn check_kind(kind: Kind) -> Result<(), Unsupported> {
    match kind {
        Kind::Put | Kind::Tombstone | Kind::Merge => Ok(()),
        Kind::BlobReference | Kind::PutWithExpiry | Kind::RangeTombstone => Err(Unsupported(kind)),
    }
}

/// An entry of a kind that this release cannot apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsupported(Kind);

impl Unsupported {
    /// A merge operand in a keyspace without a merge operator.
    pub(crate) const OPERAND: Self = Self(Kind::Merge);
}

impl From<Unsupported> for Corruption {
    #[cold]
    fn from(Unsupported(kind): Unsupported) -> Self {
        Self::Unsupported { what: "kind of an entry", value: kind as u64 }
    }
}
