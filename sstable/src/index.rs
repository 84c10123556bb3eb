//! The index of a table: maps a key to the only data block that may hold it.
//!
//! The index has an entry for each data block: its separator and its handle (see
//! [`crate::block::stored`]). A separator is at or after every key of its block, and before every
//! key of the next block. Let `b` be the block of the first separator at or after a target. Then
//! `b` holds the first key at or after the target, unless the target is in the gap after `b`.
//!
//! | the next block starts with       | separator of a block                                    |
//! |----------------------------------|---------------------------------------------------------|
//! | a version of the same user key   | the last key of the block, with sequence number and kind |
//! | another user key, or no block    | a short user key `s`, kind 0 and sequence number 0, where last user key <= `s` < next user key |
//!
//! Kind 0 with sequence number 0 is [`Trailer::OLDEST`], which no write has. It sorts after every
//! version of its user key, as required if `s` is the last user key itself. The gap of the second
//! case holds no version of the next block's user keys, so a lookup never needs a second block.
//!
//! # Levels
//!
//! Index entries are grouped into partitions. A partition is a block, stored after the last data
//! block that it leads to. The top index maps the separator of each partition's last entry to the
//! partition. A table with one partition has one level: the partition is the top index. The
//! properties record the number of levels, 1 or 2.
//!
//! Index blocks are not compressed, because lookups read them most often.

use std::io;

use sievedb_format::{InternalKey, Trailer};

use crate::block::{BlockBuilder, BlockHandle, common_prefix};

/// Encodes the partitions and the top index.
#[derive(Debug)]
pub(crate) struct IndexBuilder {
    partition_bytes: usize,
    partition: BlockBuilder,
    top: BlockBuilder,
    partitions: u64,
    /// Separator of the last entry of the partition.
    separator: Separator,
    /// Buffer of an encoded handle.
    handle: Vec<u8>,
}

/// A key at or after all keys of a block and before all keys of the next.
#[derive(Debug)]
struct Separator {
    user_key: Vec<u8>,
    trailer: Trailer,
}

impl Separator {
    fn key(&self) -> InternalKey<'_> {
        InternalKey::new(&self.user_key, self.trailer)
    }
}

impl IndexBuilder {
    /// Returns a builder of partitions of about `partition_bytes` bytes.
    pub(crate) fn new(partition_bytes: usize) -> Self {
        Self {
            partition_bytes,
            partition: BlockBuilder::default(),
            top: BlockBuilder::default(),
            partitions: 0,
            separator: Separator { user_key: Vec::new(), trailer: Trailer::OLDEST },
            handle: Vec::new(),
        }
    }

    /// Adds the data block at `handle`, which ends with `last`. The next block starts with `next`.
    ///
    /// If the partition is full, passes it to `write` first.
    ///
    /// # Errors
    ///
    /// Those of `write`, and [`io::ErrorKind::FileTooLarge`] for a top index beyond 4 GiB.
    pub(crate) fn add(
        &mut self,
        last: InternalKey<'_>,
        next: Option<InternalKey<'_>>,
        handle: BlockHandle,
        write: impl FnOnce(&[u8]) -> io::Result<BlockHandle>,
    ) -> io::Result<()> {
        self.handle.clear();
        handle.encode(&mut self.handle);
        let separator = separate(last, next);
        debug_assert!(last <= separator.key());
        debug_assert!(next.is_none_or(|next| separator.key() < next));
        if !self.partition.add_within(separator.key(), &self.handle, self.partition_bytes) {
            self.end_partition(write)?;
            self.handle.clear();
            handle.encode(&mut self.handle);
            self.partition.add(separator.key(), &self.handle);
        }
        self.separator = separator;
        Ok(())
    }

    fn end_partition(
        &mut self,
        write: impl FnOnce(&[u8]) -> io::Result<BlockHandle>,
    ) -> io::Result<()> {
        debug_assert!(!self.partition.is_empty());
        debug_assert_eq!(self.top.is_empty(), self.partitions == 0);
        self.handle.clear();
        write(self.partition.finish())?.encode(&mut self.handle);
        let separator = self.separator.key();
        if !self.top.add_within(separator, &self.handle, u32::MAX as usize) {
            // Only with gigabytes of keys of maximum length.
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the top index exceeds 4 GiB; write smaller tables",
            ));
        }
        self.partition.reset();
        self.partitions += 1;
        Ok(())
    }

    /// Passes the last partition and the top index to `write`, and returns the handle of the
    /// latter.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    pub(crate) fn finish(
        &mut self,
        mut write: impl FnMut(&[u8]) -> io::Result<BlockHandle>,
    ) -> io::Result<BlockHandle> {
        debug_assert_eq!(self.top.is_empty(), self.partitions == 0);
        debug_assert!(self.partitions == 0 || !self.partition.is_empty());
        if self.partitions == 0 {
            return write(self.partition.finish());
        }
        self.end_partition(&mut write)?;
        write(self.top.finish())
    }

    /// Returns the number of partitions below a top index; 0 for one level.
    pub(crate) fn partitions(&self) -> u64 {
        self.partitions
    }

    /// Returns the memory of the top index, which grows with the table, in bytes.
    pub(crate) fn top_memory_bytes(&self) -> usize {
        self.top.memory_bytes()
    }

    /// Returns the memory of all buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let others = self.separator.user_key.capacity() + self.handle.capacity();
        self.top.memory_bytes() + self.partition.memory_bytes() + others
    }

    /// Estimates the bytes that [`finish`](Self::finish) would write now.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.partition.content_bytes_max() + self.top.content_bytes_max()
    }
}

