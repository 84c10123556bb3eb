//! Tests of the public interface of the memtable.

mod concurrency;
mod cursor;
mod model;
mod point_lookup;
mod ranges;
