//! Bumped ribbon filter: close to the minimum size, slightly slower than a Bloom filter.
//!
//! A key is a linear equation over 64 adjacent slots. Building the filter solves the system; a
//! probe adds up the slots and compares the sum. Each column of slots halves the false-positive
//! rate and costs one bit per key. The overhead is 0.3 % from 100,000 keys on and 0.8 % at 10,000.
//! A Bloom filter takes 44 % more, a blocked one 50 %. Keys that do not fit their layer are bumped
//! to the next one, of a thirteenth of the size or less.
//!
//! | file            | contents                                                     |
//! |-----------------|--------------------------------------------------------------|
//! | `row`           | the equation of a hash in a layer                            |
//! | `rows`          | equations of many keys, field by field                       |
//! | `shape`         | layers, buckets, blocks and column groups                    |
//! | `group`         | the words of eight columns                                   |
//! | `order`         | keys sorted by bucket                                        |
//! | `band`          | elimination: the reference; `window` computes the same       |
//! | `bit_matrix`    | 8 × 8 bit matrices for `window`                              |
//! | `solve`         | back-substitution                                            |
//! | `build`         | the build, and its memory                                    |
//! | `query`         | a probe: the reference; `avx2`, `avx512` and `neon` give the same results |
//! | `batch`         | probes of many hashes at once                                |
//! | `probe_methods` | methods of a SIMD path, around its `matches`                 |
//! | `shrink`        | dropping columns                                             |
//! | `stored`        | the payload of a filter block                                |
//! | `loading`       | loading a payload piece by piece                             |
//!
//! Sources: Dillinger and Walzer, "Ribbon filter: practically smaller than Bloom and Xor", 2021,
//! <https://arxiv.org/abs/2103.02515>; Dillinger, Hübschle-Schneider, Sanders and Walzer, "Fast
//! Succinct Retrieval and Approximate Membership Using Ribbon", SEA 2022.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod band;
mod batch;
#[cfg(target_arch = "x86_64")]
mod bit_matrix;
mod build;
mod group;
mod loading;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod order;
mod path;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod probe_methods;
mod query;
mod row;
mod rows;
mod shape;
mod shrink;
mod solve;
mod stored;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod window;

use group::{Group, Groups, WordLine};
use path::Path;
pub use query::Probe;
use query::{Front, Place};
pub(crate) use row::Mixed;
use shape::{BLOCK_SLOTS, BUCKET_STARTS, Layer, Shape, kept_from};

#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::params::BITS_PER_KEY_MAX;

pub(crate) use loading::Loading;
pub use shape::COLUMNS_MAX;
pub(crate) use stored::Header;

/// An immutable bumped ribbon filter of 1 to [`COLUMNS_MAX`] columns.
#[derive(Clone)]
pub struct Ribbon {
    path: Path,
    front: Front,
    shape: Shape,
    /// One per eight columns, with the lengths that `shape` gives.
    groups: Groups,
    /// Two bits per bucket of the shape, then those of the last layer, which bump nothing.
    thresholds: Box<[u8]>,
    key_count: u64,
    expected_fpr: f64,
}

impl Ribbon {
    /// Builds a filter over the hashes of keys, with `bits_per_key` columns.
    ///
    /// See [`columns_fpr`](crate::params::columns_fpr) for the rate. With a fraction, a part of the
    /// filter has one column less. `bits_per_key` is clamped to the range from 1 to
    /// [`COLUMNS_MAX`]. Thresholds and empty slots need additional memory. A filter has at least 64
    /// slots: below about 2,000 keys a [`BlockedBloom`](crate::BlockedBloom) is better.
    ///
    /// A hash that equals its predecessor is counted once. Other duplicates are correct but take
    /// space. Hashes should be random; with any hashes there are no false negatives.
    ///
    /// Allocates 20 bytes per key besides the hashes. Costs 25 to 45 ns per key with AVX-512,
    /// depending on the caches, and 80 ns without.
    ///
    /// # Panics
    ///
    /// If `bits_per_key` is not in `0 < bits_per_key <= `[`BITS_PER_KEY_MAX`].
    #[must_use]
    pub fn build(hashes: &[u64], bits_per_key: f64) -> Self {
        Self::build_on(Path::detect(), hashes, bits_per_key)
    }

