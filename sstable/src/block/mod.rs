//! Blocks of sorted entries: the unit of reading, checksums and caching.
//!
//! # Content of a block
//!
//! A data block maps internal keys to values. An index block maps separators to the handles of its
//! children (see [`crate::index`]).
//!
//! | field           | bytes  | meaning                                                          |
//! |-----------------|--------|------------------------------------------------------------------|
//! | `entries`       | varint | number of entries; see below                                     |
//! | `widths`        | 1      | widths of `end`, `suffix_more` and `sequence_more`; see below    |
//! | `kind`          | 1      | kind of all entries, or 0xff if each entry has its own           |
//! | `entry_bytes`   | varint | see `end`                                                        |
//! | `suffix_bytes`  | varint | length of the shortest suffix                                    |
//! | `sequence`      | varint | smallest sequence number, at most 56 bits                        |
//! | `prefix_bytes`  | varint | length of `prefix`                                               |
//! | `prefix`        |        | common prefix of all user keys                                   |
//! | `end`           | 0 to 4 | end of an entry, relative to its minimum; see below              |
//! | `suffix_more`   | 0 to 3 | length of the suffix minus `suffix_bytes`                        |
//! | `kind`          | 0 or 1 | [`Kind`](sievedb_format::Kind) of the entry; see below            |
//! | `sequence_more` | 0 to 7 | sequence number minus `sequence`                                 |
//! | `suffix`        |        | the user key without `prefix`                                    |
//! | `value`         |        | the value or handle, up to the end of the entry                  |
//!
//! `end` repeats for each entry. Then the last five fields repeat, in ascending order of the
//! internal keys, without gaps, up to the end of the content. Numbers are little-endian and as
//! narrow as the block allows: if lengths, kinds and sequence numbers are all equal, an entry is
//! just suffix and value.
//!
//! * `entries` is at most one per byte of the content. In an index it is limited by the space for
//!   handles.
//! * `widths` has the widths in bytes: bits 0 to 2 that of `end` (0 to 4), bits 3 and 4 that of
//!   `suffix_more`, bits 5 to 7 that of `sequence_more`.
//! * `end`: entry `n` ends `(n + 1) * entry_bytes + end` bytes after the start of the first entry.
//! * The blocks of an index are in ascending order and do not overlap.
//! * `kind` of an entry is 0 only in an index, with sequence number 0. It sorts after all versions.
//!
//! Entries do not depend on each other, so searches need no restart points and both directions cost
//! the same. In return, adjacent entries share only the prefix of the block. Compression recovers
//! most of that space.
//!
//! The stored form, with compression and checksum, is described in [`stored`].

mod builder;
mod cursor;
mod decoded;
mod layout;
mod residence;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod search;
pub mod stored;
#[cfg(test)]
mod tests;
pub(crate) mod zstd;
mod zstd_frame;

pub(crate) use builder::{BlockBuilder, common_prefix};
pub(crate) use cursor::BlockCursor;
pub use decoded::ValueRef;
pub(crate) use decoded::{Block, BlockInner, BlockRef};
pub(crate) use stored::BlockHandle;

/// Role of a block, which decides how its values are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockRole {
    /// Maps versions of keys to values.
    Data,
    /// Maps separators to the handles of children.
    Index,
}
