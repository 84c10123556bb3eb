//! Asking a filter: which slots, and what they must add up to.

use core::hint::cold_path;

use super::Ribbon;
use super::group::{Groups, LINE_WORDS, View};
use super::row::{self, Mixed, Source, TurnedRow};
use super::shape::{BLOCK_SLOTS, BUCKET_STARTS, GROUP_COLUMNS, GroupShape, Layer, is_bumped_at};

/// A hash that several filters are asked for, and what the first layers of all ribbons of more than
/// some 1,000 keys make of it alike.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub(crate) hash: u64,
    pub(crate) mixed: Mixed,
}

impl Asked {
    const SEED: u64 = row::seed(0, 0);

    /// To ask filters for `hash`. Some two ns.
    #[inline(always)]
    #[must_use]
    pub fn new(hash: u64) -> Self {
        Self { hash, mixed: Mixed::new(hash, Self::SEED) }
    }

    /// The same for this filter.
    #[inline(always)]
    pub(crate) fn of(self, ribbon: &Ribbon) -> Self {
        let seed = ribbon.front.seed;
        if seed == Self::SEED { self } else { Self { mixed: Mixed::new(self.hash, seed), ..self } }
    }
}

/// Where the equation of a hash lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) block: u64,
    /// The slot of `block` where it starts. Coefficients of slots before that one are of the block
    /// behind it.
    pub(crate) offset: u64,
    pub(crate) fingerprint: u32,
    /// As [`TurnedRow::coefficients`].
    pub(crate) coefficients: u64,
}

impl Place {
    /// Of a row whose start counts from the first slot of all layers.
    #[inline(always)]
    pub(crate) fn new(row: TurnedRow) -> Self {
        Self {
            block: row.start / BLOCK_SLOTS,
            offset: row.start % BLOCK_SLOTS,
            fingerprint: row.fingerprint,
            coefficients: row.coefficients,
        }
    }

    /// Coefficients within `block`.
    #[inline(always)]
    pub(crate) fn low(&self) -> u64 {
        self.coefficients & u64::MAX << self.offset | 1 << self.offset
    }

    /// Coefficients within the block behind it.
    #[inline(always)]
    pub(crate) fn high(&self) -> u64 {
        self.coefficients & !(u64::MAX << self.offset)
    }

    /// The place of `hash`, by the definition.
    pub(crate) fn of(ribbon: &Ribbon, hash: u64) -> Self {
        Self::new(row_of(ribbon, hash))
    }

    /// The place in the first layer, where most keys are.
    #[inline(always)]
    pub(crate) fn first(ribbon: &Ribbon, mixed: Mixed) -> Self {
        Self::new(mixed.row(ribbon.front.starts))
    }

    /// The place of a `hash` that is bumped from the first two layers.
    #[inline(always)]
    pub(crate) fn of_bumped(ribbon: &Ribbon, hash: u64) -> Self {
        Self::new(row_of_bumped(ribbon, hash))
    }

    /// Where `group` holds the words of the two blocks, and how many each has.
    ///
    /// The eight words from each place on are in the group: a start is below those of its layer,
    /// whose blocks are in the group, as [`Ribbon::from_parts`] asserts, and behind the last there
    /// are zeros.
    #[inline(always)]
    pub(crate) fn words(&self, group: View<'_>) -> (usize, usize, u8) {
        let GroupShape { columns, upper, blocks } = group.shape;
        debug_assert!(self.block < blocks, "a place is in its group");
        // As in `GroupShape::first_word`.
        let is_lower = self.block < upper;
        let columns = columns - u8::from(is_lower);
        let missing = if is_lower { 0 } else { upper };
        let first = (self.block * u64::from(columns) - missing) as usize; // The group is in memory.
        (first, first + usize::from(columns), columns)
    }

    /// Asks for the lines that a test of `group` will read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, group: View<'_>) {
        let (first, next, _) = self.words(group);
        // Whole lines are read, also of fewer columns.
        let end = next + LINE_WORDS - 1;
        group.prefetch(first);
        group.prefetch(end);
        // Two blocks of full lines are two lines. Others may lie on three.
        if group.shape != (GroupShape { columns: GROUP_COLUMNS, upper: 0, ..group.shape }) {
            group.prefetch(end.min(first + LINE_WORDS));
        }
    }
}

/// What a question needs of the first two layers: most need no other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front {
    pub(crate) seed: u64,
    /// Of the first layer.
    pub(crate) starts: u64,
    factor: u64,
    second_starts: u64,
    /// The first slot of the second layer.
    second_slot: u64,
    /// What its starts would count from if all layers consisted of whole buckets.
    second_bucket_start: u64,
}