/// Returns the separator between `last` and `next`.
fn separate(last: InternalKey<'_>, next: Option<InternalKey<'_>>) -> Separator {
    let mut user_key = last.user_key.to_vec();
    match next {
        Some(next) if last.user_key == next.user_key => {
            return Separator { user_key, trailer: last.trailer };
        }
        Some(next) => shorten(&mut user_key, next.user_key),
        None => {}
    }
    Separator { user_key, trailer: Trailer::OLDEST }
}

/// Replaces `key` by the shortest user key at or after it and before `next`.
fn shorten(key: &mut Vec<u8>, next: &[u8]) {
    let common = common_prefix(key, next);
    if common == key.len() {
        return; // `key` is a prefix of `next`: anything shorter is before `key`.
    }
    if next.len() > common + 1 {
        // The prefix of `next` up to the difference is shorter than `next`, so before it.
        key[common] = next[common];
        key.truncate(common + 1);
        return;
    }
    // Raises the byte at the difference if one fits between, or else a byte after it.
    let above = |at: usize| at > common || key[at] + 1 < next[at];
    let raised = (common..key.len()).find(|&at| key[at] < u8::MAX && above(at));
    if let Some(at) = raised.filter(|at| at + 1 < key.len()) {
        key[at] += 1;
        key.truncate(at + 1);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sievedb_format::Kind;

    use super::*;
    use crate::{
        block::{Block, BlockRole},
        options::DEFAULT_INDEX_PARTITION_BYTES,
        properties::partition_memory_bytes,
    };

    #[test]
    fn shorten_returns_the_shortest_key() {
        let cases: [(&[u8], &[u8], &[u8]); 12] = [
            (b"", b"a", b""),
            (b"abc", b"abcd", b"abc"),
            (b"abcdef", b"abzzzz", b"abz"),
            (b"abcdef", b"abd", b"abce"),
            (b"abcdef", b"abe", b"abd"),
            (b"abc", b"abd", b"abc"),
            (b"ab\xff", b"b", b"ac"),
            (b"a\xff\xff", b"b", b"a\xff\xff"),
            (b"a\xff\xff1", b"b", b"a\xff\xff1"),
            (b"a\xff\xff12", b"b", b"a\xff\xff2"),
            (b"\xff\xfe1", b"\xff\xff", b"\xff\xfe1"),
            (b"a\xff", b"c", b"b"),
        ];
        for (last, next, want) in cases {
            let mut key = last.to_vec();
            shorten(&mut key, next);
            assert_eq!(key, want, "{last:?} before {next:?}");
        }
    }

    #[test]
    fn a_separator_is_between_the_keys() {
        let bytes = [0, 1, 2, 0xfe, 0xff];
        let mut keys = vec![vec![]];
        for length in 0..3 {
            let longest: Vec<_> = keys.iter().filter(|key| key.len() == length).cloned().collect();
            keys.extend(
                longest.iter().flat_map(|key| bytes.map(|byte| [&key[..], &[byte]].concat())),
            );
        }
        let trailers = [9, 5].map(|sequence| Trailer::new(sequence, Kind::Put));
        let pairs = keys.iter().flat_map(|last| keys.iter().map(move |next| (last, next)));
        for (last, next) in pairs {
            let [newer, older] = trailers;
            let (last, next) = (InternalKey::new(last, newer), InternalKey::new(next, older));
            if last >= next {
                continue;
            }
            let separator = separate(last, Some(next));
            let separator = separator.key();
            assert!(last <= separator && separator < next, "{last:?} {separator:?} {next:?}");
            assert!(separator.user_key.len() <= last.user_key.len().max(next.user_key.len()));
        }
    }

    #[test]
    fn partitions_fit_the_memory_charged_for_them() {
        type Key = fn(u64) -> Vec<u8>;
        let cases: [(&str, Key); 4] = [
            ("16 hexadecimal digits", |n| format!("{:016x}", n * 12_345).into_bytes()),
            ("16 random digits", |n| format!("{:016x}", (n << 44) | (n * n)).into_bytes()),
            ("8 bytes", |n| (n * 40).to_be_bytes().to_vec()),
            ("short keys", |n| (n as u32).to_be_bytes()[1..].to_vec()),
        ];
        let lengths = [2 << 10, DEFAULT_INDEX_PARTITION_BYTES];
        let cases = cases.iter().flat_map(|case| lengths.map(|bytes| (case.0, case.1, bytes)));
        for (name, key, partition_bytes) in cases {
            let mut builder = IndexBuilder::new(partition_bytes);
            let (mut largest, mut partitions) = (0, 0);
            for n in 0..20_000_u64 {
                let (last, next) = (key(n), key(n + 1));
                let trailer = Trailer::new(n, Kind::Put);
                let [last, next] = [&last, &next].map(|key| InternalKey::new(key, trailer));
                let handle = BlockHandle { offset: n * 2500, bytes: 2400 };
                let write = |content: &[u8]| {
                    let place = BlockHandle { offset: 0, bytes: content.len() as u64 };
                    let content = Bytes::copy_from_slice(content);
                    let block = Block::decode(content, BlockRole::Index, place).unwrap();
                    largest = largest.max(block.memory_bytes());
                    partitions += 1;
                    Ok(place)
                };
                builder.add(last, Some(next), handle, write).unwrap();
            }
            assert!(partitions > 5, "{name}");
            let charged = partition_memory_bytes(partition_bytes as u64) as usize;
            assert!(largest <= charged, "{name}, {partition_bytes}: {largest}");
            assert!(largest > charged / 2, "{name}, {partition_bytes}: {largest}");
        }
    }
}
