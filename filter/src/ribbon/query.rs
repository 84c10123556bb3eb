//! A probe: the slots to add up, and the fingerprint to compare with.

use core::hint::cold_path;

use super::Ribbon;
use super::group::{Groups, LINE_WORDS, View};
use super::row::{self, Mixed, Source, TurnedRow};
use super::shape::{BLOCK_SLOTS, BUCKET_STARTS, GROUP_COLUMNS, GroupShape, Layer, is_bumped_at};

/// A hash to probe several filters with, and the shared part of its equation in the first layers of
/// ribbons above about 1,000 keys.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    pub(crate) hash: u64,
    pub(crate) mixed: Mixed,
}

impl Probe {
    const SEED: u64 = row::seed(0, 0);

    /// Prepares probes for `hash`, in about 2 ns.
    #[inline(always)]
    #[must_use]
    pub fn new(hash: u64) -> Self {
        Self { hash, mixed: Mixed::new(hash, Self::SEED) }
    }

    /// Returns the probe for this filter, whose seed may differ.
    #[inline(always)]
    pub(crate) fn for_filter(self, ribbon: &Ribbon) -> Self {
        let seed = ribbon.front.seed;
        if seed == Self::SEED { self } else { Self { mixed: Mixed::new(self.hash, seed), ..self } }
    }
}

/// The position of a hash's equation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) block: u64,
    /// Slot of `block` at which it starts. Coefficients of slots before it belong to the next
    /// block.
    pub(crate) offset: u64,
    pub(crate) fingerprint: u32,
    /// As [`TurnedRow::coefficients`].
    pub(crate) coefficients: u64,
}

impl Place {
    /// Converts a row whose start counts from the first slot of all layers.
    #[inline(always)]
    pub(crate) fn new(row: TurnedRow) -> Self {
        Self {
            block: row.start / BLOCK_SLOTS,
            offset: row.start % BLOCK_SLOTS,
            fingerprint: row.fingerprint,
            coefficients: row.coefficients,
        }
    }

    /// Returns the coefficients within `block`.
    #[inline(always)]
    pub(crate) fn low(&self) -> u64 {
        self.coefficients & u64::MAX << self.offset | 1 << self.offset
    }

    /// Returns the coefficients within the next block.
    #[inline(always)]
    pub(crate) fn high(&self) -> u64 {
        self.coefficients & !(u64::MAX << self.offset)
    }

    /// Returns the position of `hash`, by the reference implementation.
    pub(crate) fn of(ribbon: &Ribbon, hash: u64) -> Self {
        Self::new(row_of(ribbon, hash))
    }

    /// Returns the position in the first layer, which holds most keys.
    #[inline(always)]
    pub(crate) fn first(ribbon: &Ribbon, mixed: Mixed) -> Self {
        Self::new(mixed.row(ribbon.front.starts))
    }

    /// Returns the position of a `hash` that the first two layers bump.
    #[inline(always)]
    pub(crate) fn bumped(ribbon: &Ribbon, hash: u64) -> Self {
        Self::new(row_of_bumped(ribbon, hash))
    }

    /// Returns the index of the first word of both blocks in `group`, and their number of columns.
    ///
    /// The eight words from each index on are in the group. The start is below the starts of its
    /// layer, whose blocks are in the group, as [`Ribbon::from_parts`] asserts. Zeros follow the
    /// last block.
    #[inline(always)]
    pub(crate) fn words(&self, group: View<'_>) -> (usize, usize, u8) {
        let GroupShape { columns, upper, blocks } = group.shape;
        debug_assert!(self.block < blocks, "block {} is outside of the group", self.block);
        // As in `GroupShape::first_word`.
        let is_lower = self.block < upper;
        let columns = columns - u8::from(is_lower);
        let missing = if is_lower { 0 } else { upper };
        let first = (self.block * u64::from(columns) - missing) as usize; // The group is in memory.
        (first, first + usize::from(columns), columns)
    }