impl Front {
    pub(crate) fn new(layers: &[Layer]) -> Self {
        // If there is no second one, the first bumps no key.
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

    /// The equation in the first or the second layer, whose starts count from the first slot of
    /// all, or `None` if both bump the key.
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

/// The equation of `hash` in the layer that it is not bumped from.
fn row_of(ribbon: &Ribbon, hash: u64) -> TurnedRow {
    row_among(&ribbon.shape.layers, ribbon, hash)
}

/// The equation of a `hash` that is bumped from the first two layers.
#[inline(always)]
pub(crate) fn row_of_bumped(ribbon: &Ribbon, hash: u64) -> TurnedRow {
    row_among(&ribbon.shape.layers[2..], ribbon, hash)
}

/// The equation of `hash` in the first of `layers`, to which the last one belongs, that it is not
/// bumped from. Its start counts from the first slot of all.
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

/// Whether its layer bumps keys of this start, which counts from the first bucket of all. The last
/// layer has thresholds in memory that keep all.
#[inline(always)]
fn is_bumped(ribbon: &Ribbon, start: u64) -> bool {
    let byte = (start / (4 * BUCKET_STARTS)) as usize; // Four to a byte.
    debug_assert!(byte < ribbon.thresholds.len());
    // SAFETY: a start is below those of its layer, and `Ribbon::from_parts` sees to it that there
    // is a threshold for each bucket of each layer.
    let thresholds = unsafe { ribbon.thresholds.get_unchecked(byte) };
    is_bumped_at(start, *thresholds)
}

/// Answers a question by the definition.
#[inline(never)]
pub(crate) fn portable(ribbon: &Ribbon, hash: u64) -> bool {
    test_all(ribbon, &Place::of(ribbon, hash), matches)
}

/// Whether the slots of `place` add up to its fingerprint, in all columns of `group`.
pub(crate) fn matches(group: View<'_>, place: &Place, fingerprint: u8) -> bool {
    let (_, _, columns) = place.words(group);
    (0..columns).fold(true, |all, column| all & matches_column(group, place, fingerprint, column))
}

/// The same for one column.
#[inline(always)]
pub(crate) fn matches_column(group: View<'_>, place: &Place, fingerprint: u8, column: u8) -> bool {
    let (first, next, _) = place.words(group);
    let column = usize::from(column);
    let low = group.word(first + column) & place.low();
    let slots = low ^ (group.word(next + column) & place.high());
    slots.count_ones() & 1 == u32::from(fingerprint >> column & 1)
}

/// Answers a question with `test`, or with one of the others where there is more to do.
///
/// One key in 13, of a large filter in 18, is bumped from the first layer, and no processor guesses
/// which: that costs some 15 ns in the caches, the less the sooner its other place is found. It is
/// a third of all the time: with no key bumped, a question took 2.0 instead of 3.3 ns. Without the
/// branch every question takes longer, 1.4 ns with both places and conditional moves, as the load
/// then waits for the thresholds, and 3 ns to look at both. Fewer loads for more instructions, or
/// the products by `mulx` in assembly, gain nothing. `of_bumped` answers for keys that the second
/// layer bumps, too, one in 170 or fewer, and `of_many` tests more groups than one. Both are
/// functions of their own, so that other questions pay nothing for them, not even the saving of
/// registers. From memory a core asks as many questions at once as it holds instructions of: each
/// counts, and so does each jump that is taken.
#[inline(always)]
pub(crate) fn test_one(
    ribbon: &Ribbon,
    hash: u64,
    mixed: Mixed,
    test: impl Fn(View<'_>, &Place, u8) -> bool,
    of_bumped: impl Fn(&Ribbon, u64) -> bool,
    of_many: impl Fn(&Ribbon, TurnedRow) -> bool,
) -> bool {
    let group = ribbon.groups.first.view();
    // What is the same for all questions of a filter comes first, where a loop asks it once.
    if !ribbon.groups.others.is_empty() {
        let row = ribbon.front.row(ribbon, mixed);
        row.map_or_else(|| of_bumped(ribbon, hash), |row| of_many(ribbon, row))
    } else if group.shape.upper > 0 {
        test_group(ribbon, group, hash, mixed, test, of_bumped)
    } else {
        test_group(ribbon, group.unmixed(), hash, mixed, test, of_bumped)
    }
}

/// As [`test_one`], of a filter of one group.
#[inline(always)]
pub(crate) fn test_group(
    ribbon: &Ribbon,
    group: View<'_>,
    hash: u64,
    mixed: Mixed,
    test: impl Fn(View<'_>, &Place, u8) -> bool,
    of_bumped: impl Fn(&Ribbon, u64) -> bool,
) -> bool {
    let Some(row) = ribbon.front.row(ribbon, mixed) else { return of_bumped(ribbon, hash) };
    let place = Place::new(row);
    test(group, &place, place.fingerprint as u8)
}

/// Tests all groups with `test`; most absent keys leave at the first one.
#[inline(always)]
pub(crate) fn test_all(
    ribbon: &Ribbon,
    place: &Place,
    test: impl Fn(View<'_>, &Place, u8) -> bool,
) -> bool {
    let Groups { first, others } = &ribbon.groups;
    let is_met = test(first.view(), place, place.fingerprint as u8);
    if others.is_empty() {
        return is_met;
    }
    let prints = place.fingerprint.to_le_bytes();
    is_met && prints[1..].iter().zip(others).all(|(&print, group)| test(group.view(), place, print))
}
