//! Lookups: `get_many` against `get`, allocations, and concurrent `insert_if_absent`.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod allocations;
mod insert_if_absent;
mod many;
mod read_options;
