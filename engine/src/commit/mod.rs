//! The one way of a write: encode, place in the log, (sync), insert into memtables, publish.
//!
//! | step    | where                       | lock                                          |
//! |---------|-----------------------------|-----------------------------------------------|
//! | encode  | [`WriteEncoder`]            | none                                          |
//! | place   | [`Placement::place`]        | placement: sequence numbers, memtables, queue |
//! | log     | [`SharedLog`]               | log files: the first to come writes for all   |
//! | insert  | [`Write::insert`]           | none: memtables take concurrent inserts       |
//! | publish | [`PublishQueue`]            | queue: visible in sequence order              |
//!
//! Locks are taken in this order, each only while those before it are held or free: keyspace
//! change, sync turn, log files, manifest, unrecorded changes of keyspaces, placement, background
//! state, trees, view of a tree, list of retired tables; memory pool, block cache, filter arena;
//! then, with nothing behind them, queue, snapshots, obsolete files, bell. Stores share a memory
//! pool: under its lock no lock of a store is taken but the bell's.

mod encoder;
mod log_segment;
mod placed_write;
mod placement;
mod publish;
mod shared_log;
mod sync_turns;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod tests;
mod write;

pub(crate) use encoder::WriteEncoder;
pub(crate) use log_segment::LogSize;
pub(crate) use placed_write::{PanicGuard, PlacedWrite};
pub(crate) use placement::{Always, Placed, Placement, Validate, Verdict};
pub(crate) use publish::{InFlight, PublishQueue};
pub(crate) use shared_log::{LogHost, SharedLog};
pub(crate) use write::{Entry, Target, Write};
