//! Number of levels.

/// Including level 0.
pub(crate) const LEVELS: usize = 7;
