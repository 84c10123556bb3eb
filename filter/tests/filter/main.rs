//! Tests of the filters through their public interface.

mod allocations;
mod concurrency;
mod false_positive_rate;
mod filter_block;
mod golden;
mod hostile_bytes;
mod no_false_negative;
mod random;
mod ribbon;
mod seal;
