//! Entries in key order: from sorted sources up to the iterator of the caller.
//!
//! | module        | content                                                              |
//! |---------------|----------------------------------------------------------------------|
//! | [`cursor`]    | interface of sorted sources                                          |
//! | [`run`]       | cursor over the tables of a sorted run                               |
//! | [`merge`]     | merge of cursors                                                     |
//! | [`visible`]   | entries that a reader sees; [`resolve`](crate::resolve) decides      |
//! | [`range`]     | double-ended iterator of the caller                                  |
//! | [`bounds`]    | bounds of a range of keys                                            |
//! | [`range_tombstone_sources`] | range tombstones of a read view                        |
//!
//! A merge wraps cursors, a visible cursor wraps a merge, a range wraps two visible cursors. Only
//! the sources read a clock, take a lock or open a file. Errors of sources are returned unchanged.

pub(crate) mod bounds;
pub(crate) mod cursor;
mod last_key;
pub(crate) mod merge;
pub(crate) mod range;
pub(crate) mod range_tombstone_sources;
pub(crate) mod run;
pub(crate) mod visible;

#[cfg(test)]
pub(crate) mod tests;
