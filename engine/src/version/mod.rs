//! The tables of a keyspace at one moment.

pub mod table_meta;

pub use table_meta::{FilterPlace, TableMeta};
