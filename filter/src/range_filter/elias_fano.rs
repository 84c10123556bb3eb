//! A compressed sequence of sorted codes.
//!
//! The low bits of each code are stored verbatim. The upper bits select a bucket; each bucket is
//! stored as one 1-bit per code and a 0-bit. A directory counts the zeros before each 1,024 bits,
//! to find a bucket. It is not stored, but computed when the codes are read.
//!
//! No existing crate fits: sucds, ef_rs and elias-fano need `std`, trust the bytes they read, and
//! have no stable stored form.
//!
//! Source: Elias, "Efficient Storage and Retrieval by Content and Address of Static Files", Journal
//! of the ACM 21(2), 1974; Fano, "On the Number of Bits Required to Implement an Associative
//! Memory", MIT, 1971.

use core::ops::Range;

use super::shape::Shape;
use crate::arena::{FilterArena, Slice};
use crate::decode_error::DecodeError;

/// Words of 64 bits per directory entry.
const SECTION_WORDS: usize = 16;

/// Directory bits per bit of the upper parts.
pub(super) const DIRECTORY_BITS_PER_BIT: f64 =
    u32::BITS as f64 / (SECTION_WORDS * u64::BITS as usize) as f64;

/// An ascending sequence of distinct codes.
#[derive(Debug, Clone)]
pub(super) struct EliasFano {
    /// Low bits of all codes in order, lowest bit first.
    lows: Slice<u64>,
    /// Ones and zeros of the buckets, lowest bit first, padded with zeros.
    uppers: Slice<u64>,
    /// Zeros of `uppers` before each section.
    zeros_before: Slice<u32>,
    low_bits: u32,
    buckets: u64,
    count: usize,
}

impl EliasFano {
    /// Compresses `codes`, which are ascending, distinct, and below the universe of `shape`.
    pub(super) fn build(codes: &[u64], shape: Shape) -> Self {
        let low_bits = shape.low_bits;
        let [low_words, upper_words] = words(codes.len() as u64, shape)
            .map(|words| usize::try_from(words).expect("the codes are smaller compressed"));
        let heap = FilterArena::heap();
        let (mut lows, mut uppers) =
            (Slice::filled(0, low_words, &heap), Slice::filled(0, upper_words, &heap));
        for (i, &code) in codes.iter().enumerate() {
            let (upper, low) = (code >> low_bits, code & low_mask(low_bits));
            let (word, shift) = place(i as u64 * u64::from(low_bits));
            if low_bits > 0 {
                lows[word] |= low << shift;
                if shift + low_bits > u64::BITS {
                    lows[word + 1] |= low >> (u64::BITS - shift);
                }
            }
            let (word, shift) = place(upper + i as u64);
            uppers[word] |= 1 << shift;
        }
        let built = Self::checked(lows, uppers, codes.len(), shape);
        built.expect("the sequence was just built")
    }

    /// Creates the sequence from its stored words.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] unless there are as many words as [`words`] returns, with `count` codes.
    ///
    /// Everything that a search relies on is checked, except for the order within a bucket, which a
    /// checksum protects. A search of unsorted codes returns some result.
    pub(super) fn checked(
        lows: Slice<u64>,
        uppers: Slice<u64>,
        count: usize,
        shape: Shape,
    ) -> Result<Self, DecodeError> {
        let mut ones = 0_u64;
        let zeros_before = uppers.chunks(SECTION_WORDS).enumerate().map(|(section, words)| {
            let bits_before = (section * SECTION_WORDS) as u64 * u64::from(u64::BITS);
            // Checked below: at most as many zeros as buckets plus a word.
            let zeros = (bits_before - ones) as u32;
            ones += words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            zeros
        });
        let zeros_before = Slice::collected(zeros_before, uppers.arena());
        let buckets = shape.buckets();
        let (last, used) = place(count as u64 + buckets);
        let padding = uppers.get(last).map_or(0, |word| word >> used);
        if ones != count as u64 || padding != 0 || buckets > u32::MAX.into() {
            return Err(DecodeError::Mismatch {
                what: "codes of the filter",
                expected: count as u64,
                found: ones,
            });
        }
        Ok(Self { lows, uppers, zeros_before, low_bits: shape.low_bits, buckets, count })
    }

