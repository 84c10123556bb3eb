//! Entries in key order: from sorted sources up to what a user sees.
//!
//! | module        | answers                                                              |
//! |---------------|----------------------------------------------------------------------|
//! | [`cursor`]    | how every sorted source is moved                                     |
//! | [`run`]       | how the tables of one sorted run become one source                   |
//! | [`merge`]     | how many sources become one                                          |
//! | [`visible`]   | which entries a reader sees; [`resolve`](crate::resolve) decides     |
//! | [`range_tombstone_sources`] | the range tombstones that a reader sees               |
//! | [`bounds`]    | which keys a range holds                                             |
//! | [`range`]     | the double-ended iterator a user holds                               |
//!
//! A merge wraps cursors, a visible cursor wraps a merge, a range wraps two visible cursors. None
//! of them reads a clock, takes a lock or touches a file: the sources do, and what they fail with
//! goes through unchanged.

pub(crate) mod bounds;
pub(crate) mod cursor;
pub(crate) mod merge;
pub(crate) mod range;
pub(crate) mod range_tombstone_sources;
pub(crate) mod run;
pub(crate) mod visible;

#[cfg(test)]
pub(crate) mod tests;
