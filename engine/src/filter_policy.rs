//! Filter policy of a keyspace, and the resulting filter of a table.

use sievedb_filter::FilterKind;

/// Default of [`FilterPolicy::bits_per_key`].
pub const DEFAULT_FILTER_BITS_PER_KEY: f64 = 10.0;

/// Kind and size of the filters of a keyspace's tables. `{}` shows it in words.
///
/// ```
/// use sievedb::{FilterPolicy, FilterPolicyKind, KeyspaceOptions};
///
/// let half = FilterPolicy::new(FilterPolicyKind::Auto).bits_per_key(5.0);
/// let options = KeyspaceOptions::new().filter_policy(half);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "a policy does nothing until a keyspace is opened with it"]
pub struct FilterPolicy {
    pub(crate) kind: FilterPolicyKind,
    pub(crate) bits_per_key: f64,
    pub(crate) memory_bytes_max: Option<u64>,
}

/// Kind of filters, and division of bits among the tables.
///
/// A store with too many tables for a small memory budget writes larger ones, all with blocked
/// Bloom filters. Keyspaces with prefix or range filters keep smaller tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum FilterPolicyKind {
    /// Fewest false positives for the bits: many bits per key for small sorted runs, fewer for the
    /// largest one. Ribbons; but blocked Bloom filters for runs with fewer than 2,000 keys, or less
    /// than one key in 400 of all.
    #[default]
    Auto,
    /// Blocked Bloom filters with the same bits per key everywhere. They are faster to build and to
    /// probe, and about 1.5 times as large as ribbons of the same rate.
    Bloom,
    /// Ribbons with the same bits per key everywhere.
    Ribbon,
    /// Binary fuse filters everywhere. They take about 9 bits per key for a rate of 0.39 %, or 18
    /// bits for 0.0015 % if the policy allows as many. Below 9 bits per key they exceed the policy.
    Fuse,
    /// No filters: each lookup of an absent key reads a block of every sorted run.
    None,
}

/// The filter of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FilterChoice {
    pub(crate) kind: FilterKind,
    /// 0 for no filter.
    pub(crate) bits_per_key: f64,
}

impl FilterPolicyKind {
    /// Returns the number in the manifest.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Auto => 0,
            Self::Bloom => 1,
            Self::Ribbon => 2,
            Self::None => 3,
            Self::Fuse => 4,
        }
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        [Self::Auto, Self::Bloom, Self::Ribbon, Self::None, Self::Fuse]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

impl Default for FilterPolicy {
    fn default() -> Self {
        Self::new(FilterPolicyKind::default())
    }
}

impl FilterPolicy {
    /// Creates a policy of this kind, with [`DEFAULT_FILTER_BITS_PER_KEY`].
    pub const fn new(kind: FilterPolicyKind) -> Self {
        Self { kind, bits_per_key: DEFAULT_FILTER_BITS_PER_KEY, memory_bytes_max: None }
    }

    /// Returns the kind of filters.
    #[must_use]
    pub const fn get_kind(&self) -> FilterPolicyKind {
        self.kind
    }

    /// Returns the value of [`bits_per_key`](Self::bits_per_key).
    #[must_use]
    pub const fn get_bits_per_key(&self) -> f64 {
        self.bits_per_key
    }

    /// Returns the value of [`memory_bytes_max`](Self::memory_bytes_max); `None` without a bound.
    #[must_use]
    pub const fn get_memory_bytes_max(&self) -> Option<u64> {
        self.memory_bytes_max
    }

    /// Filter bits per key, on average over the tables of the keyspace; more bits mean fewer false
    /// positives. [`Auto`](FilterPolicyKind::Auto) reserves some for future tables.
    ///
    /// 0 (no filters), or from 0.001 to 40, in steps of 0.001; default 10
    /// ([`DEFAULT_FILTER_BITS_PER_KEY`]). With [`Auto`](FilterPolicyKind::Auto), 10 bits cost about
    /// one false positive in a thousand lookups of an absent key, for each sorted run of similar
    /// size.
    pub const fn bits_per_key(mut self, bits: f64) -> Self {
        self.bits_per_key = bits;
        self
    }

    /// Most memory for the filters of the keyspace, in bytes, within the bound of all keyspaces
    /// ([`Options::filter_bytes_max`](crate::Options::filter_bytes_max)).
    ///
    /// Filters that do not fit are in memory in part or not at all, where that costs the fewest
    /// reads. Only ribbons can be in memory in part. Files keep the filters with all
    /// [`bits_per_key`](Self::bits_per_key).
    ///
    /// From 0 (no filter in memory); default none.
    pub const fn memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes_max = Some(bytes);
        self
    }
}
