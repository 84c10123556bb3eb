//! Search accelerators of a block in memory: key tags and heads, computed when the block is read.
//!
//! The keys of a block lie between their values, so each comparison with a key is a cache miss.
//! Tags and heads keep parts of all keys in a contiguous array.
//!
//! * A *tag* is a one-byte hash of each user key. A lookup compares eight tags at a time, and then
//!   only entries with a matching tag; an absent key matches one entry in 256. Meta's F14 and
//!   Abseil's Swiss tables probe their buckets in the same way.
//! * A *head* is the first 8 bytes of every n-th user key after the common prefix, as a big-endian
//!   number. A binary search over heads leaves at most 2 n entries. Source: Bohannon, McIlroy and
//!   Rastogi, "Main-Memory Index Structures with Fixed-Size Partial Keys", SIGMOD 2001.
//! * Every eighth head is repeated in a tier above, recursively: a search reads one cache line of
//!   each tier. Source: Rao and Ross, "Making B+-Trees Cache Conscious in Main Memory", SIGMOD
//!   2000.
//!
//! Tags and heads are not stored: wrong tags would hide keys, and checking both costs as much as
//! computing them.

use std::ops::Range;

use super::BlockRole;

/// Maximum length of a prefix that is copied into [`Search`]. Every cached block has space for one.
const PREFIX_BYTES_MAX: usize = 21;

/// `prefix_bytes` of a block with a longer prefix.
const PREFIX_IS_LONG: u8 = u8::MAX;

/// Entries per head in a data block: 2 bytes of memory per entry, and a seek compares two or three
/// adjacent entries. Lookups use tags.
const DATA_HEAD_INTERVAL: usize = 4;

/// Blocks with more entries have no tags, because the search over heads is shorter.
const TAGGED_ENTRIES_MAX: usize = 512;

/// Heads per head of the tier above.
const TIER_RATIO: usize = 8;

/// Maximum length of the top tier, which is searched linearly.
const TOP_TIER_HEADS_MAX: usize = 16;

/// Tags in a word.
const TAGS: usize = size_of::<u64>();

/// 0x01 in each byte.
const ONES: u64 = u64::MAX / 0xff;

/// Returns the number of entries per head.
const fn head_interval(role: BlockRole) -> usize {
    match role {
        BlockRole::Data => DATA_HEAD_INTERVAL,
        BlockRole::Index => 1,
    }
}

/// Tags and heads of a block.
#[derive(Debug)]
pub(super) struct Search {
    /// Tiers of heads from the top down, then tags, in little-endian order within a word.
    words: Box<[u64]>,
    heads: u32,
    /// Index of the first word of tags.
    tags_at: u32,
    /// Number of tiers above the heads.
    tiers: u8,
    role: BlockRole,
    /// Length of the prefix, or [`PREFIX_IS_LONG`].
    prefix_bytes: u8,
    prefix: [u8; PREFIX_BYTES_MAX],
}

impl Search {
    /// Returns a builder for a block of `entries` entries with the common prefix `prefix`.
    pub(super) fn builder(prefix: &[u8], entries: usize, role: BlockRole) -> SearchBuilder {
        let is_tagged = role == BlockRole::Data && entries <= TAGGED_ENTRIES_MAX;
        let tagged = if is_tagged { entries } else { 0 };
        let heads = entries.div_ceil(head_interval(role));
        let (mut tiers, mut tags_at, mut top) = (0, heads, heads);
        while top > TOP_TIER_HEADS_MAX {
            top /= TIER_RATIO;
            tags_at += top;
            tiers += 1;
        }
        let mut search = Self {
            words: vec![0; tags_at + tagged.div_ceil(TAGS)].into(),
            // A block is below 4 GiB, so it has fewer than 2^32 entries.
            heads: heads as u32,
            tags_at: tags_at as u32,
            tiers,
            role,
            prefix_bytes: PREFIX_IS_LONG,
            prefix: [0; _],
        };
        if let Some(copy) = search.prefix.get_mut(..prefix.len()) {
            copy.copy_from_slice(prefix);
            search.prefix_bytes = prefix.len() as u8;
        }
        SearchBuilder { search, pushed: 0 }
    }

    #[inline]
    pub(super) fn role(&self) -> BlockRole {
        self.role
    }

    /// Returns the common prefix, or `None` if it is longer than [`PREFIX_BYTES_MAX`].
    #[inline]
    pub(super) fn prefix(&self) -> Option<&[u8]> {
        self.prefix.get(..self.prefix_bytes.into())
    }

    /// Returns `true` if the entries have tags.
    #[inline]
    pub(super) fn has_tags(&self) -> bool {
        self.words.len() > self.tags_at as usize
    }

