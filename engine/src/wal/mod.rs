//! The write-ahead log: every write is in it before it is anywhere else.
//!
//! The log is a row of segments, files of records ([`crate::log`]). A record's payload is a batch.
//!
//! | module      | answers                                                             |
//! |-------------|---------------------------------------------------------------------|
//! | [`batch`]   | the bytes of a batch                                                |
//! | [`segment`] | how a segment begins                                                |
//! | [`chain`]   | which segments make up the log, and in which order                  |
//! | [`replay`]  | reads the log after a crash: what counts, what is torn, what is lost |
//! | [`dump`]    | a segment's bytes and their meaning                                 |
pub(crate) mod batch;
pub(crate) mod chain;
pub(crate) mod dump;
pub(crate) mod replay;
pub(crate) mod segment;
#[cfg(test)]
mod tests;
