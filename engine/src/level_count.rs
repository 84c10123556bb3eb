//! How many levels a tree has.

/// Number of levels, level 0 included.
pub(crate) const LEVELS: usize = 7;
