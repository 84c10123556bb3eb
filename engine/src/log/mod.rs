//! Record framing: what a segment of the write-ahead log and a manifest have in common.
//!
//! A file is a [`FileHeader`](sievedb_format::FileHeader) and then records, each of which starts at
//! a multiple of 8. The first record is a start, the last one of a finished file a seal. Payloads
//! above [`FRAGMENT_BYTES_MAX`] are split; the first fragment begins with the length of the whole
//! as a `u64`.
//!
//! | module      | answers                                                                |
//! |-------------|------------------------------------------------------------------------|
//! | [`record`]  | the bytes of a record, and which damage a crash can leave              |
//! | [`payload`] | how a payload is split and checksummed before any lock is taken        |
//! | [`fields`]  | tagged fields: how records gain a field without a new format version   |
//! | [`start`]   | what the first record of a file says                                   |
//! | [`writer`]  | appends records                                                        |
//! | [`reader`]  | reads them back, and what vouches for bytes that do not read back      |
//! | [`dump`]    | the bytes of a file and their meaning                                  |
//!
//! # Torn or damaged
//!
//! A crash may lose or tear whatever was not synced. So the bytes at the end of a file need not be
//! valid records. But what *was* synced must be. Every record therefore carries a synced mark: a
//! [`Position`] up to which the log was known to be durable when the record was written. A bad
//! record that lies below a mark is damage, and refused; one that lies below none is a torn tail,
//! and the log ends before it.
pub(crate) mod dump;
pub(crate) mod fields;
pub(crate) mod payload;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod start;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod window;
pub(crate) mod writer;

pub(crate) use payload::{Payload, PendingRecord};
pub(crate) use reader::{Next, Reader, Record};
pub(crate) use record::{Position, RecordType};
pub(crate) use start::Start;
pub(crate) use writer::{BUFFER_BYTES_MAX, Writer, draw_secret};
