//! Bumped ribbon filter: almost as small as a filter can be, a little slower than a Bloom filter.
//!
//! A key is a linear equation over 64 adjacent slots; building the filter solves the system, and a
//! question adds up the slots and compares. Each column of slots halves the false positives, and
//! costs one bit a key and 0.3 % more from 100,000 keys on, 0.8 % at 10,000; a Bloom filter pays 44
//! % more, a blocked one 50 %. Keys that do not fit their layer are bumped: they belong to the next
//! one, a thirteenth in size or less.
//!
//! | file       | what it holds                                              |
//! |------------|------------------------------------------------------------|
//! | `row`      | what a hash means to a layer                               |
//! | `rows`     | the same of many keys, field by field                      |
//! | `shape`    | layers, buckets, blocks and column groups                  |
//! | `group`    | the words of eight columns                                 |
//! | `order`    | keys by bucket                                             |
//! | `band`     | elimination: the definition; `window` finds the same       |
//! | `solve`    | back-substitution                                          |
//! | `build`    | the three together, and the memory they take               |
//! | `query`    | a question: the definition; `avx2`, `avx512` and `neon` answer alike |
//! | `batch`    | many questions at once                                     |
//! | `questions` | the calls of a path, the same around each `matches`  |
//! | `shrink`   | giving up columns                                          |
//! | `stored`   | the payload of a filter block                              |
//! | `loading`  | the same on its way into memory                            |
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
mod build;
mod group;
mod loading;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod order;
mod path;
mod query;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod questions;
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
pub use query::Asked;
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
    /// One for each eight columns; the shape says how long each is.
    groups: Groups,
    /// Two bits for each bucket of the shape, and behind them those of the last layer, which keep
    /// all.
    thresholds: Box<[u8]>,
    key_count: u64,
    expected_fpr: f64,
}

impl Ribbon {
    /// A filter over keys with these hashes, of `bits_per_key` columns.
    ///
    /// For the rate see [`columns_fpr`](crate::params::columns_fpr). A fraction is honoured by a
    /// column less in a part of the filter. Fewer than 1 counts as 1, more than [`COLUMNS_MAX`] as
    /// that. Thresholds and slots that stay empty come on top of the columns. A filter has at least
    /// 64 slots: for fewer than some 2,000 keys a [`BlockedBloom`](crate::BlockedBloom) is the
    /// better choice.
    ///
    /// A hash that equals its predecessor is counted once. Other repetitions are correct and take
    /// space. Hashes must be as good as random; whatever they are, no key is denied.
    ///
    /// Takes 20 bytes a key beside the hashes while it builds. 25 to 45 ns a key with AVX-512, the
    /// more the less fits the caches, 80 ns without.
    ///
    /// # Panics
    ///
    /// If `bits_per_key` is not in `0 < bits_per_key <= `[`BITS_PER_KEY_MAX`].
    #[must_use]
    pub fn build(hashes: &[u64], bits_per_key: f64) -> Self {
        Self::build_on(Path::detect(), hashes, bits_per_key)
    }

    /// As [`build`](Self::build); returns `None` soon after `is_cancelled` returns `true`, as it
    /// must from then on.
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

    /// Of parts that belong together: `groups` and `thresholds` are as long as `shape` says. Bits
    /// behind the last threshold do not matter.
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
    /// Reads two adjacent cache lines at most for each eight columns, and mostly the first eight
    /// only. One key in 13, of a large filter in 18, is bumped and costs a second place.
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

