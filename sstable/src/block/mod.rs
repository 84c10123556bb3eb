//! Blocks of sorted entries, the unit that is read, checked and cached.
//!
//! # Content of a block
//!
//! A data block maps internal keys to values; an index block maps separators to the handles of the
//! blocks below it (see [`crate::index`]).
//!
//! | field           | bytes  | meaning                                                          |
//! |-----------------|--------|------------------------------------------------------------------|
//! | `shared`        | varint | bytes of the user key taken over from the entry before; see below |
//! | `unshared`      | varint | length of `suffix`                                               |
//! | `kind`          | 1      | [`Kind`](sievedb_format::Kind); 0 with sequence number 0: behind all versions, in an index only |
//! | `sequence`      | varint | sequence number, at most 56 bits                                 |
//! | `value_bytes`   | varint | length of `value`                                                |
//! | `suffix`        |        | the rest of the user key                                         |
//! | `value`         |        | the value, or the handle                                         |
//! | `restarts`      | 4 × n  | offsets of the entries that stand alone, ascending, the first 0   |
//! | `restart_count` | 4      | n; 0 in a block without entries                                  |
//!
//! The first seven repeat for each entry, in ascending order of the internal keys. `shared` is the
//! whole common prefix with the entry before, or 0 at a restart. At most [`RESTART_INTERVAL_MAX`]
//! entries lie between two restarts.
//!
//! How content is compressed and protected in the file: [`stored`].

mod builder;
mod content;
mod cursor;
mod entry;
mod reader;
mod residence;
mod restart_keys;
pub mod stored;
#[cfg(test)]
mod tests;

pub(crate) use builder::BlockBuilder;
pub(crate) use content::BlockRole;
pub(crate) use cursor::BlockCursor;
pub(crate) use entry::Entry;
pub use reader::FoundValue;
pub(crate) use reader::{Block, BlockInner, HeldBlock};

use content::Content;

/// The most entries from one restart up to the next.
///
/// Bounds the memory of a step backward: a cursor remembers the keys of one interval.
pub const RESTART_INTERVAL_MAX: usize = 256;

/// Bytes of a restart offset, and of their count.
const RESTART_BYTES: usize = size_of::<u32>();

/// Length of the longest common prefix.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a_words, _) = a.as_chunks::<8>();
    let (b_words, _) = b.as_chunks::<8>();
    let mut len = 0;
    for (a, b) in a_words.iter().zip(b_words) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return len + differing.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + a[len..].iter().zip(&b[len..]).take_while(|(a, b)| a == b).count()
}
