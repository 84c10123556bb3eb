//! An embedded LSM-tree key-value engine that rejects lookups of absent keys in memory.
//!
//! [`Db::open`] opens or creates a store in a directory. A [`Db`] reads and writes the [`Keyspace`]
//! named "default". [`Db::keyspace`] opens or creates other keyspaces. [`Db::batch`] writes to
//! several keyspaces atomically, and [`Db::snapshot`] reads all of them at one point in time.
//! [`Db::transaction`] reads and writes as one atomic step. Handles can be cloned and shared
//! between threads, and have no lifetimes. Calls block: in asynchronous code, use a thread that may
//! block.
//!
//! Keys and values are bytes: any `AsRef<[u8]>`. Keys are ordered byte by byte, so encode numbers
//! in keys with `to_be_bytes`. Values are returned as [`Bytes`], which deref to `[u8]`.
//!
//! ```
//! use sievedb::Db;
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Db::open(dir.path())?;
//! let links = db.keyspace("links")?;
//! let by_user = db.keyspace("links by user")?;
//!
//! // Runs again if another thread writes the key "docs" before the commit.
//! let user = 7_u64;
//! db.transaction(|transaction| {
//!     if !transaction.contains_key(&links, "docs")? {
//!         transaction.insert(&links, "docs", "https://docs.rs")?;
//!         transaction.insert(&by_user, [&user.to_be_bytes()[..], b"docs"].concat(), "")?;
//!     }
//!     Ok(())
//! })?;
//! for key in by_user.prefix(user.to_be_bytes()).keys() {
//!     assert_eq!(&key?[8..], b"docs");
//! }
//! # Ok::<(), sievedb::Error>(())
//! ```
//!
//! [`Batch`] lists the atomic operations, and [`Transaction`] isolates several of them.
//! [`Keyspace`] has conditional writes such as [`fetch_update`](Keyspace::fetch_update), values
//! that [expire](Keyspace::insert_with_ttl), [range deletes](Keyspace::remove_range) and [merge
//! operands](Keyspace::merge). [`Durability`] defines what a write survives. Settings are in
//! [`Options`] and [`KeyspaceOptions`], counters in [`Stats`].
//!
//! Runs on Linux, tested on x86-64. Other Unix systems are untested, and it does not build on
//! Windows. Features, none by default:
//!
//! * `encryption`: encryption at rest by AES-256-GCM.
//! * `zstd`: zstd compression; requires a C compiler.
//! * `serde`: `Serialize` of statistics and keyspace options.
//! * `stream`: [`Changes`] as a `Stream`, by `Changes::into_stream`.
//! * `object-store`: [`BackupSet`] in S3, GCS, Azure and others.
//!
//! For types in signatures the crate exports [`Bytes`], the crates `object_store` and `tokio` (with
//! `object-store`), and `futures_core` (with `stream`). So a program can use the same versions.

// Test doubles use this crate by its public name.
#[cfg(test)]
extern crate self as sievedb;

mod backup;
mod barriers;
mod batch;
mod change_retention;
pub mod changes;
mod checkpoint;
pub mod clock;
mod commit;
mod commit_future;
mod compaction;
mod compaction_filter;
mod compaction_style;
mod db;
mod default_budget;
mod describe;
mod durability;
mod encryption;
mod entry_ref;
mod error;
pub mod explain;
mod file_name;
mod filter_policy;
mod filter_role;
mod filters;
mod fold;
mod formats;
pub mod fs;
mod gate;
mod handle;
mod handle_counts;
mod held_sequence;
mod history;
mod history_length;
mod iter;
mod keyspace;
pub mod keyspace_options;
mod level_count;
mod listener;
mod log;
mod log_limits;
mod manifest;
mod memory;
mod memory_budget;
mod memory_pool;
mod merge_operator;
mod on_threads;
mod open_files;
pub mod options;
#[cfg_attr(feature = "planted-bugs", doc(hidden))]
#[cfg(feature = "planted-bugs")]
pub mod planted;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
mod point_in_time;
mod prefix_extractor;
mod quarantine;
mod range;
mod read;
mod read_options;
mod reader;
mod repair;
mod resolve;
mod room_future;
mod sequence_times;
/// Simulated amplification of styles of compaction.
#[cfg(any(test, feature = "simulation"))]
#[doc(hidden)]
pub mod simulation {
    pub use crate::compaction::simulation::{Amplification, Writes, simulate, styles};
}
mod snapshot;
mod sorter;
mod stall_reason;
pub mod stats;
mod store;
mod store_clock;
mod sync;
mod table;
mod table_writer;
#[cfg(test)]
mod tests;
pub mod text;
mod time_to_live;
mod transaction;
mod validation;
mod value_reader;
mod verify_report;
mod version;
mod wal;