    /// Returns `true` if a code from `first` to `last` is in the sequence. `first` is at most
    /// `last`, which is below the universe.
    pub(super) fn any_in(&self, first: u64, last: u64) -> bool {
        let mask = low_mask(self.low_bits);
        let (first_bucket, last_bucket) = (first >> self.low_bits, last >> self.low_bits);
        let codes = self.bucket(first_bucket);
        let at = self.first_at_or_above(&codes, first & mask);
        if at < codes.end {
            return first_bucket < last_bucket || self.low(at) <= last & mask;
        }
        if first_bucket == last_bucket {
            return false;
        }
        let codes = self.bucket(last_bucket);
        // A code of a bucket between them, or the first one of the last bucket.
        codes.start > at || !codes.is_empty() && self.low(codes.start) <= last & mask
    }

    /// Returns the low and then the upper words, for the stored form.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        self.lows.iter().chain(&*self.uppers).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lows) + size_of_val(&*self.uppers) + size_of_val(&*self.zeros_before)
    }

    pub(super) fn arena_bytes(&self) -> usize {
        self.lows.arena_bytes() + self.uppers.arena_bytes() + self.zeros_before.arena_bytes()
    }

    /// Returns the index range of a bucket's codes.
    fn bucket(&self, bucket: u64) -> Range<usize> {
        let start = if bucket == 0 { 0 } else { self.zero(bucket - 1) + 1 };
        let (word, shift) = place(start);
        // Mostly the bucket ends in the word in which it begins.
        let ones = (self.uppers[word] >> shift).trailing_ones();
        let end =
            if shift + ones < u64::BITS { start + u64::from(ones) } else { self.zero(bucket) };
        // There is one zero per preceding bucket before both positions.
        (start - bucket) as usize..(end - bucket) as usize
    }

    /// Returns the position of the zero that ends `bucket`.
    fn zero(&self, bucket: u64) -> u64 {
        let section = self.section(bucket);
        let mut before = u64::from(self.zeros_before[section]);
        for (i, word) in self.uppers.iter().enumerate().skip(section * SECTION_WORDS) {
            let zeros = u64::from(word.count_zeros());
            if bucket - before < zeros {
                let bit = select(!word, (bucket - before) as u32);
                return i as u64 * u64::from(u64::BITS) + u64::from(bit);
            }
            before += zeros;
        }
        unreachable!("each bucket ends with a zero")
    }

    /// Returns the section with the zero of `bucket`: the last one with at most `bucket` zeros
    /// before it.
    ///
    /// Searches from the position for evenly spaced codes, which those of random keys nearly are.
    fn section(&self, bucket: u64) -> usize {
        let sections = &*self.zeros_before;
        let is_after = |section: usize| u64::from(sections[section]) > bucket;
        let guess = u128::from(bucket) * sections.len() as u128 / u128::from(self.buckets);
        let mut low = guess as usize; // Below the number of sections.
        let (mut high, mut step) = (low + 1, 1);
        while is_after(low) {
            (low, high) = (low.saturating_sub(step), low);
            step *= 2;
        }
        while high < sections.len() && !is_after(high) {
            (low, high) = (high, (high + step).min(sections.len()));
            step *= 2;
        }
        low + sections[low..high].partition_point(|&zeros| u64::from(zeros) <= bucket) - 1
    }

    /// Returns the index of the first of `codes`, all of one bucket, whose low bits are at least
    /// `low`, or their end.
    fn first_at_or_above(&self, codes: &Range<usize>, low: u64) -> usize {
        let Range { mut start, mut end } = *codes;
        while start < end {
            let middle = start.midpoint(end);
            if self.low(middle) < low { start = middle + 1 } else { end = middle }
        }
        start
    }

    /// Returns the low bits of the code at this index.
    fn low(&self, at: usize) -> u64 {
        if self.low_bits == 0 {
            return 0;
        }
        let (word, shift) = place(at as u64 * u64::from(self.low_bits));
        let mut low = self.lows[word] >> shift;
        if shift + self.low_bits > u64::BITS {
            low |= self.lows[word + 1] << (u64::BITS - shift);
        }
        low & low_mask(self.low_bits)
    }
}