    /// What [`may_contain_hash`](Self::may_contain_hash) says of a hash that other filters are
    /// asked for too.
    #[inline(always)]
    pub(crate) fn may_contain_mixed(&self, asked: Asked) -> bool {
        let Asked { hash, mixed } = asked.of(self);
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

    /// Sets each of `answers` to what [`may_contain_hash`](Self::may_contain_hash) says of the hash
    /// at its place, with many loads from memory in flight at once.
    ///
    /// # Panics
    ///
    /// If there are not as many answers as hashes.
    pub fn may_contain_hashes(&self, hashes: &[u64], answers: &mut [bool]) {
        assert_eq!(hashes.len(), answers.len(), "an answer for each hash");
        match self.path {
            Path::Portable => batch::test_batch(self, hashes, answers, query::matches),
            #[cfg(target_arch = "x86_64")]
            Path::Avx2(avx2) => avx2.may_contain_hashes(self, hashes, answers),
            #[cfg(target_arch = "x86_64")]
            Path::Avx512(avx512) => avx512.may_contain_hashes(self, hashes, answers),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Path::Neon(neon) => neon.may_contain_hashes(self, hashes, answers),
        }
    }

    /// Starts to load what [`may_contain_hash`](Self::may_contain_hash) will read, if the key is
    /// not a bumped one.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.prefetch_first(Mixed::new(hash, self.front.seed));
    }

    /// The same for a hash that other filters are asked for too.
    #[inline]
    pub(crate) fn prefetch_mixed(&self, asked: Asked) {
        self.prefetch_first(asked.of(self).mixed);
    }

    #[inline(always)]
    fn prefetch_first(&self, mixed: Mixed) {
        Place::first(self, mixed).prefetch(self.groups.first.view());
    }

    /// Starts of the first layer: somewhat fewer than keys.
    #[inline]
    pub(crate) fn first_starts(&self) -> u64 {
        self.front.starts
    }

    /// Bytes of the columns, thresholds and layers.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes_of(&self.shape)
    }

    /// Those that the arena counts: the columns.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.groups.iter().map(|group| group.lines.arena_bytes()).sum()
    }

    /// Expected false-positive rate, from 0 to 1: that of this very filter, over random hashes.
    #[must_use]
    pub fn expected_fpr(&self) -> f64 {
        self.expected_fpr
    }

    /// Keys that were added, without equal neighbours.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Columns, from 1 to [`COLUMNS_MAX`]; if they are a mixture, their average over the slots.
    #[must_use]
    pub fn columns(&self) -> f64 {
        self.shape.average_columns()
    }

    /// What this filter takes if its columns are those of `shape`.
    fn bytes_of(&self, shape: &Shape) -> usize {
        shape.memory_bytes(self.thresholds.len())
    }

    /// Of the same layers, with groups of that shape in place.
    fn set_shape(&mut self, shape: Shape) {
        self.expected_fpr = expected_fpr(&shape, &self.thresholds);
        self.shape = shape;
        self.assert_groups();
    }

    /// What questions rely on instead of checks of their own: all places are in the groups.
    fn assert_groups(&self) {
        assert_eq!(self.groups.len(), self.shape.group_count());
        for (index, group) in self.groups.iter().enumerate() {
            assert_eq!(group.shape, self.shape.group(index));
            assert_eq!(group.lines.len(), Group::lines_of(group.shape));
        }
    }
}

impl Shape {
    /// What a filter of this shape keeps in memory, with so many bytes of thresholds.
    fn memory_bytes(&self, threshold_bytes: usize) -> usize {
        let groups = 0..self.group_count();
        let lines: usize = groups.clone().map(|group| Group::lines_of(self.group(group))).sum();
        lines * size_of::<WordLine>()
            + threshold_bytes
            + self.layers.len() * size_of::<Layer>()
            + groups.len() * size_of::<Group>()
    }
}

/// Shows the shape, not the bits.
impl fmt::Debug for Ribbon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ribbon")
            .field("columns", &self.columns())
            .field("keys", &self.key_count)
            .field("expected_fpr", &self.expected_fpr)
            .finish_non_exhaustive()
    }
}

/// `2^-columns`, averaged over where the start of a random key lies.
fn expected_fpr(shape: &Shape, thresholds: &[u8]) -> f64 {
    let mut rate = 0.0;
    let mut reached = 1.0; // The share of keys that earlier layers bump.
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
                // Four to a byte, as many as there are buckets.
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
