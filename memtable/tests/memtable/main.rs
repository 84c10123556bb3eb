//! Tests of the memtable through its public interface.

mod concurrency;
mod cursor;
mod model;
mod point_lookup;
