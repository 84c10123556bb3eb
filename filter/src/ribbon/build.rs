//! From hashes to a filter: layer after layer, then the slots.
//!
//! Memory beside the hashes, in bytes a key: 8 for the hashes in the order of a layer, 12 for each of
//! its slots (15 slots for 16 keys), and 8 for each bumped key, of which there are about 0.07. That is
//! the peak, 20 together (19.8 measured at ten million keys): the rows of later layers and the filter
//! come when the ordered hashes are gone.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::num::NonZeroU8;

#[cfg(not(feature = "std"))]
use crate::float::Float;

use super::Ribbon;
use super::band::{Band, Elimination};
use super::group::Group;
use super::order::Chunks;
use super::path::Path;
use super::row::{self, Row};
use super::shape::{
    BLOCK_SLOTS, BUCKET_STARTS, GROUP_COLUMNS, LAYERS_MAX, Shape, TAIL_BLOCKS_MAX, bumping_blocks,
    kept_from, layer_starts,
};
use super::solve::solve;

/// Layers of so many keys or fewer are tried with several seeds.
const TAIL_KEYS_MAX: usize = 16_384;
const _: () = assert!(bumping_blocks(TAIL_KEYS_MAX as u64) == TAIL_BLOCKS_MAX);
const _: () = assert!(bumping_blocks(TAIL_KEYS_MAX as u64 + 1) > TAIL_BLOCKS_MAX);

/// So many keys or fewer go to the last layer.
const LAST_KEYS_MAX: usize = 320;

/// Seeds to try with a last layer of some size before it grows.
const ATTEMPTS: u8 = 16;

/// Builds a filter of `bits_per_key` columns, from 1 to 32, mixed if it is no whole number.
pub(crate) fn build(path: Path, hashes: &[u64], bits_per_key: f64) -> Ribbon {
    let columns = bits_per_key.ceil() as u8; // From 1 to 32.
    let columns = NonZeroU8::new(columns).expect("at least one column");
    let key_count = distinct(hashes);
    let Layers { bands, thresholds, attempt } = Layers::new(path, columns, hashes);

    let blocks: Vec<u64> = bands.iter().map(Band::blocks).collect();
    let mut shape = Shape::new(columns, &blocks, attempt);
    let missing = f64::from(columns.get()) - bits_per_key;
    // A share, below 1, of the blocks.
    shape.upper = (shape.blocks as f64 * missing).round() as u64;
    let groups = (0..shape.group_count())
        .map(|index| {
            let mut group = Group::zeroed(shape.group(index));
            for (layer, band) in shape.layers.iter().zip(&bands) {
                solve(path, layer, band, index, &mut group);
            }
            group
        })
        .collect();
    Ribbon::from_parts(path, shape, groups, thresholds.bytes, key_count as u64)
}

/// The systems of all layers, ready to be solved.
#[derive(Debug, Clone, Default)]
struct Layers {
    bands: Vec<Band>,
    thresholds: Thresholds,
    attempt: u16,
}

impl Layers {
    fn new(path: Path, columns: NonZeroU8, hashes: &[u64]) -> Self {
        let mut large = Self::default();
        let keys = large.bump(path, columns, Cow::Borrowed(hashes), 0, TAIL_KEYS_MAX);
        // How many blocks a small layer takes is luck, and most of what a filter wastes. The small
        // ones can afford to try it again.
        let count = distinct(&keys);
        let rounds = if count <= 2_048 { 8 } else { 4 };
        let mut best: Option<Self> = None;
        for round in 0..rounds {
            let mut small = large.shape_only();
            let rest = small.bump(path, columns, Cow::Borrowed(&keys), round, LAST_KEYS_MAX);
            let (band, attempt) = last_layer(columns, &rest, small.bands.len(), round);
            small.bands.push(band);
            small.attempt = attempt;
            let blocks = small.blocks();
            if best.as_ref().is_none_or(|best| blocks < best.blocks()) {
                best = Some(small);
            }
            if blocks <= (count as u64).div_ceil(BLOCK_SLOTS) {
                break;
            }
        }
        let mut best = best.expect("there is a round");
        best.bands.splice(..large.bands.len(), large.bands);
        best
    }

