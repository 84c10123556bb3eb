//! Conditions of writes: what a writer has read was not written since.
//!
//! They are evaluated by the [commit pipeline](crate::commit), under the placement lock. There they
//! compare sequence numbers and search memtables, but read no table.
//!
//! | module         | content                                                               |
//! |----------------|-----------------------------------------------------------------------|
//! | [`unwritten`]  | condition: one key was not written since it was read                  |
//! | [`unchanged`]  | condition: nothing of a read set was written after a snapshot         |
//! | [`read_set`]   | keys and ranges that a writer has read                                |
//! | [`key_ranges`] | ranges that do not overlap                                            |

mod key_ranges;
pub(crate) mod read_set;
pub(crate) mod unchanged;
pub(crate) mod unwritten;
