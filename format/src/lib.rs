//! Bytes that every SieveDB file shares.
//!
//! | module                | answers                                                       |
//! |-----------------------|---------------------------------------------------------------|
//! | [`internal_key`]      | how versions of a key are ordered                             |
//! | [`codec`]             | how integers and strings are written, and read back in bounds |
//! | [`checksum`]          | which checksum covers what                                    |
//! | [`file_header`]       | the 64 bytes every file begins with                           |
//! | [`corruption`]        | what can be wrong with stored bytes                           |
//! | [`range_tombstone`]   | which deletion of a key range covers a key                    |
//! | [`table_bounds`]      | range of user keys of a table, with exclusive ends            |
//! | [`annotation`]        | bytes and their meaning side by side, for `sieve dump`        |
//! | [`prefetch`]          | how memory that is read soon is asked for                     |
//!
//! Integers are little-endian everywhere. Nothing here touches a file.

pub mod annotation;
pub mod checksum;
pub mod codec;
pub mod corruption;
pub mod file_header;
pub mod internal_key;
pub mod prefetch;
pub mod range_tombstone;
pub mod table_bounds;

pub use annotation::Annotation;
pub use codec::{Decoder, Encode};
pub use corruption::Corruption;
pub use file_header::{FileHeader, FileKind, Release};
pub use internal_key::{
    InternalKey, KEY_BYTES_MAX, Kind, SEQUENCE_MAX, SequenceNumber, Trailer, VALUE_BYTES_MAX,
};
pub use range_tombstone::{RangeTombstone, RangeTombstoneSource, RangeTombstones};
pub use table_bounds::TableBounds;