/// Returns the words of the low bits and of the buckets; saturates on overflow.
pub(super) fn words(count: u64, shape: Shape) -> [u64; 2] {
    let low_bits = count.saturating_mul(shape.low_bits.into());
    [low_bits, count.saturating_add(shape.buckets())].map(|bits| bits.div_ceil(u64::BITS.into()))
}

/// Returns the word of a bit, and its position in the word.
fn place(bit: u64) -> (usize, u32) {
    ((bit / u64::from(u64::BITS)) as usize, (bit % u64::from(u64::BITS)) as u32)
}

fn low_mask(low_bits: u32) -> u64 {
    (1 << low_bits) - 1
}

/// Returns the position of the 1-bit in `word` with `rank` 1-bits below it, which must exist.
fn select(word: u64, mut rank: u32) -> u32 {
    let mut at = 0;
    for width in [32, 16, 8, 4, 2, 1] {
        let ones = ((word >> at) & ((1 << width) - 1)).count_ones();
        if rank >= ones {
            rank -= ones;
            at += width;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = *state ^ *state >> 29;
        mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ mixed >> 32
    }

    #[test]
    fn select_counts_ones() {
        let mut state = 1;
        for _ in 0..1_000 {
            let word = random(&mut state) & random(&mut state);
            let ones: Vec<u32> = (0..64).filter(|bit| word >> bit & 1 == 1).collect();
            for (rank, &want) in ones.iter().enumerate() {
                assert_eq!(select(word, rank as u32), want, "{word:#x}, {rank}");
            }
        }
    }

    /// Compares with a search in the plain codes: spread, in one bucket, dense, and at the ends.
    #[cfg_attr(miri, ignore = "long loops")]
    #[test]
    fn any_in_equals_a_search_of_the_codes() {
        let mut state = 7;
        let shape = |universe, low_bits| Shape { universe, low_bits };
        let every = |step: u64, count: u64| (0..count).map(|i| i * step).collect::<Vec<_>>();
        let cases = [
            ("none", vec![], shape(1, 0)),
            ("one of one", vec![0], shape(1, 0)),
            ("the last", vec![(1 << 63) - 1], shape(1 << 63, 62)),
            ("no low bits", every(3, 5_000), shape(15_000, 0)),
            ("all of a universe", every(1, 4_096), shape(4_096, 3)),
            ("one bucket", every(1, 20_000).iter().map(|i| i + 77).collect(), shape(1 << 20, 15)),
            ("two far ends", [every(1, 9_000), vec![(1 << 30) - 1]].concat(), shape(1 << 30, 16)),
            ("spread", every(1_000_003, 30_000), shape(1_000_003 * 30_000, 19)),
        ];
        for (name, codes, shape) in cases {
            let built = EliasFano::build(&codes, shape);
            assert_eq!((built.len(), built.is_empty()), (codes.len(), codes.is_empty()));
            for case in 0..20_000_u64 {
                let near = codes.get(case as usize % codes.len().max(1)).copied().unwrap_or(0);
                let first = match case % 4 {
                    0 => random(&mut state) % shape.universe,
                    1 => near,
                    2 => near.saturating_sub(random(&mut state) % 9),
                    _ => (near + random(&mut state) % 9).min(shape.universe - 1),
                };
                let length = random(&mut state) >> (random(&mut state) % 64);
                let last = first.saturating_add(length).min(shape.universe - 1);
                let at = codes.partition_point(|&code| code < first);
                let want = codes.get(at).is_some_and(|&code| code <= last);
                assert_eq!(built.any_in(first, last), want, "{name}: {first} to {last}");
            }
        }
    }
}
