//! Asking a filter: which slots, and what they must add up to.

use super::Ribbon;
use super::group::{Group, Groups, LINE_WORDS};
use super::row::{self, Mixed, TurnedRow};
use super::shape::{BLOCK_SLOTS, BUCKET_STARTS, GROUP_COLUMNS, GroupShape, is_bumped_at};

/// So many questions of a batch are on their way from memory at once: twice as many loads as a core
/// keeps under way. With 32 a question takes a third longer at 10^8 keys, with 16 twice as long.
pub(crate) const BATCH: usize = 64;

/// A hash that several filters are asked for, and what the first layers of all ribbons of more than some
/// 1,000 keys make of it alike.
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
        let seed = ribbon.first.seed;
        if seed == Self::SEED { self } else { Self { mixed: Mixed::new(self.hash, seed), ..self } }
    }
}

/// Where the equation of a hash lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) block: u64,
    /// The slot of `block` where it starts. Coefficients of slots before that one are of the block behind it.
    pub(crate) offset: u64,
    pub(crate) fingerprint: u32,
    /// As [`TurnedRow::coefficients`].
    pub(crate) coefficients: u64,
}

impl Place {
    pub(crate) const NOWHERE: Self = Self { block: 0, offset: 0, fingerprint: 0, coefficients: 0 };

    #[inline(always)]
    pub(crate) fn new(row: TurnedRow, first_block: u64) -> Self {
        Self {
            block: first_block + row.start / BLOCK_SLOTS,
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

    /// The place of `hash` in the layer that it is not bumped from.
    #[inline(always)]
    pub(crate) fn of(ribbon: &Ribbon, hash: u64) -> Self {
        let row = ribbon.first.row(hash);
        if is_bumped(ribbon, 0, row.start) {
            Self::of_bumped(ribbon, hash)
        } else {
            Self::new(row, 0)
        }
    }

    /// The place of a `hash` that is bumped from the first layer.
    #[inline(always)]
    pub(crate) fn of_bumped(ribbon: &Ribbon, hash: u64) -> Self {
        for layer in &ribbon.shape.layers[1..] {
            let row = TurnedRow::new(hash, layer.seed, layer.starts);
            if !is_bumped(ribbon, layer.first_bucket, row.start) {
                return Self::new(row, layer.first_block);
            }
        }
        unreachable!("the last layer bumps no key");
    }

    /// Becomes the place of a `hash` that is bumped from the first layer. Not inlined: see
    /// [`test_one`].
    #[inline(never)]
    fn find_bumped(&mut self, ribbon: &Ribbon, hash: u64) {
        *self = Self::of_bumped(ribbon, hash);
    }

    /// Becomes [`Place::of`] this hash, and asks for its lines.
    ///
    /// A copy made afterwards would wait for its parts. A closure would not be inlined, and so be
    /// compiled for any processor.
    #[inline(always)]
    fn find(&mut self, ribbon: &Ribbon, hash: u64) {
        let row = ribbon.first.row(hash);
        if is_bumped(ribbon, 0, row.start) {
            self.find_bumped(ribbon, hash);
        } else {
            *self = Self::new(row, 0);
        }
        self.prefetch(ribbon);
    }

    /// The place of `hash` in the first layer, where most keys are.
    #[inline(always)]
    pub(crate) fn first(ribbon: &Ribbon, hash: u64) -> Self {
        Self::new(ribbon.first.row(hash), 0)
    }

    /// Where `group` holds the words of the two blocks, and how many each has.
    ///
    /// The eight words from each place on are in the group: a start is below those of its layer, whose
    /// blocks are in the group, as [`Ribbon::from_parts`] asserts, and behind the last there are zeros.
    #[inline(always)]
    pub(crate) fn words(&self, group: &Group) -> (usize, usize, u8) {
        let GroupShape { columns, upper, blocks } = group.shape;
        debug_assert!(self.block < blocks, "a place is in its group");
        // As in `GroupShape::first_word`.
        let is_lower = self.block < upper;
        let columns = columns - u8::from(is_lower);
        let missing = if is_lower { 0 } else { upper };
        let first = (self.block * u64::from(columns) - missing) as usize; // The group is in memory.
        (first, first + usize::from(columns), columns)
    }

    /// Asks for the lines that a test of the first group will read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, ribbon: &Ribbon) {
        let group = &ribbon.groups.first;
        let (first, next, columns) = self.words(group);
        let end = (next + usize::from(columns)).saturating_sub(1);
        group.prefetch(first);
        group.prefetch(end);
        // Two blocks of full lines are two lines. Others may lie on three.
        if group.shape != (GroupShape { columns: GROUP_COLUMNS, upper: 0, ..group.shape }) {
            group.prefetch(end.min(first + LINE_WORDS));
        }
    }
}

/// What a question needs of the first layer: most need no other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct First {
    pub(crate) seed: u64,
    pub(crate) starts: u64,
}

impl First {
    #[inline(always)]
    fn row(self, hash: u64) -> TurnedRow {
        TurnedRow::new(hash, self.seed, self.starts)
    }
}

