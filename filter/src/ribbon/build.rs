//! Builds a filter from hashes: layer after layer, then the slots.
//!
//! Peak memory besides the hashes, in bytes per key: 8 for the sorted hashes of a layer, 12 for
//! each slot (17 slots per 18 keys), and 8 per bumped key (about 0.06). Together these are 20
//! bytes; 19.8 were measured at ten million keys. Later layers and the filter are allocated after
//! the sorted hashes are freed.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::num::NonZeroU8;

#[cfg(not(feature = "std"))]
use crate::float::Float;

use super::Ribbon;
use super::band::{Band, Elimination};
use super::group::{Group, Groups};
use super::order::Chunks;
use super::path::Path;
use super::row::{Row, Source, WIDTH};
use super::rows::RowVec;
use super::shape::{
    BLOCK_SLOTS, BUCKET_STARTS, GROUP_COLUMNS, LAYERS_MAX, Shape, bumping_blocks, kept_from,
    layer_starts,
};
use super::solve::solve;
use crate::arena::FilterArena;

/// Maximum keys for the last two layers. The first of them is tried with several seeds until nearly
/// all its slots are used. The last one has one block.
const TAIL_KEYS_MAX: usize = 1_024;

/// Seeds for the last layer but one, per number of blocks.
const ROUNDS: u8 = 16;

/// Seeds for the last layer, per seed of the one before.
const ATTEMPTS: u8 = 4;

/// Builds a filter of `bits_per_key` columns, from 1 to 32, mixed if fractional. Returns `None`
/// once `is_cancelled` returns `true`, which it must then always do.
pub(crate) fn build(
    path: Path,
    hashes: &[u64],
    bits_per_key: f64,
    is_cancelled: &dyn Fn() -> bool,
) -> Option<Ribbon> {
    let columns = bits_per_key.ceil() as u8; // From 1 to 32.
    let columns = NonZeroU8::new(columns).expect("at least one column");
    let key_count = distinct(hashes);
    let Layers { bands, thresholds, attempt, .. } =
        Layers::new(path, columns, hashes, is_cancelled)?;

    let blocks: Vec<u64> = bands.iter().map(Band::blocks).collect();
    let mut shape = Shape::new(columns, &blocks, attempt);
    let missing = f64::from(columns.get()) - bits_per_key;
    // A share below 1 of the blocks.
    shape.upper = (shape.blocks as f64 * missing).round() as u64;
    // On the heap, because most filters are written to a file and loaded from there into an arena.
    let heap = FilterArena::heap();
    let groups = (0..shape.group_count()).map(|index| {
        let mut group = Group::zeroed(shape.group(index), &heap);
        if !is_cancelled() {
            solve(path, &bands, index, &mut group);
        }
        group
    });
    let groups = Groups::new(groups);
    if is_cancelled() {
        return None;
    }
    Some(Ribbon::from_parts(path, shape, groups, thresholds.bytes, key_count as u64))
}

/// The systems of equations of the layers.
#[derive(Debug, Clone)]
struct Layers {
    columns: NonZeroU8,
    elimination: Elimination,
    bands: Vec<Band>,
    /// Starts of the first layer, from the second layer on.
    first_starts: u64,
    thresholds: Thresholds,
    attempt: u16,
}

impl Layers {
    fn new(
        path: Path,
        columns: NonZeroU8,
        hashes: &[u64],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let groups = usize::from(columns.get().div_ceil(GROUP_COLUMNS));
        let mut layers = Self {
            columns,
            elimination: Elimination::new(path, groups),
            bands: Vec::new(),
            first_starts: 0,
            thresholds: Thresholds::default(),
            attempt: 0,
        };
        let mut keys = Cow::Borrowed(hashes);
        // Duplicates are adjacent at the latest after a layer has sorted them.
        let mut count = distinct(&keys);
        while count > TAIL_KEYS_MAX && layers.bands.len() + 2 < LAYERS_MAX {
            keys = Cow::Owned(layers.bump(&keys, bumping_blocks(count as u64), 0, is_cancelled));
            if is_cancelled() {
                return None;
            }
            count = distinct(&keys);
        }
        if !layers.fill(&keys, count) {
            layers.keep(&keys, count);
        }
        Some(layers)
    }