    /// Does the same as [`build`](Self::build), but returns `None` soon after `is_cancelled`
    /// returns `true`, which it must then always do.
    pub(crate) fn build_unless(
        hashes: &[u64],
        bits_per_key: f64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<Self> {
        Self::build_on_unless(Path::detect(), hashes, bits_per_key, is_cancelled)
    }

    fn build_on(path: Path, hashes: &[u64], bits_per_key: f64) -> Self {
        let built = Self::build_on_unless(path, hashes, bits_per_key, &|| false);
        built.expect("the build is not cancelled")
    }

    fn build_on_unless(
        path: Path,
        hashes: &[u64],
        bits_per_key: f64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<Self> {
        assert!(
            bits_per_key > 0.0 && bits_per_key <= BITS_PER_KEY_MAX,
            "bits_per_key is {bits_per_key}"
        );
        build::build(path, hashes, bits_per_key.clamp(1.0, COLUMNS_MAX.into()), is_cancelled)
    }

    /// Assembles a filter from `groups` and `thresholds` of the lengths that `shape` gives. Bits
    /// after the last threshold are ignored.
    fn from_parts(
        path: Path,
        shape: Shape,
        groups: Groups,
        mut thresholds: Vec<u8>,
        key_count: u64,
    ) -> Self {
        assert_eq!(thresholds.len() as u64, shape.threshold_bytes());
        let expected_fpr = expected_fpr(&shape, &thresholds);
        if let Some(last) = thresholds.last_mut() {
            *last |= shape.stray_threshold_bits();
        }
        thresholds.resize(shape.all_threshold_bytes() as usize, u8::MAX); // Fewer than slots.
        let thresholds = thresholds.into_boxed_slice();
        let front = Front::new(&shape.layers);
        let ribbon = Self { path, front, shape, groups, thresholds, key_count, expected_fpr };
        ribbon.assert_groups();
        ribbon
    }

    /// Returns `false` only if no key with this hash was added.
    ///
    /// Reads at most two adjacent cache lines per eight columns, and mostly only the first eight
    /// columns. One key in 13, or in 18 of a large filter, is bumped and costs a second access.
    #[doc(alias = "contains")]
    #[inline(always)]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        match self.path {
            Path::Portable => query::portable(self, hash),
            #[cfg(target_arch = "x86_64")]
            Path::Avx2(avx2) => avx2.may_contain_hash(self, hash),
            #[cfg(target_arch = "x86_64")]
            Path::Avx512(avx512) => {
                avx512.may_contain_mixed(self, hash, Mixed::new(hash, self.front.seed))
            }
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Path::Neon(neon) => neon.may_contain_hash(self, hash),
        }
    }

    /// Does the same as [`may_contain_hash`](Self::may_contain_hash), with the state that several
    /// filters share.
    #[inline(always)]
    pub(crate) fn may_contain_mixed(&self, probe: Probe) -> bool {
        let Probe { hash, mixed } = probe.for_filter(self);
        match self.path {
            Path::Portable => query::portable(self, hash),
            #[cfg(target_arch = "x86_64")]
            Path::Avx2(avx2) => avx2.may_contain_mixed(self, hash, mixed),
            #[cfg(target_arch = "x86_64")]
            Path::Avx512(avx512) => avx512.may_contain_mixed(self, hash, mixed),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Path::Neon(neon) => neon.may_contain_mixed(self, hash, mixed),
        }
    }

