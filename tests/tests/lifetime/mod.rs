//! When files come and go, and what is left when a store is closed.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod close;
mod filter_policy;
mod memory;
mod obsolete;
mod small_store;