/// Whether the layer whose buckets begin with `first_bucket` bumps keys of this start. The last one
/// has thresholds in memory that keep all.
#[inline(always)]
fn is_bumped(ribbon: &Ribbon, first_bucket: u64, start: u64) -> bool {
    let bucket = first_bucket + start / BUCKET_STARTS;
    let byte = (bucket / 4) as usize; // Four to a byte.
    debug_assert!(byte < ribbon.thresholds.len());
    // SAFETY: a start is below those of its layer, and `Ribbon::from_parts` sees to it that there is a
    // threshold for each bucket of each layer.
    let thresholds = unsafe { ribbon.thresholds.get_unchecked(byte) };
    let threshold = thresholds >> (bucket % 4 * 2);
    is_bumped_at(start % BUCKET_STARTS, threshold)
}

/// Answers a question by the definition.
#[inline(never)]
pub(crate) fn portable(ribbon: &Ribbon, hash: u64) -> bool {
    test_all(ribbon, &Place::of(ribbon, hash), matches)
}

/// Whether the slots of `place` add up to its fingerprint, in all columns of `group`.
pub(crate) fn matches(group: &Group, place: &Place, fingerprint: u8) -> bool {
    let (first, next, columns) = place.words(group);
    (0..usize::from(columns)).fold(true, |all, j| {
        let slots = (group.word(first + j) & place.low()) ^ (group.word(next + j) & place.high());
        all & (slots.count_ones() & 1 == u32::from(fingerprint >> j & 1))
    })
}

/// Answers a question with `test`, or with one of the others where there is more to do.
///
/// `of_bumped` answers for a key that is bumped from the first layer: one in 13 is, of a large
/// layer one in 18, no processor guesses which, and each costs some 20 ns in the caches. Without a branch every question takes longer: 1 ns to choose
/// between the places in the first two layers, as the load then waits for the threshold, and as much to look at
/// both places, be the second derived from the first ever so cheaply. Nor does that pay where the branch stays.
/// `of_many` tests more groups than one. Both are functions of their own, so that other questions pay
/// nothing for them, not even the saving of registers. From memory a core asks as many questions at
/// once as it holds instructions of: each counts.
#[inline(always)]
pub(crate) fn test_one(
    ribbon: &Ribbon,
    hash: u64,
    mixed: Mixed,
    test: impl Fn(&Group, &Place, u8) -> bool,
    of_bumped: impl Fn(&Ribbon, u64) -> bool,
    of_many: impl Fn(&Ribbon, TurnedRow) -> bool,
) -> bool {
    let row = mixed.row(ribbon.first.starts);
    if is_bumped(ribbon, 0, row.start) {
        return of_bumped(ribbon, hash);
    }
    if !ribbon.groups.others.is_empty() {
        return of_many(ribbon, row);
    }
    let group = &ribbon.groups.first;
    let place = Place::new(row, 0);
    if group.shape.upper > 0 {
        // Mixed columns: the same, compiled apart, because without them there is less to compute.
        return test(group, &place, place.fingerprint as u8);
    }
    test(group, &place, place.fingerprint as u8)
}

/// Tests all groups with `test`; most absent keys leave at the first one.
#[inline(always)]
pub(crate) fn test_all(
    ribbon: &Ribbon,
    place: &Place,
    test: impl Fn(&Group, &Place, u8) -> bool,
) -> bool {
    let Groups { first, others } = &ribbon.groups;
    let is_met = test(first, place, place.fingerprint as u8);
    if others.is_empty() {
        return is_met;
    }
    let prints = place.fingerprint.to_le_bytes();
    is_met && prints[1..].iter().zip(others).all(|(&print, group)| test(group, place, print))
}

/// Tests a batch with `test`. Each answer is found [`BATCH`] questions after its place, when the lines
/// are there; a batch of fewer finds all places first.
#[inline(always)]
pub(crate) fn test_batch(
    ribbon: &Ribbon,
    hashes: &[u64],
    answers: &mut [bool],
    test: impl Fn(&Group, &Place, u8) -> bool,
) {
    if hashes.len() <= BATCH / 2 {
        test_small_batch(ribbon, hashes, answers, test);
        return;
    }
    let mut places = [Place::NOWHERE; BATCH];
    let (ahead, hashes) = hashes.split_at(hashes.len().min(BATCH));
    for (place, &hash) in places.iter_mut().zip(ahead) {
        place.find(ribbon, hash);
    }
    let (answers, last_answers) = answers.split_at_mut(hashes.len());
    for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
        for ((&hash, answer), place) in hashes.iter().zip(answers).zip(&mut places) {
            *answer = test_all(ribbon, place, &test);
            place.find(ribbon, hash);
        }
    }
    // The oldest place left is where the loop ended.
    places[..ahead.len()].rotate_left(hashes.len() % BATCH);
    for (answer, place) in last_answers.iter_mut().zip(&places) {
        *answer = test_all(ribbon, place, &test);
    }
}

/// The same for half as many hashes at most: most batches are small, and each place has to be set up.
#[inline(always)]
fn test_small_batch(
    ribbon: &Ribbon,
    hashes: &[u64],
    answers: &mut [bool],
    test: impl Fn(&Group, &Place, u8) -> bool,
) {
    let mut places = [Place::NOWHERE; BATCH / 2];
    for (place, &hash) in places.iter_mut().zip(hashes) {
        place.find(ribbon, hash);
    }
    for (answer, place) in answers.iter_mut().zip(&places) {
        *answer = test_all(ribbon, place, &test);
    }
}