    /// Returns the indexes of entries with the tag of `suffix`, ascending. Includes all versions of
    /// the key, false positives, and indexes beyond the last entry.
    #[inline]
    pub(super) fn tagged(&self, suffix: &[u8]) -> impl Iterator<Item = usize> {
        let wanted = ONES * u64::from(tag(suffix, word_of(suffix)));
        let tags = &self.words[self.tags_at as usize..];
        tags.iter().zip((0..).step_by(TAGS)).flat_map(move |(word, first)| {
            // Sets the top bit of each zero byte. A borrow also sets it in a byte of 1 above one.
            let differing = word ^ wanted;
            let mut zeros = differing.wrapping_sub(ONES) & !differing & (ONES << 7);
            std::iter::from_fn(move || {
                let lowest = (zeros != 0).then(|| zeros.trailing_zeros() as usize / 8)?;
                zeros &= zeros - 1;
                Some(first + lowest)
            })
        })
    }

    /// Returns the range of entries that a search for `suffix` has to compare. Entries before the
    /// range are smaller, entries after it are larger.
    #[inline]
    pub(super) fn narrow(&self, suffix: &[u8], entries: usize) -> Range<usize> {
        let word = word_of(suffix);
        let below = self.heads_below(word);
        let behind = &self.heads()[below..];
        // Usually no head is equal. A second search over all tiers would double the cache misses.
        let equal = match behind.first() {
            Some(first) if *first == word => behind.partition_point(|head| *head == word),
            _ => 0,
        };
        let interval = head_interval(self.role);
        debug_assert!(below + equal <= self.heads as usize);
        let start = below.checked_sub(1).map_or(0, |last| last * interval + 1);
        start..((below + equal) * interval).min(entries)
    }

    /// Returns the index of the first head of the lowest tier.
    fn heads_at(&self) -> usize {
        (self.tags_at - self.heads) as usize
    }

    fn heads(&self) -> &[u64] {
        &self.words[self.heads_at()..self.tags_at as usize]
    }

    /// Returns the number of heads smaller than `word`.
    #[inline]
    fn heads_below(&self, word: u64) -> usize {
        let (mut tier_at, mut below) = (0, 0);
        for tier in (0..=self.tiers).rev() {
            let heads = self.heads as usize >> (TIER_RATIO.ilog2() * u32::from(tier));
            let compared = if tier == self.tiers { heads } else { TIER_RATIO.min(heads - below) };
            let window = &self.words[tier_at + below..][..compared];
            // Branch-free: the branch would be mispredicted.
            below += window.iter().filter(|head| **head < word).count();
            tier_at += heads;
            if tier > 0 {
                below *= TIER_RATIO;
            }
        }
        below
    }

    /// Returns the address of the array, for a prefetch.
    pub(super) fn address(&self) -> usize {
        self.words.as_ptr().addr()
    }

    /// Returns the memory besides the struct itself, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// Builds [`Search`] from the keys of a block in order.
#[derive(Debug)]
pub(super) struct SearchBuilder {
    search: Search,
    pushed: usize,
}

impl SearchBuilder {
    /// Adds the next entry. `suffix` is the user key without the prefix, `word` its [`word_of`].
    #[inline]
    pub(super) fn push(&mut self, suffix: &[u8], word: u64) {
        let Self { search, pushed: index } = self;
        debug_assert_eq!(word, word_of(suffix));
        let interval = head_interval(search.role);
        if index.is_multiple_of(interval) {
            let heads_at = search.heads_at();
            debug_assert!(
                *index / interval < search.heads as usize,
                "more entries than the builder was created for"
            );
            search.words[heads_at + *index / interval] = word;
        }
        if search.has_tags() {
            let tags = &mut search.words[search.tags_at as usize + *index / TAGS];
            *tags |= u64::from(tag(suffix, word)) << (*index % TAGS * 8);
        }
        *index += 1;
    }

    /// Fills the upper tiers.
    pub(super) fn finish(self) -> Search {
        let mut search = self.search;
        debug_assert_eq!(self.pushed.div_ceil(head_interval(search.role)), search.heads as usize);
        let (mut heads, mut heads_at) = (search.heads as usize, search.heads_at());
        for _ in 0..search.tiers {
            // The last head of each group of eight: if it is below a word, so is the group.
            let above = heads / TIER_RATIO;
            let above_at = heads_at - above;
            for index in 0..above {
                let last = heads_at + (index + 1) * TIER_RATIO - 1;
                search.words[above_at + index] = search.words[last];
            }
            (heads, heads_at) = (above, above_at);
        }
        debug_assert_eq!(heads_at, 0, "tiers fill the array");
        search
    }
}

/// Returns the first 8 bytes as a big-endian number, zero-padded.
#[inline]
pub(super) fn word_of(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        // 4 to 7 bytes: two overlapping loads of 4.
        let last = u64::from(u32::from_be_bytes(*last)) << (u64::BITS - 8 * bytes.len() as u32);
        return u64::from(u32::from_be_bytes(*first)) << 32 | last;
    }
    bytes.iter().zip([56, 48, 40]).map(|(byte, shift)| u64::from(*byte) << shift).sum()
}

