//! The pipeline of a write: encode, place, log, (sync), insert into memtables, publish.
//!
//! | step    | where                       | lock                                          |
//! |---------|-----------------------------|-----------------------------------------------|
//! | encode  | [`WriteEncoder`]            | none                                          |
//! | place   | [`Placement::place`]        | placement: sequence numbers, memtables, queue |
//! | log     | [`SharedLog`]               | log files: one thread writes for all          |
//! | insert  | [`Write::insert`]           | none: memtables take concurrent inserts       |
//! | publish | [`PublishQueue`]            | queue: visible in sequence order              |
//!
//! A short write that finds no other one takes these steps under one hold of the locks of log files
//! and placement: see [`commit_sole`].
//!
//! An asynchronous commit is published before its sync, and awaited as a [`DurableWait`].
//!
//! Locks are taken in this order:
//!
//! 1. keyspace change, sync turn, log files, manifest, placement, state of the scheduler, trees,
//!    view of a tree;
//! 2. memory pool, block cache, filter arena;
//! 3. one of: segment file, sync of a blob file of the log, queue, durable waits, snapshots,
//!    obsolete files, file calls, bell.
//!
//! The lock of the current blob file of a keyspace is taken while no other lock is held. Stores
//! share a memory pool: under its lock, the only lock of a store that may be taken is that of the
//! bell.

mod durable_waits;
mod key_slots;
mod log_segment;
mod placement;
mod publish;
mod segment_file;
mod shared_log;
mod sole_write;
mod sync_group;
mod sync_turns;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod tests;
mod wakers;
mod watches;
mod write;
mod write_encoder;

pub(crate) use durable_waits::{DurableWait, DurableWaits};
pub(crate) use key_slots::KeySlot;
pub(crate) use log_segment::{LogSize, WrittenSegment};
pub(crate) use placement::{Always, Numbered, Placed, Placement, Validate, Verdict};
pub(crate) use publish::{InFlight, PanicGuard, PlacedWrite, PublishQueue, WakerId};
pub(crate) use shared_log::{LogHost, SharedLog};
pub(crate) use sole_write::commit_sole;
pub(crate) use sync_turns::SyncedWaiters;
pub(crate) use wakers::wake_all;
pub(crate) use watches::{WatchId, WatchedKeys, WrittenKey};
pub(crate) use write::Write;
pub(crate) use write_encoder::{WriteEncoder, check_entry, check_lengths, stored_value};
