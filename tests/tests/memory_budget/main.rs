//! Allocations of a store stay within its memory budget for all kinds of use.
//!
//! Contents of cached blocks do not come from the allocator; samples add them.
//!
//! A separate binary: the allocator counts all threads, including those of the store. The tests run
//! one at a time.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "a test reports its measurements")]

mod background_pins;
mod changes;
mod counting;
mod freeing;
mod keyspaces;
mod lives;
mod much_data;
mod pinned;
mod runs;
mod samples;
mod sums;
mod writes;

const MIB: usize = 1 << 20;