/// Returns the tag of a user key without its prefix. `word` is the result of [`word_of`] for it.
///
/// Collisions chosen by an attacker cost speed only: if many entries match, a lookup searches the
/// heads instead.
#[inline]
fn tag(suffix: &[u8], word: u64) -> u8 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(ODD);
        mixed ^ mixed >> 32
    };
    let mut hash = mix(suffix.len() as u64, word);
    if suffix.len() > size_of::<u64>() {
        let (words, _) = suffix[size_of::<u64>()..].as_chunks();
        hash = words.iter().fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        // The last 8 bytes, which may overlap the words before.
        hash = suffix.last_chunk().map_or(hash, |last| mix(hash, u64::from_le_bytes(*last)));
    }
    (hash.wrapping_mul(ODD) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search<'k>(suffixes: impl ExactSizeIterator<Item = &'k [u8]>, role: BlockRole) -> Search {
        let mut builder = Search::builder(b"", suffixes.len(), role);
        suffixes.for_each(|suffix| builder.push(suffix, word_of(suffix)));
        builder.finish()
    }

    #[test]
    fn narrow_excludes_only_smaller_and_larger_entries() {
        let keys: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"a", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"b", b"\xff"];
        let targets = keys.into_iter().chain([&b"ab"[..], b"abcdefghj", b"c", b"\xff\xff"]);
        for role in [BlockRole::Data, BlockRole::Index] {
            for some in (1..keys.len()).flat_map(|length| keys.windows(length)) {
                let search = search(some.iter().copied(), role);
                for target in targets.clone() {
                    let Range { start, end } = search.narrow(target, some.len());
                    assert!(start <= end && end <= some.len());
                    assert!(some[..start].iter().all(|key| *key < target), "{some:?} {target:?}");
                    assert!(some[end..].iter().all(|key| *key > target), "{some:?} {target:?}");
                }
            }
        }
    }

    #[test]
    fn distinct_heads_leave_few_comparisons() {
        let keys: Vec<_> = (0..100).map(|n| format!("{n:08}").into_bytes()).collect();
        for (role, most) in [(BlockRole::Index, 1), (BlockRole::Data, 2 * DATA_HEAD_INTERVAL - 1)] {
            let search = search(keys.iter().map(Vec::as_slice), role);
            for (index, key) in keys.iter().enumerate() {
                let range = search.narrow(key, keys.len());
                assert!(range.len() <= most && range.contains(&index), "{index}: {range:?}");
            }
        }
    }

    #[test]
    fn tiers_agree_with_a_binary_search_over_heads() {
        for (entries, alike) in [0, 1, 15, 16, 17, 127, 128, 129, 136, 1100, 8200]
            .into_iter()
            .flat_map(|entries| [(entries, 1), (entries, 7), (entries, 40)])
        {
            // Groups of `alike` keys share their first 8 bytes.
            let key = |n: u64| [2 * (n / alike), n].map(u64::to_be_bytes).concat();
            let keys: Vec<_> = (0..entries).map(key).collect();
            let search = search(keys.iter().map(Vec::as_slice), BlockRole::Index);
            assert_eq!(search.heads().len() as u64, entries);
            for word in 0..2 * entries.div_ceil(alike) + 1 {
                let want = search.heads().partition_point(|head| *head < word);
                assert_eq!(search.heads_below(word), want, "{word} of {entries}, {alike} alike");
            }
        }
    }

    #[test]
    fn tags_match_every_entry_with_few_false_positives() {
        let keys: Vec<_> = (0..TAGGED_ENTRIES_MAX).map(|n| format!("{n}").into_bytes()).collect();
        let search = search(keys.iter().map(Vec::as_slice), BlockRole::Data);
        assert!(search.has_tags());
        let mut false_positives = 0;
        for (index, key) in keys.iter().enumerate() {
            let found: Vec<_> = search.tagged(key).collect();
            assert!(found.is_sorted() && found.contains(&index), "{index}: {found:?}");
            false_positives += found.len() - 1;
        }
        // Two per lookup are expected, and borrows add few.
        assert!(false_positives < 3 * TAGGED_ENTRIES_MAX, "{false_positives}");
    }

    #[test]
    fn an_empty_block_matches_no_entry() {
        for role in [BlockRole::Data, BlockRole::Index] {
            let search = search(std::iter::empty(), role);
            assert_eq!(search.narrow(b"k", 0), 0..0);
            assert_eq!(search.tagged(b"k").next(), None);
        }
    }
}
