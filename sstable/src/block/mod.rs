//! Blocks of sorted entries: the unit of reading, checksums and caching.
//!
//! # Content of a block
//!
//! A data block maps internal keys to values. An index block maps separators to the handles of its
//! children (see [`crate::index`]).
//!
//! | field           | bytes  | meaning                                                          |
//! |-----------------|--------|------------------------------------------------------------------|
//! | `entries`       | varint | number of entries, at most one per byte of the content; in an index bounded by the room for handles |
//! | `widths`        | 1      | widths of fields in bytes: bits 0 to 2 of `end` (0 to 4), bits 3 and 4 of `suffix_more`, bits 5 to 7 of `sequence_more` |
//! | `kind`          | 1      | kind of all entries, or 0xff if each entry has its own           |
//! | `entry_bytes`   | varint | see `end`                                                        |
//! | `suffix_bytes`  | varint | length of the shortest suffix                                    |
//! | `sequence`      | varint | smallest sequence number, at most 56 bits                        |
//! | `prefix_bytes`  | varint | length of `prefix`                                               |
//! | `prefix`        |        | common prefix of all user keys                                   |
//! | `end`           | 0 to 4 | per entry: entry `n` ends `(n + 1) * entry_bytes + end` bytes behind the start of the first |
//! | `suffix_more`   | 0 to 3 | length of the suffix minus `suffix_bytes`                        |
//! | `kind`          | 0 or 1 | [`Kind`](sievedb_format::Kind), if entries have their own; 0 with sequence number 0 sorts behind all versions, in an index only |
//! | `sequence_more` | 0 to 7 | sequence number minus `sequence`                                 |
//! | `suffix`        |        | the user key without `prefix`                                    |
//! | `value`         |        | the value or handle, up to the end of the entry                  |
//!
//! `end` repeats for each entry. Then the last five fields repeat, in ascending order of the
//! internal keys, without gaps, up to the end of the content. Numbers are little-endian and as
//! narrow as the block allows: if lengths, kinds and sequence numbers are all equal, an entry is
//! just suffix and value.
//!
//! Entries do not depend on each other, so searches need no restart points and both directions cost
//! the same. The price is that neighbours share only the prefix of the block; compression recovers
//! most of it.
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
