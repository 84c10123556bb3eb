//! Asking a filter: which slots, and what they must add up to.

use super::Ribbon;
use super::group::{Group, LINE_WORDS};
use super::row::TurnedRow;
use super::shape::{BLOCK_SLOTS, BUCKET_STARTS, Layer, kept_from};
use crate::line::prefetch;

/// So many questions of a batch are on their way from memory at once.
pub(crate) const BATCH: usize = 32;

/// Where the equation of a hash lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) block: u64,
    /// Coefficients within `block`, and within the block behind it.
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) fingerprint: u32,
}

impl Place {
    pub(crate) const NOWHERE: Self = Self { block: 0, low: 0, high: 0, fingerprint: 0 };

    #[inline(always)]
    fn new(row: TurnedRow, first_block: u64) -> Self {
        let offset = row.start % BLOCK_SLOTS;
        let in_block = u64::MAX << offset;
        Self {
            block: first_block + row.start / BLOCK_SLOTS,
            low: row.coefficients & in_block | 1 << offset,
            high: row.coefficients & !in_block,
            fingerprint: row.fingerprint,
        }
    }

    /// The place of `hash` in the layer that it is not bumped from.
    #[inline(always)]
    pub(crate) fn of(ribbon: &Ribbon, hash: u64) -> Self {
        let mut layers = ribbon.shape.layers.iter();
        loop {
            let layer = layers.next().expect("the last layer bumps no key");
            let row = TurnedRow::new(hash, layer.seed, layer.starts);
            // One key in sixteen is bumped from a layer, and no processor guesses which. To choose the
            // layer without a branch was slower still: the choice must then wait for the threshold.
            if !is_bumped(ribbon, layer, row.start) {
                return Self::new(row, layer.first_block);
            }
        }
    }

    /// The place of `hash` in the first layer, where most keys are.
    #[inline(always)]
    pub(crate) fn first(ribbon: &Ribbon, hash: u64) -> Self {
        let layer = &ribbon.shape.layers[0];
        Self::new(TurnedRow::new(hash, layer.seed, layer.starts), layer.first_block)
    }

    /// Where `group` holds the words of the two blocks, and how many each has.
    ///
    /// Both are in the group: behind its last block there are zeros.
    #[inline(always)]
    pub(crate) fn words(&self, group: &Group) -> (usize, usize, u8) {
        let columns = group.shape.block_columns(self.block);
        let first = group.shape.first_word(self.block) as usize; // The group is in memory.
        (first, first + usize::from(columns), columns)
    }

    /// Asks for the lines that a test of the first group will read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, ribbon: &Ribbon) {
        let group = &ribbon.groups[0];
        let (first, next, columns) = self.words(group);
        let end = (next + usize::from(columns)).saturating_sub(1);
        for word in [first, end] {
            if let Some(line) = group.lines.get(word / LINE_WORDS) {
                prefetch(line);
            }
        }
    }
}

/// Whether `layer` bumps keys of this start. The last one has thresholds in memory that keep all.
#[inline(always)]
fn is_bumped(ribbon: &Ribbon, layer: &Layer, start: u64) -> bool {
    let bucket = layer.first_bucket + start / BUCKET_STARTS;
    // Four to a byte; there are as many as the layers need.
    let threshold = ribbon.thresholds[(bucket / 4) as usize] >> (bucket % 4 * 2);
    start % BUCKET_STARTS < kept_from(threshold)
}

/// Whether the slots of `place` add up to its fingerprint, in all columns of `group`.
pub(crate) fn matches(group: &Group, place: &Place, fingerprint: u8) -> bool {
    let (first, next, columns) = place.words(group);
    (0..usize::from(columns)).fold(true, |all, j| {
        let slots = (group.word(first + j) & place.low) ^ (group.word(next + j) & place.high);
        all & (slots.count_ones() & 1 == u32::from(fingerprint >> j & 1))
    })
}

/// Tests all groups with `test`; most absent keys leave at the first one.
#[inline(always)]
pub(crate) fn test_all(
    ribbon: &Ribbon,
    place: &Place,
    test: impl Fn(&Group, &Place, u8) -> bool,
) -> bool {
    let mut fingerprint = place.fingerprint;
    for group in &ribbon.groups {
        if !test(group, place, fingerprint as u8) {
            return false;
        }
        fingerprint >>= 8;
    }
    true
}

/// Tests a batch with `test`: first all places, so that their lines are loaded side by side.
#[inline(always)]
pub(crate) fn test_batch(
    ribbon: &Ribbon,
    hashes: &[u64],
    answers: &mut [bool],
    test: impl Fn(&Group, &Place, u8) -> bool,
) {
    for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
        let mut places = [Place::NOWHERE; BATCH];
        for (place, &hash) in places.iter_mut().zip(hashes) {
            *place = Place::of(ribbon, hash);
            place.prefetch(ribbon);
        }
        for (answer, place) in answers.iter_mut().zip(&places) {
            *answer = test_all(ribbon, place, &test);
        }
    }
}
