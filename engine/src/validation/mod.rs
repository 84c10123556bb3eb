//! Conditions of writes: no key or range that a writer has read was written since.
//!
//! The [commit pipeline](crate::commit) evaluates a condition under the placement lock. There it
//! compares sequence numbers, and searches writes in flight and memtables, but reads no table.
//!
//! | module         | content                                                               |
//! |----------------|-----------------------------------------------------------------------|
//! | [`unwritten`]  | condition: one key was not written since it was read                  |
//! | [`unchanged`]  | condition: nothing of a read set was written after a snapshot         |
//! | [`read_set`]   | keys and ranges that a writer has read                                |
//! | [`key_ranges`] | ranges that do not overlap                                            |
//! | [`reads`]      | keys and ranges of a condition, compared with later writes            |

mod key_ranges;
pub(crate) mod read_set;
mod reads;
pub(crate) mod unchanged;
pub(crate) mod unwritten;