    /// Prefetches the lines that a test of `group` reads.
    #[inline(always)]
    pub(crate) fn prefetch(&self, group: View<'_>) {
        let (first, next, _) = self.words(group);
        // Whole lines are read even if there are fewer columns.
        let end = next + LINE_WORDS - 1;
        group.prefetch(first);
        group.prefetch(end);
        // Two full blocks are two lines. Others may span three.
        if group.shape != (GroupShape { columns: GROUP_COLUMNS, upper: 0, ..group.shape }) {
            group.prefetch(end.min(first + LINE_WORDS));
        }
    }
}

/// The parameters of the first two layers. Most probes need no others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front {
    pub(crate) seed: u64,
    /// Starts of the first layer.
    pub(crate) starts: u64,
    factor: u64,
    second_starts: u64,
    /// First slot of the second layer.
    second_slot: u64,
    /// Offset of the second layer's starts in the numbering by whole buckets.
    second_bucket_start: u64,
}

impl Front {
    pub(crate) fn new(layers: &[Layer]) -> Self {
        // Without a second layer, the first one bumps no key.
        let (first, second) = (layers[0], layers.get(1).unwrap_or(&layers[0]));
        let (Source::Mix { seed } | Source::Second { first_seed: seed, .. }) = first.source;
        let factor = match second.source {
            Source::Second { factor, .. } => factor,
            Source::Mix { .. } => 1,
        };
        Self {
            seed,
            starts: first.starts,
            factor,
            second_starts: second.starts,
            second_slot: second.first_block * BLOCK_SLOTS,
            second_bucket_start: second.first_bucket * BUCKET_STARTS,
        }
    }

    /// Returns the equation in the first or second layer, with its start counted from the first
    /// slot of all layers; `None` if both bump the key.
    #[inline(always)]
    pub(crate) fn row(&self, ribbon: &Ribbon, mixed: Mixed) -> Option<TurnedRow> {
        let first = mixed.row(self.starts);
        if !is_bumped(ribbon, first.start) {
            return Some(first);
        }
        cold_path();
        let second = first.in_second(self.factor, self.second_starts);
        if is_bumped(ribbon, self.second_bucket_start + second.start) {
            return None;
        }
        Some(TurnedRow { start: self.second_slot + second.start, ..second })
    }
}

/// Returns the equation of `hash` in the layer that keeps it.
fn row_of(ribbon: &Ribbon, hash: u64) -> TurnedRow {
    row_among(&ribbon.shape.layers, ribbon, hash)
}

/// Returns the equation of a `hash` that the first two layers bump.
#[inline(always)]
pub(crate) fn row_of_bumped(ribbon: &Ribbon, hash: u64) -> TurnedRow {
    row_among(&ribbon.shape.layers[2..], ribbon, hash)
}

/// Returns the equation of `hash` in the first of `layers` that keeps it, with its start counted
/// from the first slot of all layers. `layers` includes the last one.
#[inline(always)]
fn row_among(layers: &[Layer], ribbon: &Ribbon, hash: u64) -> TurnedRow {
    for layer in layers {
        let row = TurnedRow::new(hash, layer.source, layer.starts);
        if !is_bumped(ribbon, layer.first_bucket * BUCKET_STARTS + row.start) {
            return TurnedRow { start: layer.first_block * BLOCK_SLOTS + row.start, ..row };
        }
    }
    unreachable!("the last layer bumps no key");
}

/// Returns `true` if its layer bumps keys of this start, which counts from the first bucket of all
/// layers. In memory the last layer has thresholds that keep all keys.
#[inline(always)]
fn is_bumped(ribbon: &Ribbon, start: u64) -> bool {
    let byte = (start / (4 * BUCKET_STARTS)) as usize; // Four to a byte.
    debug_assert!(byte < ribbon.thresholds.len());
    // SAFETY: a start is below the starts of its layer, and `Ribbon::from_parts` ensures a
    // threshold for each bucket of each layer.
    let thresholds = unsafe { ribbon.thresholds.get_unchecked(byte) };
    is_bumped_at(start, *thresholds)
}