    /// Adds layers until at most `keys_max` keys are bumped, and returns those. `round` chooses the
    /// seeds.
    fn bump<'a>(
        &mut self,
        path: Path,
        columns: NonZeroU8,
        mut keys: Cow<'a, [u64]>,
        round: u8,
        keys_max: usize,
    ) -> Cow<'a, [u64]> {
        // Repetitions are neighbours at the latest when their layer has put them in order.
        while distinct(&keys) > keys_max && self.bands.len() + 1 < LAYERS_MAX {
            let seed = row::seed(self.bands.len(), u16::from_le_bytes([0, round]));
            let (band, bumped) = bumping_layer(path, columns, &keys, seed, &mut self.thresholds);
            self.bands.push(band);
            keys = Cow::Owned(bumped);
        }
        keys
    }

    /// The same, with empty bands in place of those so far.
    fn shape_only(&self) -> Self {
        let bands = self.bands.iter().map(|_| Band::default()).collect();
        Self { bands, thresholds: self.thresholds.clone(), attempt: 0 }
    }

    fn blocks(&self) -> u64 {
        self.bands.iter().map(Band::blocks).sum()
    }
}

/// Hashes without those that equal the one before.
fn distinct(hashes: &[u64]) -> usize {
    hashes.chunk_by(|left, right| left == right).count()
}

/// A layer that keeps most keys, and the keys that it bumps.
///
/// It has 15 slots for 16 keys, so that nearly every slot gets a row.
fn bumping_layer(
    path: Path,
    columns: NonZeroU8,
    keys: &[u64],
    seed: u64,
    thresholds: &mut Thresholds,
) -> (Band, Vec<u64>) {
    let count = distinct(keys);
    let blocks = bumping_blocks(count as u64);
    let starts = layer_starts(blocks);
    let slots = (blocks * BLOCK_SLOTS) as usize; // Hardly more than keys.
    let groups = usize::from(columns.get().div_ceil(GROUP_COLUMNS));
    let mut elimination = Elimination::new(path, slots, groups);
    let chunks = Chunks::new(keys, seed, starts);
    debug_assert_eq!(chunks.len(), count);
    let mut bumped = Vec::with_capacity(count / 14);
    let mut rows = Vec::new();
    chunks.for_each_bucket(BUCKET_STARTS.ilog2(), |bucket, hashes| {
        rows.clear();
        rows.extend(hashes.iter().map(|&hash| row(hash, seed, starts, columns)));
        let first = bucket as u64 * BUCKET_STARTS;
        // Bumping all of a bucket always works.
        for threshold in (0..=3).rev() {
            let from = first + kept_from(threshold);
            let kept = rows.partition_point(|row| row.start < from);
            if elimination.insert_all(&rows[kept..]) {
                bumped.extend_from_slice(&hashes[..kept]);
                thresholds.push(threshold);
                break;
            }
        }
    });
    (elimination.finish(), bumped)
}

/// The equation of a key in the columns that there are: in others it cannot contradict.
fn row(hash: u64, seed: u64, starts: u64, columns: NonZeroU8) -> Row {
    let mut row = Row::new(hash, seed, starts);
    row.fingerprint &= u32::MAX >> (u32::BITS - u32::from(columns.get()));
    row
}

/// A layer that keeps all keys, and the seed that made it so: as small as some
/// attempts for each size find it.
fn last_layer(columns: NonZeroU8, keys: &[u64], layer: usize, round: u8) -> (Band, u16) {
    let count = distinct(keys);
    let mut blocks = (count as u64).div_ceil(BLOCK_SLOTS).max(1);
    for number in 0..=u8::MAX {
        let attempt = u16::from_le_bytes([number, round]);
        let seed = row::seed(layer, attempt);
        let starts = layer_starts(blocks);
        let mut rows: Vec<Row> =
            keys.iter().map(|&hash| row(hash, seed, starts, columns)).collect();
        rows.sort_unstable_by_key(|row| row.start);
        let mut band = Band::new((blocks * BLOCK_SLOTS) as usize); // About a slot a key.
        if band.insert_all(&rows) {
            return (band, attempt);
        }
        if number % ATTEMPTS == ATTEMPTS - 1 {
            // More and more: the last sizes are generous to the worst of hashes.
            blocks += blocks.div_ceil(20) << (number / 64);
        }
    }
    unreachable!("{count} keys in {blocks} blocks contradict each other under every seed")
}

/// Thresholds of the buckets so far, two bits each, low bits first.
#[derive(Debug, Clone, Default)]
struct Thresholds {
    bytes: Vec<u8>,
    count: usize,
}

impl Thresholds {
    fn push(&mut self, threshold: u8) {
        if self.count.is_multiple_of(4) {
            self.bytes.push(0);
        }
        self.bytes[self.count / 4] |= threshold << (self.count % 4 * 2);
        self.count += 1;
    }
}
