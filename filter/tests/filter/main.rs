//! Tests of the public interface of the filters.

mod allocations;
mod concurrency;
mod false_positive_rate;
mod filter_block;
mod golden;
mod hostile_bytes;
mod key_sets;
mod no_false_negative;
mod random;
mod range_filter;
mod rates;
mod ribbon;
mod ribbon_rate;
mod seal;
mod standalone;
