//! Encodings that all SieveDB files share.
//!
//! | module                | contents                                                      |
//! |-----------------------|---------------------------------------------------------------|
//! | [`internal_key`]      | keys with versions, and their order                           |
//! | [`codec`]             | encoding and decoding of integers and byte strings            |
//! | [`expiry`]            | values that expire                                            |
//! | [`checksum`]          | checksums                                                     |
//! | [`file_header`]       | the 64-byte header of every file                              |
//! | [`corruption`]        | errors of invalid stored bytes                                |
//! | [`range_tombstone`]   | deletions of key ranges                                       |
//! | [`table_bounds`]      | range of user keys of a table, with exclusive ends            |
//! | [`annotation`]        | annotated dumps, for `sieve dump`                             |
//! | [`packed_keys`]       | binary search over the first bytes of keys                    |
//!
//! Integers are little-endian. Nothing here does I/O.

pub mod annotation;
pub mod checksum;
pub mod codec;
pub mod corruption;
pub mod expiry;
pub mod file_header;
pub mod internal_key;
pub mod packed_keys;
pub mod range_tombstone;
pub mod table_bounds;

pub use annotation::Annotation;
pub use codec::{Decoder, Encode};
pub use corruption::Corruption;
pub use file_header::{FileHeader, FileKind, Release};
pub use internal_key::{
    InternalKey, KEY_BYTES_MAX, Kind, SEQUENCE_MAX, SequenceNumber, Trailer, VALUE_BYTES_MAX,
};
pub use packed_keys::PackedKeys;
pub use range_tombstone::{HeadRange, RangeTombstone, RangeTombstoneSource, RangeTombstones};
pub use table_bounds::TableBounds;
