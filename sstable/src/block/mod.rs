//! Blocks of sorted entries, the unit that is read, checked and cached.
//!
//! # Content of a block
//!
//! A data block maps internal keys to values; an index block maps separators to the handles of the
//! blocks below it (see [`crate::index`]).
//!
//! | field           | bytes  | meaning                                                          |
//! |-----------------|--------|------------------------------------------------------------------|
//! | `entries`       | varint | number of entries; at most one for each byte of the content, and in an index as many as have room for their handles |
//! | `widths`        | 1      | bytes of the fields below: bits 0 to 2 of `end` (0 to 4), bits 3 and 4 of `suffix_more`, bits 5 to 7 of `sequence_more` |
//! | `kind`          | 1      | that of all entries, or 0xff: each has its own                   |
//! | `entry_bytes`   | varint | what ends are counted from; see below                            |
//! | `suffix_bytes`  | varint | the least length of a suffix                                     |
//! | `sequence`      | varint | the least sequence number, at most 56 bits                       |
//! | `prefix_bytes`  | varint | length of `prefix`                                               |
//! | `prefix`        |        | what all user keys begin with                                    |
//! | `end`           | 0 to 4 | for each entry: it ends `(number + 1) * entry_bytes + end` bytes behind the start of the first, which has number 0 |
//! | `suffix_more`   | 0 to 3 | by how much the suffix is longer than `suffix_bytes`              |
//! | `kind`          | 0 or 1 | [`Kind`](sievedb_format::Kind), if entries have their own; 0 with sequence number 0: behind all versions, in an index only |
//! | `sequence_more` | 0 to 7 | by how much the sequence number is larger than `sequence`        |
//! | `suffix`        |        | the rest of the user key                                         |
//! | `value`         |        | the value, or the handle; up to the end of the entry             |
//!
//! `end` repeats for each entry; then the last five do, in ascending order of the internal keys,
//! without gaps and up to the end of the content. All numbers are little-endian, and none is wider
//! than the block needs: where lengths, kind and sequence numbers are all alike, an entry is its
//! suffix and its value.
//!
//! Every entry can be read by its number and stands alone, so that a search is free to take any, a
//! step backward is as short as one forward, and a lookup reads one. The price is paid by keys that
//! have more in common with their neighbours than with the block; where it matters, compression
//! takes most of that.
//!
//! How content is compressed and protected in the file: [`stored`].

mod builder;
mod content;
mod cursor;
mod entry;
mod layout;
mod reader;
mod residence;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod search;
pub mod stored;
#[cfg(test)]
mod tests;
pub(crate) mod zstd;
mod zstd_frame;

pub(crate) use builder::BlockBuilder;
pub(crate) use content::BlockRole;
pub(crate) use cursor::BlockCursor;
pub(crate) use entry::Entry;
pub use reader::ValueRef;
pub(crate) use reader::{Block, BlockInner, HeldBlock};

use content::Content;

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

/// The first 8 bytes as a number that orders as they do; zeros where there are fewer.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        // From 4 to 7 bytes: what the two halves both hold is the same.
        let last = u64::from(u32::from_be_bytes(*last)) << (u64::BITS - 8 * bytes.len() as u32);
        return u64::from(u32::from_be_bytes(*first)) << 32 | last;
    }
    bytes.iter().zip([56, 48, 40]).map(|(byte, shift)| u64::from(*byte) << shift).sum()
}
