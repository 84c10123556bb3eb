//! One entry of a block.

use std::ops::Range;

use sievedb_format::Trailer;

/// Places of the parts of an entry within the content of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The user key without the prefix of the block.
    pub(crate) suffix: Range<usize>,
    /// Which version of its user key the entry is.
    pub(crate) trailer: Trailer,
    /// The value; the next entry starts where it ends.
    pub(crate) value: Range<usize>,
}