pub use backup::{
    Archive, ArchiveUpdate, Backup, BackupReport, BackupSet, Pruned, Replica, ReplicaStats,
    RestoreOptions, Retention,
};
pub use batch::Batch;
pub use bytes::Bytes;
pub use change_retention::ChangeRetention;
#[cfg(feature = "stream")]
pub use changes::ChangesStream;
pub use changes::{ChangeBatch, Changes};
pub use checkpoint::Checkpoint;
pub use commit_future::CommitFuture;
pub use compaction_filter::{CompactionContext, CompactionFilter, Decision};
pub use compaction_style::{CompactionStyle, Fifo, SizeTiered};
pub use db::{CloseError, CompactionPause, Db};
pub use describe::describe;
pub use durability::Durability;
#[cfg(feature = "encryption")]
pub use encryption::{KeyError, KeyProvider, Reencryption, RootKey, StaticKeys};
pub use entry_ref::EntryRef;
pub use error::{Error, Result};
pub use explain::Explanation;
pub use filter_policy::{DEFAULT_FILTER_BITS_PER_KEY, FilterPolicy, FilterPolicyKind};
pub use filter_role::FilterRole;
pub use formats::FormatReport;
#[cfg(feature = "stream")]
pub use futures_core;
pub use handle_counts::OpenHandles;
pub use history::{KeyHistory, KeyVersion};
pub use history_length::HistoryLength;
pub use keyspace::{Current, Ingested, Ingestion, Keyspace, KeyspaceId, UnsortedIngestion};
pub use keyspace_options::{Compression, DEFAULT_KEYSPACE, KeyspaceOptions};
pub use listener::{Event, EventListener, FilterRebuildReason};
pub use memory_pool::{MemoryPool, PoolStats};
pub use merge_operator::{Append, Counter, Max, MergeError, MergeOperator, Min, SetUnion};
#[cfg(feature = "object-store")]
pub use object_store;
pub use options::{Options, ReadMode};
pub use point_in_time::PointInTime;
pub use quarantine::QuarantinedTable;
pub use range::{Keys, Range};
pub use read_options::ReadOptions;
pub use repair::{OlderValues, RepairReport};
pub use room_future::RoomFuture;
pub use sievedb_format::{
    Annotation, Corruption, KEY_BYTES_MAX, Release, VALUE_BYTES_MAX, file_header::FORMAT_VERSION,
};
pub use sievedb_sstable::{PrefixExtractor, PrefixFunction};
pub use snapshot::{KeyspaceSnapshot, Snapshot};
pub use stall_reason::StallReason;
pub use stats::Stats;
pub use table_writer::{TableWriter, WrittenTable};
pub use time_to_live::TimeToLive;
#[cfg(feature = "object-store")]
pub use tokio;
pub use transaction::{
    Isolation, Savepoint, Transaction, TransactionKeys, TransactionOptions, TransactionRange,
};
pub use value_reader::ValueReader;
pub use verify_report::{TornTail, VerifyProblem, VerifyProblemKind, VerifyProgress, VerifyReport};

/// The example of the README, tested.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

/// The examples of the quick start, tested.
#[cfg(doctest)]
#[doc = include_str!("../../docs/quick-start.md")]
mod quick_start {}
