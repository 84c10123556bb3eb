//! Number of levels.

/// Number of levels, including level 0.
pub(crate) const LEVELS: usize = 7;
