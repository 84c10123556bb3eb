//! Creation and deletion of files, and the state after a close.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod close;
mod continued_log;
mod default_budget;
mod explicit_close;
mod filter_policy;
mod keyspace_options;
mod log_length;
mod memory;
mod obsolete;
mod opening;
mod shutdown;
mod small_store;
mod table_reads;
mod verify;