    /// Adds a layer of `blocks` blocks that keeps most keys, and returns those that it bumps. The
    /// layer is incomplete once `is_cancelled`.
    fn bump(
        &mut self,
        keys: &[u64],
        blocks: u64,
        round: u8,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Vec<u64> {
        let starts = layer_starts(blocks, false);
        // Layers before it have round 0.
        let attempt = u16::from_le_bytes([0, round]);
        let source = Source::new(self.bands.len(), attempt, 0, self.first_starts);
        let chunks = Chunks::new(keys, source, starts);
        self.elimination.start(blocks);
        let mut bumped = Vec::with_capacity(chunks.len() / 14);
        let mut rows = RowVec::default();
        chunks.for_each_bucket(BUCKET_STARTS.ilog2(), |bucket, hashes| {
            if is_cancelled() {
                return;
            }
            rows.clear();
            rows.extend(hashes.iter().map(|&hash| row(hash, source, starts, self.columns)));
            let first = bucket as u64 * BUCKET_STARTS;
            let taken = self.elimination.rows_from(first as usize); // An index into memory.
            // Threshold 0 bumps the whole bucket, which always succeeds.
            for threshold in (0..=3).rev() {
                let from = first + kept_from(threshold);
                let kept = rows.as_rows().starts.partition_point(|&start| start < from);
                let (_, rows) = rows.as_rows().split_at(kept);
                if !is_crowded(rows.starts, first, taken) && self.elimination.insert_all(rows) {
                    bumped.extend_from_slice(&hashes[..kept]);
                    self.thresholds.push(threshold);
                    break;
                }
            }
        });
        if self.bands.is_empty() {
            self.first_starts = starts;
        }
        debug_assert!(bumped.len() <= chunks.len(), "a layer bumps only its own keys");
        self.bands.push(self.elimination.finish());
        debug_assert_eq!(self.bands.last().map(Band::blocks), Some(blocks));
        bumped
    }

    /// Adds a layer that keeps all keys, if their equations and the remaining rows are consistent
    /// under this attempt.
    fn try_keep(&mut self, keys: &[u64], blocks: u64, attempt: u16) -> bool {
        let starts = layer_starts(blocks, true);
        // The high byte is the round of the previous layer.
        let first_attempt = attempt & 0xff00;
        let source = Source::new(self.bands.len(), attempt, first_attempt, self.first_starts);
        let mut sorted: Vec<Row> =
            keys.iter().map(|&hash| row(hash, source, starts, self.columns)).collect();
        sorted.sort_unstable_by_key(|row| row.start);
        let mut rows = RowVec::default();
        rows.extend(sorted);
        self.elimination.start(blocks);
        debug_assert!(rows.as_rows().starts.iter().all(|&start| start < starts));
        let is_kept = self.elimination.insert_all(rows.as_rows());
        if is_kept {
            self.bands.push(self.elimination.finish());
            self.attempt = attempt;
        }
        is_kept
    }

    /// Adds the last two layers for `count` distinct keys, with as few blocks as several seeds
    /// allow, or nothing.
    ///
    /// A single block has one start: its keys use the slots that the previous layer left free.
    fn fill(&mut self, keys: &[u64], count: usize) -> bool {
        if count > TAIL_KEYS_MAX {
            return false;
        }
        let slots = count as u64 + u64::from(self.elimination.rows_from(0));
        let least = slots.div_ceil(BLOCK_SLOTS).max(1);
        for blocks in least..least + 3 {
            for round in 0..ROUNDS {
                let mut tail = self.tail();
                let bumped = if blocks > 1 {
                    Cow::Owned(tail.bump(keys, blocks - 1, round, &|| false))
                } else {
                    Cow::Borrowed(keys)
                };
                let slots = bumped.len() as u64 + u64::from(tail.elimination.rows_from(0));
                if slots > BLOCK_SLOTS {
                    continue;
                }
                // Without a previous layer, `round` extends the attempts.
                for number in 0..ATTEMPTS {
                    let number =
                        if blocks > 1 { [number, round] } else { [ATTEMPTS * round + number, 0] };
                    if tail.try_keep(&bumped, 1, u16::from_le_bytes(number)) {
                        tail.bands.splice(..self.bands.len(), self.bands.drain(..));
                        *self = tail;
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Copies the state with empty bands in place of the layers so far.
    fn tail(&self) -> Self {
        let bands = self.bands.iter().map(|_| Band::default()).collect();
        Self {
            bands,
            thresholds: self.thresholds.clone(),
            elimination: self.elimination.clone(),
            ..*self
        }
    }

    /// Adds a last layer for `count` distinct keys, for hashes that are not random.
    fn keep(&mut self, keys: &[u64], count: usize) {
        if self.bands.len() == 1 {
            // The second layer derives its equations from the first: keys that contradict each
            // other there do so in both.
            let keys = self.bump(keys, bumping_blocks(count as u64), 0, &|| false);
            let count = distinct(&keys);
            return self.keep(&keys, count);
        }
        let mut blocks = (count as u64).div_ceil(BLOCK_SLOTS) + 1;
        // With a previous layer, the high byte is that layer's and stays zero.
        let last = if self.bands.is_empty() { u16::MAX } else { u8::MAX.into() };
        for number in 0..=last {
            if self.try_keep(keys, blocks, number) {
                return;
            }
            if number % 16 == 15 && number < 256 {
                // Growing increments, so that the last sizes are ample for any hashes.
                blocks += blocks.div_ceil(20) << (number / 64);
            }
        }
        unreachable!("{count} keys in {blocks} blocks contradict each other with every seed")
    }
}

/// Counts the hashes that differ from their predecessors.
fn distinct(hashes: &[u64]) -> usize {
    hashes.chunk_by(|left, right| left == right).count()
}

/// Returns `true` if keys with these starts hardly fit, where `taken` of the slots from `first` on
/// have a row.
///
/// Keys up to a start can use the slots less than [`WIDTH`] after it, one slot each unless an
/// equation is redundant. Trying buckets that barely fit would bump as many keys in the end, and
/// take longer.
fn is_crowded(starts: &[u64], first: u64, taken: u32) -> bool {
    const SPARE: u64 = 2;
    let taken = (u64::from(taken) + 1..).zip(starts);
    taken.into_iter().any(|(taken, &start)| first + taken + SPARE > start + WIDTH)
}

/// Returns the equation of a key in the existing columns; others cannot contradict.
fn row(hash: u64, source: Source, starts: u64, columns: NonZeroU8) -> Row {
    let mut row = Row::new(hash, source, starts);
    row.fingerprint &= u32::MAX >> (u32::BITS - u32::from(columns.get()));
    row
}

/// Thresholds of the buckets so far, two bits each, low bits first.
#[derive(Debug, Clone, Default)]
struct Thresholds {
    bytes: Vec<u8>,
    count: usize,
}

impl Thresholds {
    fn push(&mut self, threshold: u8) {
        debug_assert!(threshold < 4, "a threshold has two bits");
        debug_assert_eq!(self.bytes.len(), self.count.div_ceil(4));
        if self.count.is_multiple_of(4) {
            self.bytes.push(0);
        }
        self.bytes[self.count / 4] |= threshold << (self.count % 4 * 2);
        self.count += 1;
    }
}
