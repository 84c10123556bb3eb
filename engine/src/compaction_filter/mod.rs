//! Compaction filters: functions that remove or replace values while compactions rewrite them.
//!
//! | module    | content                                             |
//! |-----------|-----------------------------------------------------|
//! | [`named`] | compaction filter of a keyspace, by its stored name |
//!
//! See [`crate::compaction`] for which versions a filter is shown. These are not the filters of
//! tables, which reject absent keys.

mod named;

pub(crate) use self::named::NamedFilter;

use std::fmt;

/// Removes or replaces values while compactions rewrite them.
///
/// A compaction of a keyspace with a filter calls it for each key that it rewrites, with the newest
/// value among its inputs. The filter is not shown:
///
/// * a value that an open snapshot or transaction sees,
/// * a key whose newest version is removed or expired, or a merge operand that stays: its value is
///   in a deeper level or expires, or the operator fails,
/// * tables that a compaction moves to another level without reading them, and flushes.
///
/// A newer version of the key may exist, in a shallower level. It stays, as do merge operands
/// there.
///
/// So a value may be filtered late, or never. [`compact`](crate::Keyspace::compact) rewrites the
/// whole keyspace. A removal by a filter is not a write: it has no sequence number, and no
/// transaction conflicts with it. A snapshot that is taken while the compaction runs still sees the
/// value.
///
/// The filter is code of this process: see
/// [`KeyspaceOptions::compaction_filter`](crate::KeyspaceOptions::compaction_filter). Calls come
/// from several threads at once, in ascending order of keys within one compaction, and must not
/// write to the store or wait for its background work. If a call panics, its compaction fails with
/// [`Error::CompactionFilterFailed`](crate::Error::CompactionFilterFailed) and changes nothing.
/// Later compactions run without the filter until the options of the keyspace are set, or the store
/// is opened again.
///
/// ```
/// use std::sync::Arc;
/// use sievedb::{CompactionContext, CompactionFilter, Db, Decision, KeyspaceOptions};
///
/// /// Removes empty values.
/// #[derive(Debug)]
/// struct NonEmpty;
///
/// impl CompactionFilter for NonEmpty {
///     fn name(&self) -> &str {
///         "non-empty"
///     }
///
///     fn filter(&self, _: &CompactionContext<'_>, _key: &[u8], value: &[u8]) -> Decision {
///         if value.is_empty() { Decision::Remove } else { Decision::Keep }
///     }
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let options = KeyspaceOptions::new().compaction_filter(Arc::new(NonEmpty));
/// let notes = db.keyspace_with("notes", &options)?;
/// notes.insert("a", "")?;
/// notes.insert("b", "text")?;
/// notes.compact()?;
/// assert_eq!(notes.get("a")?, None);
/// assert_eq!(notes.get("b")?.as_deref(), Some(&b"text"[..]));
/// # Ok::<(), sievedb::Error>(())
/// ```
pub trait CompactionFilter: Send + Sync + fmt::Debug {
    /// Returns the name that is stored with a keyspace: 1 to 255 bytes.
    fn name(&self) -> &str;

    /// Decides about `value`, the newest value of `key` in a compaction.
    fn filter(&self, context: &CompactionContext<'_>, key: &[u8], value: &[u8]) -> Decision;
}

/// Decision of a [`CompactionFilter`] about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Keeps the value.
    Keep,
    /// Removes the key. A tombstone takes its place if older versions may exist.
    Remove,
    /// Replaces the value, by one of at most 256 MiB. The expiry stays.
    Replace(Vec<u8>),
    /// Removes the key and all later keys of the compaction that are less than this one. The filter
    /// is not called for them. Versions that snapshots see are kept. In the last level, without
    /// a snapshot, the compaction does not even read the removed keys. If this key is not greater
    /// than the filtered one, acts as [`Remove`](Self::Remove).
    RemoveAndSkipUntil(Vec<u8>),
}

/// The compaction that calls a [`CompactionFilter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionContext<'a> {
    /// Name of the keyspace.
    pub keyspace: &'a str,
    /// Level of the output.
    pub output_level: u8,
    /// `true` if no other table has older versions of its keys.
    pub is_bottommost: bool,
}

impl<'a> CompactionContext<'a> {
    /// Creates the context of a compaction, for tests of filters.
    #[must_use]
    pub const fn new(keyspace: &'a str, output_level: u8, is_bottommost: bool) -> Self {
        Self { keyspace, output_level, is_bottommost }
    }
}
