//! A list of range tombstones.

use super::{RangeTombstone, RangeTombstoneSource, cmp_ends, ends_above, fragments::Fragments};
use crate::{
    Annotation, Corruption, Decoder, Encode, SequenceNumber, annotation::printable,
    packed_keys::head,
};

/// Minimum bytes of an encoded range tombstone: two lengths, a sequence number.
const ENCODED_BYTES_MIN: usize = 3;
/// Number of range tombstones in a block.
const BLOCK_LEN: usize = 64;

/// A sorted list of range tombstones, which may overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    sorted: Vec<RangeTombstone>,
    /// One for each [`BLOCK_LEN`] elements of `sorted`. They bound searches.
    blocks: Vec<Block>,
    /// The fragments, for readers that see every range tombstone.
    fragments: Fragments,
    widest: Option<HeadRange>,
    /// The smallest and the largest sequence number; 0 without range tombstones.
    oldest: SequenceNumber,
    newest: SequenceNumber,
}

/// The indexes of the largest ends of a block of range tombstones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    /// In this block.
    longest: usize,
    /// In this block and those before.
    longest_so_far: usize,
}

/// A range of user keys whose versions below `sequence` are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cover<'a> {
    /// First deleted user key.
    pub start: &'a [u8],
    /// First user key after the range; empty for no upper bound.
    pub end: &'a [u8],
    /// The largest sequence number that is valid for the whole range.
    pub sequence: SequenceNumber,
}

/// The heads of a range tombstone's bounds, which are compared as integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadRange {
    start: u64,
    /// `u64::MAX` if there is no upper bound.
    end: u64,
    sequence: SequenceNumber,
}

impl HeadRange {
    fn new(RangeTombstone { start, end, sequence }: &RangeTombstone) -> Self {
        let end = if end.is_empty() { u64::MAX } else { head(end) };
        Self { start: head(start), end, sequence: *sequence }
    }

    /// Returns `true` if the range covers every key with this [head](crate::packed_keys::head).
    /// Returns `false` for the heads of the bounds, although the range may cover such keys.
    #[inline]
    #[must_use]
    pub fn covers_head(&self, key_head: u64) -> bool {
        self.start < key_head && key_head < self.end
    }

    /// Returns the sequence number of the range tombstone.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// Returns the approximate number of heads that the range covers.
    #[must_use]
    pub fn width(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

impl RangeTombstones {
    /// Sorts `tombstones` and removes duplicates.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if one is empty, too long, or has an invalid sequence number.
    pub fn new(mut tombstones: Vec<RangeTombstone>) -> Result<Self, Corruption> {
        tombstones.iter().try_for_each(RangeTombstone::check)?;
        // A stable sort is fast for concatenated sorted lists.
        tombstones.sort();
        tombstones.dedup();
        let longer = |a: usize, b: usize| {
            if cmp_ends(&tombstones[a].end, &tombstones[b].end).is_lt() { b } else { a }
        };
        let mut blocks: Vec<Block> = Vec::with_capacity(tombstones.len().div_ceil(BLOCK_LEN));
        for start in (0..tombstones.len()).step_by(BLOCK_LEN) {
            let end = tombstones.len().min(start + BLOCK_LEN);
            let longest = (start + 1..end).fold(start, longer);
            let before = blocks.last().map_or(longest, |block| block.longest_so_far);
            blocks.push(Block { longest, longest_so_far: longer(before, longest) });
        }
        let fragments = Fragments::new(&tombstones);
        let sequences = || tombstones.iter().map(|one| one.sequence);
        let (oldest, newest) = (sequences().min().unwrap_or(0), sequences().max().unwrap_or(0));
        let widest = tombstones.iter().map(HeadRange::new).max_by_key(HeadRange::width);
        Ok(Self { sorted: tombstones, blocks, fragments, widest, oldest, newest })
    }

    /// Decodes the encoded form.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are truncated or a field violates the table above.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let mut decoder = Decoder::new(bytes);
        let count = decoder.varint_usize("count of range tombstones")?;
        if count > decoder.rest().len() / ENCODED_BYTES_MIN {
            let what = "count of range tombstones";
            return Err(Corruption::OutOfRange { what, value: count as u64 });
        }
        let mut tombstones: Vec<RangeTombstone> = Vec::with_capacity(count);
        for _ in 0..count {
            let tombstone = RangeTombstone {
                start: decoder.prefixed("start of a range tombstone")?.into(),
                end: decoder.prefixed("end of a range tombstone")?.into(),
                sequence: decoder.varint("sequence number of a range tombstone")?,
            };
            if tombstones.last().is_some_and(|last| *last >= tombstone) {
                return Err(Corruption::Order { what: "list of range tombstones" });
            }
            tombstones.push(tombstone);
        }
        decoder.finish("list of range tombstones")?;
        Self::new(tombstones)
    }

    /// Appends the encoded form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.sorted.len() as u64);
        for tombstone in &self.sorted {
            out.put_prefixed(&tombstone.start);
            out.put_prefixed(&tombstone.end);
            out.put_varint(tombstone.sequence);
        }
    }

