//! The write-ahead log: every write is logged before it is visible.
//!
//! The log is a sequence of segments, files of records ([`crate::log`]). The payload of a record is
//! a batch.
pub(crate) mod batch;
pub(crate) mod chain;
pub(crate) mod dump;
pub(crate) mod followed;
pub(crate) mod replay;
pub(crate) mod segment;
pub(crate) mod tail;
#[cfg(test)]
mod tests;
