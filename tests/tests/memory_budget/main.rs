//! What a store allocates stays within its memory budget, whatever is done with it.
//!
//! Contents of cached blocks do not come from the allocator: samples add them to what it counts.
//!
//! A binary of its own: the allocator counts all threads, those of the store too. The tests take
//! turns.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "a test tells what it measured")]

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