    /// Iterates over the range tombstones in the order of the encoded form.
    pub fn iter(&self) -> std::slice::Iter<'_, RangeTombstone> {
        self.sorted.iter()
    }

    /// Returns the number of range tombstones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns the smallest `start` and the largest `end`; `None` if there are no range tombstones.
    #[must_use]
    pub fn bounds(&self) -> Option<(&[u8], &[u8])> {
        let (first, last) = self.sorted.first().zip(self.blocks.last())?;
        Some((&first.start, &self.sorted[last.longest_so_far].end))
    }

    /// Returns the largest sequence number; 0 without range tombstones.
    #[must_use]
    pub fn newest(&self) -> SequenceNumber {
        self.newest
    }

    /// Returns a range around `user_key` whose keys are deleted for a reader at `at`; `None` if
    /// `user_key` is not deleted.
    ///
    /// The range may extend over several range tombstones without a gap. Its sequence number is the
    /// smallest of theirs. The largest one that covers `user_key` may be larger.
    #[must_use]
    pub fn cover(&self, user_key: &[u8], at: SequenceNumber) -> Option<Cover<'_>> {
        match self.fragments.find(user_key)? {
            (_, newest) if newest > at => {
                let one = self.older_cover(user_key, at)?;
                Some(Cover { start: &one.start, end: &one.end, sequence: one.sequence })
            }
            (fragment, _) => Some(self.fragments.around(fragment, at)),
        }
    }

    /// Returns the newest range tombstone up to `at` that covers `user_key`, for a reader older
    /// than some range tombstones.
    ///
    /// Searches back from the last range tombstone that starts at or before the key, until no
    /// earlier one reaches it. Skips blocks in which none does.
    #[cold]
    fn older_cover(&self, user_key: &[u8], at: SequenceNumber) -> Option<&RangeTombstone> {
        if at < self.oldest {
            return None;
        }
        let starts_before = self.sorted.partition_point(|one| *one.start <= *user_key);
        let reaches = |index: usize| ends_above(&self.sorted[index].end, user_key);
        let blocks = self.blocks[..starts_before.div_ceil(BLOCK_LEN)].iter().enumerate().rev();
        blocks
            .take_while(|(_, block)| reaches(block.longest_so_far))
            .filter(|(_, block)| reaches(block.longest))
            .flat_map(|(block, _)| {
                let start = block * BLOCK_LEN;
                &self.sorted[start..starts_before.min(start + BLOCK_LEN)]
            })
            .filter(|one| one.sequence <= at && one.covers(user_key))
            .max_by_key(|one| one.sequence)
    }

    /// Returns the memory of the list, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let keys: usize = self.iter().map(|one| one.start.len() + one.end.len()).sum();
        self.sorted.capacity() * size_of::<RangeTombstone>()
            + self.blocks.capacity() * size_of::<Block>()
            + self.fragments.memory_bytes()
            + keys
    }

    /// Returns the range tombstone that covers the most heads; `None` if there is none.
    #[must_use]
    pub fn widest(&self) -> Option<HeadRange> {
        self.widest
    }

    /// Adds the fields of the encoded form to `annotation`, relative to its first byte.
    pub fn describe(&self, annotation: &mut Annotation) {
        let mut bytes = Vec::new();
        bytes.put_varint(self.len() as u64);
        annotation.field(0..bytes.len() as u64, "count", self.len());
        for RangeTombstone { start, end, sequence } in &self.sorted {
            let from = bytes.len() as u64;
            bytes.put_prefixed(start);
            bytes.put_prefixed(end);
            bytes.put_varint(*sequence);
            let meaning = format!("{}..{} @{sequence}", printable(start), printable(end));
            annotation.field(from..bytes.len() as u64, "range_tombstone", meaning);
        }
    }
}

impl<'a> IntoIterator for &'a RangeTombstones {
    type Item = &'a RangeTombstone;
    type IntoIter = std::slice::Iter<'a, RangeTombstone>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl RangeTombstoneSource for RangeTombstones {
    fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Takes one binary search, unless `at` is older than a range tombstone that covers the key.
    fn newest_cover(&self, user_key: &[u8], at: SequenceNumber) -> Option<SequenceNumber> {
        match self.fragments.find(user_key)? {
            (_, newest) if newest > at => self.older_cover(user_key, at).map(|one| one.sequence),
            (_, newest) => Some(newest),
        }
    }
}
