//! Conditions of writes: what a writer has read was not written since.
//!
//! They are evaluated by the [commit pipeline](crate::commit), under the placement lock. There they
//! compare sequence numbers and search memtables, but read no table.
//!
//! | module         | condition                                                             |
//! |----------------|-----------------------------------------------------------------------|
//! | [`unwritten`]  | one key was not written since it was read, without a snapshot         |

pub(crate) mod unwritten;
