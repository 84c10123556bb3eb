//! What a search looks at before it looks at entries: made of a block's keys when it is read.
//!
//! The keys of a block lie far apart, between their values: each one that a search compares is not
//! in the CPU's cache. Here parts of all of them lie side by side.
//!
//! * A *key tag* is a hash of one byte for each entry: a lookup compares the tags, eight at a time,
//!   and then one entry that has the right one; of other keys' entries one in 256 has it. So do the
//!   buckets of Meta's F14 and of the Swiss tables of Abseil.
//! * A *head* is the first 8 bytes of every n-th user key behind the common prefix, as a number
//!   that orders as they do: a binary search over heads leaves n or 2 n entries. Bohannon, McIlroy
//!   and Rastogi, "Main-Memory Index Structures with Fixed-Size Partial Keys", SIGMOD 2001.
//!
//! * Of many heads each eighth is repeated in front, and each eighth of those again: a search reads
//!   one line of each tier, where a binary search reads one for each of its first steps. Rao and
//!   Ross, "Making B+-Trees Cache Conscious in Main Memory", SIGMOD 2000.
//!
//! None of them is stored. A reader that trusted stored tags could miss keys, and to check them is
//! to make them.

use std::ops::Range;

use super::{BlockRole, word_of};

/// Prefixes up to this length lie beside the rest. Each block in the cache has room for one.
const PREFIX_BYTES_MAX: usize = 21;

/// Stands for the length of a longer prefix.
const PREFIX_IS_LONG: u8 = u8::MAX;

/// Entries of a data block for each head: 2 bytes of memory for each entry, and a seek compares two
/// or three entries that lie side by side. A lookup asks tags.
const DATA_HEAD_INTERVAL: usize = 4;

/// Blocks with more entries have no tags: the search by heads is shorter.
const TAGGED_ENTRIES_MAX: usize = 512;

/// Heads for which there is one in the tier above.
const TIER_RATIO: usize = 8;

/// So many heads are looked at one by one: there is no tier above.
const TOP_TIER_HEADS_MAX: usize = 16;

/// Tags in a word.
const TAGS: usize = size_of::<u64>();

/// A one in each byte.
const ONES: u64 = u64::MAX / 0xff;

/// Returns how many entries there are for each head.
const fn head_interval(role: BlockRole) -> usize {
    match role {
        BlockRole::Data => DATA_HEAD_INTERVAL,
        BlockRole::Index => 1,
    }
}

/// Parts of a block's keys.
#[derive(Debug)]
pub(super) struct Search {
    /// Tiers of heads, the one of all heads last, then tags from the lowest byte of a word to the
    /// highest.
    words: Box<[u64]>,
    heads: u32,
    /// Where the tags start.
    tags_at: u32,
    /// Tiers above the heads.
    tiers: u8,
    role: BlockRole,
    /// Length of the prefix, or [`PREFIX_IS_LONG`].
    prefix_bytes: u8,
    prefix: [u8; PREFIX_BYTES_MAX],
}

impl Search {
    /// For a block of so many entries whose user keys all begin with `prefix`.
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
            heads: heads as u32,     // At most as many as entries.
            tags_at: tags_at as u32, // Of which each has more than two bytes.
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

    /// Returns what the entries are.
    pub(super) fn role(&self) -> BlockRole {
        self.role
    }

    /// The prefix, unless it is long.
    #[inline]
    pub(super) fn prefix(&self) -> Option<&[u8]> {
        self.prefix.get(..self.prefix_bytes.into())
    }

    /// Whether [`tagged`](Self::tagged) finds all entries.
    #[inline]
    pub(super) fn has_tags(&self) -> bool {
        self.words.len() > self.tags_at as usize
    }

    /// The entries with the tag of `suffix`, ascending: all of its versions, some others, and
    /// numbers behind the last entry.
    #[inline]
    pub(super) fn tagged(&self, suffix: &[u8]) -> impl Iterator<Item = usize> {
        let wanted = ONES * u64::from(tag(suffix, word_of(suffix)));
        let tags = &self.words[self.tags_at as usize..];
        tags.iter().zip((0..).step_by(TAGS)).flat_map(move |(word, first)| {
            // The top bit of each byte that is 0; by a carry, also of bytes that are 1 above those.
            let differing = word ^ wanted;
            let mut zeros = differing.wrapping_sub(ONES) & !differing & (ONES << 7);
            std::iter::from_fn(move || {
                let lowest = (zeros != 0).then(|| zeros.trailing_zeros() as usize / 8)?;
                zeros &= zeros - 1;
                Some(first + lowest)
            })
        })
    }