/// Probes by the reference implementation.
#[inline(never)]
pub(crate) fn portable(ribbon: &Ribbon, hash: u64) -> bool {
    test_all(ribbon, &Place::of(ribbon, hash), matches)
}

/// Returns `true` if the slots of `place` add up to its fingerprint in all columns of `group`.
pub(crate) fn matches(group: View<'_>, place: &Place, fingerprint: u8) -> bool {
    let (_, _, columns) = place.words(group);
    (0..columns).fold(true, |all, column| all & matches_column(group, place, fingerprint, column))
}

/// Does the same as [`matches`], for one column.
#[inline(always)]
pub(crate) fn matches_column(group: View<'_>, place: &Place, fingerprint: u8, column: u8) -> bool {
    let (first, next, _) = place.words(group);
    let column = usize::from(column);
    let low = group.word(first + column) & place.low();
    let slots = low ^ (group.word(next + column) & place.high());
    slots.count_ones() & 1 == u32::from(fingerprint >> column & 1)
}

/// Probes with `test`, or with one of the other functions in rarer cases.
///
/// One key in 13, or in 18 of a large filter, is bumped from the first layer. This branch is
/// unpredictable and costs about 15 ns in the caches, less if the second place is found earlier. It
/// is a third of the total: without bumped keys a probe took 2.0 instead of 3.3 ns.
///
/// Alternatives tried: Both places and conditional moves take 1.4 ns more, because the load then
/// depends on the thresholds. Testing both places takes 3 ns more. Fewer loads for more
/// instructions, or products by `mulx` in assembly, gain nothing.
///
/// `probe_bumped` handles keys that the second layer bumps too, at most one in 170, and
/// `probe_groups` handles several groups. They are separate functions, so that other probes do not
/// save registers for them. From memory, the number of concurrent probes is limited by the reorder
/// buffer: each instruction counts, and so does each taken jump.
#[inline(always)]
pub(crate) fn test_one(
    ribbon: &Ribbon,
    hash: u64,
    mixed: Mixed,
    test: impl Fn(View<'_>, &Place, u8) -> bool,
    probe_bumped: impl Fn(&Ribbon, u64) -> bool,
    probe_groups: impl Fn(&Ribbon, TurnedRow) -> bool,
) -> bool {
    let group = ribbon.groups.first.view();
    // Conditions that are the same for all probes of a filter come first, so that loops hoist them.
    if !ribbon.groups.others.is_empty() {
        let row = ribbon.front.row(ribbon, mixed);
        row.map_or_else(|| probe_bumped(ribbon, hash), |row| probe_groups(ribbon, row))
    } else if group.shape.upper > 0 {
        test_group(ribbon, group, hash, mixed, test, probe_bumped)
    } else {
        test_group(ribbon, group.unmixed(), hash, mixed, test, probe_bumped)
    }
}

/// Does the same as [`test_one`], for a filter of one group.
#[inline(always)]
pub(crate) fn test_group(
    ribbon: &Ribbon,
    group: View<'_>,
    hash: u64,
    mixed: Mixed,
    test: impl Fn(View<'_>, &Place, u8) -> bool,
    probe_bumped: impl Fn(&Ribbon, u64) -> bool,
) -> bool {
    let Some(row) = ribbon.front.row(ribbon, mixed) else { return probe_bumped(ribbon, hash) };
    let place = Place::new(row);
    test(group, &place, place.fingerprint as u8)
}

/// Tests all groups with `test`. Most absent keys are rejected by the first one.
#[inline(always)]
pub(crate) fn test_all(
    ribbon: &Ribbon,
    place: &Place,
    test: impl Fn(View<'_>, &Place, u8) -> bool,
) -> bool {
    let Groups { first, others } = &ribbon.groups;
    let is_match = test(first.view(), place, place.fingerprint as u8);
    if others.is_empty() {
        return is_match;
    }
    let prints = place.fingerprint.to_le_bytes();
    is_match
        && prints[1..].iter().zip(others).all(|(&print, group)| test(group.view(), place, print))
}
