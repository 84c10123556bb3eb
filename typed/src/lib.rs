//! Typed keyspaces for [`sievedb`]: ordered keys, serde values, and schema versions.
//!
//! [`TypedKeyspace<K, V>`](TypedKeyspace) reads and writes values of type `V` under keys of type
//! `K` in a keyspace of a store.
//!
//! * Keys have [encodings](key) that preserve their order, so ranges and prefixes work on numbers,
//!   strings, times, and tuples of them.
//! * Values are encoded by [`Postcard`] if they implement serde's traits, or by any [`Codec`].
//! * A [`Schema`] of each keyspace is stored. An open with another schema is an error, and
//!   migrations rewrite values from one version to the next.
//! * Batches, snapshots and [`transaction`]s span several keyspaces, typed or not.
//! * [`Indexed`] adds secondary indexes, which change in the same atomic step as the entries.
//!
//! Calls have the names of [`Keyspace`](sievedb::Keyspace): conditional writes, TTLs, merge
//! operands, range deletes. Those that end with `_in` are part of a batch or transaction.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use sievedb_typed::{Schema, TypedKeyspace, sievedb::Db};
//!
//! #[derive(Serialize, Deserialize, Debug, PartialEq)]
//! struct User {
//!     name: String,
//!     logins: u64,
//! }
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Db::open(dir.path())?;
//! let users = TypedKeyspace::<u64, User>::open(&db, "users", Schema::new("user", 1))?;
//! users.insert(7, User { name: "anna".into(), logins: 1 })?;
//! users.insert(12, User { name: "bert".into(), logins: 0 })?;
//! assert_eq!(users.get(7)?.map(|user| user.name).as_deref(), Some("anna"));
//!
//! // Numbers are in numeric order.
//! for entry in users.range(5..).rev() {
//!     let (id, user) = entry?;
//!     println!("{id}: {user:?}");
//! }
//! # Ok::<(), sievedb_typed::Error>(())
//! ```
//!
//! The feature `uuid` implements keys of `uuid::Uuid`.

mod codec;
mod entries;
mod error;
mod index;
pub mod key;
mod keyspace;
mod merge_values;
mod reads;
mod schema;
mod snapshot;
mod transaction;

pub use sievedb;

pub use self::{
    codec::{Codec, CodecError, Integer, Postcard, Raw},
    entries::{Entries, Keys},
    error::{Error, Result},
    index::{Index, IndexChanges, IndexEntries, IndexMatches, IndexSnapshot, Indexed},
    key::{EncodeAs, Key, KeyError, Place, PrefixOf},
    keyspace::TypedKeyspace,
    merge_values::MergeValues,
    schema::{SCHEMA_KEYSPACE, Schema},
    snapshot::TypedSnapshot,
    transaction::{TransactionEntries, TransactionKeys, Writes, transaction},
};