    /// Which of `entries` entries have to be compared with a user key that has this `suffix`: those
    /// before the range are before it, those behind the range are behind it.
    #[inline]
    pub(super) fn narrow(&self, suffix: &[u8], entries: usize) -> Range<usize> {
        let word = word_of(suffix);
        let below = self.heads_below(word);
        let behind = &self.heads()[below..];
        // Seldom any: another binary search would wait for as many lines as the first.
        let equal = match behind.first() {
            Some(first) if *first == word => behind.partition_point(|head| *head == word),
            _ => 0,
        };
        let interval = head_interval(self.role);
        let start = below.checked_sub(1).map_or(0, |last| last * interval + 1);
        start..((below + equal) * interval).min(entries)
    }

    /// Where the heads start.
    fn heads_at(&self) -> usize {
        (self.tags_at - self.heads) as usize
    }

    fn heads(&self) -> &[u64] {
        &self.words[self.heads_at()..self.tags_at as usize]
    }

    /// Number of heads below `word`.
    #[inline]
    fn heads_below(&self, word: u64) -> usize {
        let (mut tier_at, mut below) = (0, 0);
        for tier in (0..=self.tiers).rev() {
            let heads = self.heads as usize >> (TIER_RATIO.ilog2() * u32::from(tier));
            let looked_at = if tier == self.tiers { heads } else { TIER_RATIO.min(heads - below) };
            let some = &self.words[tier_at + below..][..looked_at];
            // Without a branch that nobody could foresee.
            below += some.iter().filter(|head| **head < word).count();
            tier_at += heads;
            if tier > 0 {
                below *= TIER_RATIO;
            }
        }
        below
    }

    /// Where the words lie.
    pub(super) fn address(&self) -> usize {
        self.words.as_ptr().addr()
    }

    /// Bytes of memory behind the pointer.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// Takes the keys of a block one after the other.
#[derive(Debug)]
pub(super) struct SearchBuilder {
    search: Search,
    pushed: usize,
}

impl SearchBuilder {
    /// Takes what follows the prefix in the user key of the next entry, and its [`word_of`].
    #[inline]
    pub(super) fn push(&mut self, suffix: &[u8], word: u64) {
        let Self { search, pushed: index } = self;
        let interval = head_interval(search.role);
        if index.is_multiple_of(interval) {
            let heads_at = search.heads_at();
            search.words[heads_at + *index / interval] = word;
        }
        if search.has_tags() {
            let tags = &mut search.words[search.tags_at as usize + *index / TAGS];
            *tags |= u64::from(tag(suffix, word)) << (*index % TAGS * 8);
        }
        *index += 1;
    }

    /// What was made of the keys.
    pub(super) fn finish(self) -> Search {
        let mut search = self.search;
        let (mut heads, mut heads_at) = (search.heads as usize, search.heads_at());
        for _ in 0..search.tiers {
            // The last of each eight: so many eights as are below a word are below it as a whole.
            let above = heads / TIER_RATIO;
            let above_at = heads_at - above;
            for index in 0..above {
                let last = heads_at + (index + 1) * TIER_RATIO - 1;
                search.words[above_at + index] = search.words[last];
            }
            (heads, heads_at) = (above, above_at);
        }
        search
    }
}

/// A hash of a user key without its prefix, whose first bytes are `word`. Need not withstand
/// attacks: where many entries have the tag of a key the search by heads finds it.
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
        // The last ones, of which the words before may have some already.
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
    fn narrow_leaves_out_only_what_is_decided() {
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
    fn keys_that_differ_early_need_few_comparisons() {
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
    fn tiers_count_as_the_heads_do() {
        for (entries, alike) in [0, 1, 15, 16, 17, 127, 128, 129, 136, 1100, 8200]
            .into_iter()
            .flat_map(|entries| [(entries, 1), (entries, 7), (entries, 40)])
        {
            // Some have their first 8 bytes in common.
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
    fn tags_find_every_entry_and_few_others() {
        let keys: Vec<_> = (0..TAGGED_ENTRIES_MAX).map(|n| format!("{n}").into_bytes()).collect();
        let search = search(keys.iter().map(Vec::as_slice), BlockRole::Data);
        assert!(search.has_tags());
        let mut others = 0;
        for (index, key) in keys.iter().enumerate() {
            let found: Vec<_> = search.tagged(key).collect();
            assert!(found.is_sorted() && found.contains(&index), "{index}: {found:?}");
            others += found.len() - 1;
        }
        // Two of 512 are expected, and carries make few more.
        assert!(others < 3 * TAGGED_ENTRIES_MAX, "{others}");
    }

    #[test]
    fn nothing_is_found_without_entries() {
        for role in [BlockRole::Data, BlockRole::Index] {
            let search = search(std::iter::empty(), role);
            assert_eq!(search.narrow(b"k", 0), 0..0);
            assert_eq!(search.tagged(b"k").next(), None);
        }
    }
}
