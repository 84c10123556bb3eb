//! Concurrent blocked Bloom filter without locks, for memtables.
//!
//! Sets the same bits as [`BlockedBloom`](crate::BlockedBloom). Its size is fixed before the number
//! of keys is known.
//!
//! # Memory order
//!
//! Every access is relaxed. Bits are only set, by atomic read-modify-writes, so no thread clears
//! the bit of another. A probe sees the bits of an insertion that happens before it, by a release
//! store after the insertion and an acquire load. Without such an edge a probe may miss a
//! concurrent insertion, as if the probe had run earlier.

use alloc::boxed::Box;
use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::line::{LINE_BITS, LINE_BYTES, PROBES_MAX, bits, line_of, prefetch};
use crate::memory;

const LINE_WORDS: usize = (LINE_BITS / u64::BITS) as usize;

/// 512 bits. Bit `b` is bit `b % 64` of word `b / 64`.
#[derive(Default)]
#[repr(C, align(64))]
struct AtomicLine([AtomicU64; LINE_WORDS]);

/// A blocked Bloom filter with insertion through a shared reference.
pub struct AtomicBlockedBloom {
    /// Never empty.
    lines: Box<[AtomicLine]>,
    probes: u8,
}

impl AtomicBlockedBloom {
    /// Creates an empty filter of `bytes` bytes, rounded up to at least one whole line of
    /// [`LINE_BYTES`], with `probes` bits per key.
    ///
    /// # Panics
    ///
    /// If `probes` is not from 1 to [`PROBES_MAX`].
    #[must_use]
    pub fn with_bytes(bytes: usize, probes: u8) -> Self {
        assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
        let lines = bytes.div_ceil(LINE_BYTES).max(1);
        let lines = memory::collected((0..lines).map(|_| AtomicLine::default()));
        Self { lines: lines.into(), probes }
    }

    /// Inserts a key. Writes nothing if its bits are set, so that a hot key does not invalidate the
    /// line in other caches.
    #[inline]
    pub fn insert_hash(&self, hash: u64) {
        // One write for all bits of a word: a read-modify-write costs more than a probe.
        debug_assert!((1..=PROBES_MAX).contains(&self.probes));
        let mut masks = [0; LINE_WORDS];
        for bit in bits(hash, self.probes) {
            masks[bit as usize / 64] |= 1 << (bit % 64);
        }
        for (word, mask) in self.line(hash).0.iter().zip(masks) {
            if word.load(Relaxed) & mask != mask {
                word.fetch_or(mask, Relaxed);
            }
        }
        debug_assert!(self.may_contain_hash(hash), "an inserted key is found");
    }

    /// Returns `false` only if no insertion of this hash happened before (see [memory
    /// order](self#memory-order)).
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        let line = self.line(hash);
        // Tests every bit: an early exit costs more, in mispredicted branches.
        bits(hash, self.probes)
            .fold(1, |found, bit| found & (line.0[bit as usize / 64].load(Relaxed) >> (bit % 64)))
            == 1
    }

    /// Prefetches the line that [`may_contain_hash`](Self::may_contain_hash) reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.line(hash));
    }

    /// Returns the bytes of the lines.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    #[inline]
    fn line(&self, hash: u64) -> &AtomicLine {
        line_of(&self.lines, hash)
    }
}

/// Prints the shape, not the bits.
impl fmt::Debug for AtomicBlockedBloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicBlockedBloom")
            .field("lines", &self.lines.len())
            .field("probes", &self.probes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockedBloom;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 5 } else { 256 }))]

        #[test]
        fn bits_equal_those_of_the_immutable_filter(
            hashes in proptest::collection::vec(any::<u64>(), 0..200),
            lines in 1_usize..5,
            probes in 1..=PROBES_MAX,
        ) {
            let atomic = AtomicBlockedBloom::with_bytes(lines * LINE_BYTES, probes);
            for &hash in &hashes {
                atomic.insert_hash(hash);
            }
            let frozen = BlockedBloom::with_shape(&hashes, lines, probes);
            for (atomic, frozen) in atomic.lines.iter().zip(frozen.lines()) {
                let words = atomic.0.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
                prop_assert!(words.eq(frozen.to_bytes()));
            }
        }
    }

    #[test]
    fn bytes_are_rounded_up_to_lines() {
        for (requested, allocated) in [(0, 64), (1, 64), (64, 64), (65, 128), (1 << 20, 1 << 20)] {
            let filter = AtomicBlockedBloom::with_bytes(requested, 6);
            assert_eq!(filter.memory_bytes(), allocated, "{requested} bytes");
            assert_eq!(filter.lines.as_ptr().addr() % LINE_BYTES, 0);
        }
    }
}
