//! Lookups: those of many keys against those of single ones, what they allocate, and
//! `insert_if_absent` under threads.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod allocations;
mod insert_if_absent;
mod many;
mod read_options;
