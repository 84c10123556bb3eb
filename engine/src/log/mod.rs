//! Record framing, shared by write-ahead log segments and manifests.
//!
//! A file is a [`FileHeader`](sievedb_format::FileHeader) followed by records, each aligned to 8
//! bytes. The first record is a start, the last one of a finished file a seal. Payloads above
//! [`FRAGMENT_BYTES_MAX`](record::FRAGMENT_BYTES_MAX) are split; the first fragment begins with the
//! total length as a `u64`.
//!
//! # Torn or damaged
//!
//! A crash may lose or tear bytes that were not synced, but never synced ones. Every record carries
//! a synced mark: the [`Position`] up to which the log was durable when the record was written. A
//! bad record below a mark is damage, and refused. A bad record below no mark is a torn tail, and
//! the log ends before it.

pub(crate) mod dump;
pub(crate) mod fields;
pub(crate) mod payload;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod start;
#[cfg(test)]
mod tests;
mod transform;
pub(crate) mod values;
mod window;
pub(crate) mod writer;

pub(crate) use payload::{Payload, PendingRecord};
pub(crate) use reader::{Next, Reader, Record};
pub(crate) use record::{Position, RecordType};
pub(crate) use start::Start;
pub(crate) use writer::{BUFFER_BYTES_MAX, Writer, draw_secret};