    /// Sets each of `results` to [`may_contain_hash`](Self::may_contain_hash) of the hash at its
    /// index, with many loads in flight at once.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn may_contain_hashes(&self, hashes: &[u64], results: &mut [bool]) {
        assert_eq!(hashes.len(), results.len(), "one result per hash");
        match self.path {
            Path::Portable => batch::test_batch(self, hashes, results, query::matches),
            #[cfg(target_arch = "x86_64")]
            Path::Avx2(avx2) => avx2.may_contain_hashes(self, hashes, results),
            #[cfg(target_arch = "x86_64")]
            Path::Avx512(avx512) => avx512.may_contain_hashes(self, hashes, results),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Path::Neon(neon) => neon.may_contain_hashes(self, hashes, results),
        }
    }

    /// Prefetches what [`may_contain_hash`](Self::may_contain_hash) reads, if the key is not
    /// bumped.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.prefetch_first(Mixed::new(hash, self.front.seed));
    }

    /// Does the same as [`prefetch`](Self::prefetch), with the state that several filters share.
    #[inline]
    pub(crate) fn prefetch_mixed(&self, probe: Probe) {
        self.prefetch_first(probe.for_filter(self).mixed);
    }

    #[inline(always)]
    fn prefetch_first(&self, mixed: Mixed) {
        Place::first(self, mixed).prefetch(self.groups.first.view());
    }

    /// Returns the starts of the first layer: somewhat fewer than keys.
    #[inline]
    pub(crate) fn first_starts(&self) -> u64 {
        self.front.starts
    }

    /// Returns the bytes of the columns, thresholds and layers.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes_of(&self.shape)
    }

    /// Returns the bytes that the arena counts: the columns.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.groups.iter().map(|group| group.lines.arena_bytes()).sum()
    }

    /// Returns the expected false-positive rate of this filter for random hashes, from 0 to 1.
    #[must_use]
    pub fn expected_fpr(&self) -> f64 {
        self.expected_fpr
    }

    /// Returns the number of keys added, without adjacent duplicates.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Returns the number of columns, from 1 to [`COLUMNS_MAX`]; if mixed, the average over the
    /// slots.
    #[must_use]
    pub fn columns(&self) -> f64 {
        self.shape.average_columns()
    }

    /// Returns the bytes of this filter with the columns of `shape`.
    fn bytes_of(&self, shape: &Shape) -> usize {
        shape.memory_bytes(self.thresholds.len())
    }

    /// Sets the shape, after the groups were changed to match it.
    fn set_shape(&mut self, shape: Shape) {
        self.expected_fpr = expected_fpr(&shape, &self.thresholds);
        self.shape = shape;
        self.assert_groups();
    }

    /// Checks what probes rely on without checks of their own: all positions are within the groups.
    fn assert_groups(&self) {
        assert_eq!(self.groups.len(), self.shape.group_count());
        for (index, group) in self.groups.iter().enumerate() {
            assert_eq!(group.shape, self.shape.group(index));
            assert_eq!(group.lines.len(), Group::lines_of(group.shape));
        }
    }
}

impl Shape {
    /// Returns the bytes of a filter of this shape.
    fn memory_bytes(&self, threshold_bytes: usize) -> usize {
        let groups = 0..self.group_count();
        let lines: usize = groups.clone().map(|group| Group::lines_of(self.group(group))).sum();
        lines * size_of::<WordLine>()
            + threshold_bytes
            + self.layers.len() * size_of::<Layer>()
            + groups.len() * size_of::<Group>()
    }
}

/// Prints the shape, not the bits.
impl fmt::Debug for Ribbon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ribbon")
            .field("columns", &self.columns())
            .field("keys", &self.key_count)
            .field("expected_fpr", &self.expected_fpr)
            .finish_non_exhaustive()
    }
}

/// Returns `2^-columns`, averaged over the starts of random keys.
fn expected_fpr(shape: &Shape, thresholds: &[u8]) -> f64 {
    let mut rate = 0.0;
    let mut reached = 1.0; // Share of keys that earlier layers bump.
    for (layer, blocks) in shape.layers.iter().zip(shape.layer_blocks()) {
        let mut kept_starts = 0;
        let mut starts_rate = 0.0;
        for block in 0..blocks {
            let first = block * BLOCK_SLOTS;
            let starts = (layer.starts - first).min(BLOCK_SLOTS);
            let kept = if layer.is_last {
                starts
            } else {
                let bucket = layer.first_bucket + first / BUCKET_STARTS;
                // Four per byte; there is one per bucket.
                let threshold = thresholds[(bucket / 4) as usize] >> (bucket % 4 * 2);
                let bumped = kept_from(threshold).saturating_sub(first % BUCKET_STARTS);
                starts.saturating_sub(bumped)
            };
            let columns = shape.block_columns(layer.first_block + block);
            kept_starts += kept;
            starts_rate += kept as f64 * 0.5_f64.powi(columns.into());
        }
        rate += reached * starts_rate / layer.starts as f64;
        reached *= (layer.starts - kept_starts) as f64 / layer.starts as f64;
    }
    rate
}
