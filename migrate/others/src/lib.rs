//! Copies databases of other engines into SieveDB stores, by the crates of those engines.
//!
//! | feature | source | becomes a keyspace | opened |
//! |---|---|---|---|
//! | `fjall` | directory of fjall 3 | each keyspace | for writing: fjall recovers its journal |
//! | `lmdb` | directory of LMDB 0.9 or 1.0 | each database; the unnamed one is `default` | read-only |
//! | `redb` | file of redb 2.6 to 4 | each table | read-only, after a clean close |
//! | `sled` | directory of sled 0.34 | each tree; its default tree is `default` | for writing |
//!
//! `lmdb` requires a C compiler, and is not a default feature. `sieve migrate` reads RocksDB,
//! without the crate of RocksDB.
//!
//! Close the source first: fjall, redb and sled lock it, LMDB does not. After a crash of its
//! program, a file of redb must be opened and closed by redb once. Keys and values are copied as
//! bytes. In tables of redb, a key or value of type `&str` becomes its UTF-8 bytes. A `u64`
//! becomes 8 bytes, big-endian, so that keys keep their order.
//!
//! Tables of other types and multimap tables are refused by name before the copy starts. A database
//! of LMDB in which a key has several values (`MDB_DUPSORT`) is refused by name when the copy
//! reaches the key. Keys with `MDB_INTEGERKEY` keep the byte order of the machine.

mod copy;
mod error;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "sled")]
mod sled;
mod source;

pub use copy::migrate;
pub use error::{Error, Result};
pub use source::{Add, Engine, Source, open};
