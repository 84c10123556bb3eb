//! Reads RocksDB directories without C++, and writes tables that RocksDB ingests.
//!
//! [`RocksDb`] opens a directory that no process has open, and iterates over the newest value of
//! each key of a column family. It changes nothing. `sieve migrate` writes the entries to a SieveDB
//! store.
//!
//! | part              | read                                                                |
//! |-------------------|---------------------------------------------------------------------|
//! | tables            | block-based, format versions 2 to 7, all index types                |
//! | compression       | Snappy, LZ4, LZ4HC, ZSTD, with dictionaries                         |
//! | checksums         | CRC-32C, xxHash, xxHash64, XXH3, with context                       |
//! | logs              | recycled ones, compressed ones, committed transactions              |
//! | entries           | deletions of keys and ranges, merge operands, blobs, ingested tables |
//! | comparators       | bytewise, reverse bytewise                                          |
//!
//! Prepared transactions that were not committed are dropped.
//!
//! Other features are refused by name with [`Error::Unsupported`]: other comparators, user-defined
//! timestamps, Zlib, BZip2 and custom compression, plain and cuckoo tables, `DBWithTTL`, and
//! wide-column entities with columns other than the default one.
//!
//! [`export`] writes tables for RocksDB. The feature `store` adds the module `store`, which copies
//! entries of any source into a store.
//!
//! Every block, record and blob is verified by its checksum. Damage is an [`Error::Corrupt`] with
//! file and offset, never a panic. Sizes are checked before memory is allocated.

mod checksum;
mod compression;
mod decoder;
mod digest;
mod entries;
mod error;
pub mod export;
mod file;
mod internal_key;
mod lock;
mod manifest;
mod options_file;
mod rocksdb;
#[cfg(feature = "store")]
pub mod store;
mod table;
mod tombstone;
mod value;
mod wal;

pub use digest::Digest;
pub use entries::Entries;
pub use error::{Error, Result};
pub use rocksdb::{Options, RocksDb};
pub use value::{MergeOperator, StringAppend, UInt64Add};
