//! Roles of the filters of a table.

use std::fmt;

/// Role of a filter. A table has at most one filter for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FilterRole {
    /// Single user keys: for lookups.
    Point,
    /// Prefixes of user keys: for scans of one prefix.
    Prefix,
    /// Ranges of user keys: for short scans.
    Range,
}

impl FilterRole {
    pub(crate) const ALL: [Self; 3] = [Self::Point, Self::Prefix, Self::Range];

    /// Returns the name of the filter in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Point => "filter",
            Self::Prefix => "prefix filter",
            Self::Range => "range filter",
        }
    }
}

impl fmt::Display for FilterRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
