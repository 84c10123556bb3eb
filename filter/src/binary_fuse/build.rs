//! From hashes to slots: peeling.
//!
//! A key that is alone in one of its slots can always be satisfied by that slot, whatever the
//! others hold. So it is set aside, which leaves others alone; and when all are set aside, the
//! slots are filled in the reverse order. If some keys never stand alone, another seed is tried.
//!
//! Memory beside the hashes, in bytes a key of a large set: 8 for the mixed hashes, which come to
//! stand in the order of peeling, 1 for the slot each was alone in, and 10.1 for the sum of the
//! hashes and their number in each slot. 19.1 together, less than 20 with what waits to be peeled;
//! the filter comes when the sums are gone. If equal hashes stand apart, 8 more for a sorted copy.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::place::{ATTEMPTS, Hasher, SATURATED};
use super::print::Print;
use super::shape::{ARITY, Shape};
use crate::{
    arena::{FilterArena, Slice},
    page_vec::{self, PageVec, SystemPages},
};

/// More keys than this are put in the order of their first slots, so that their sums are in the
/// cache.
const IN_CACHE: usize = 65_536;

/// Slots that are searched for lonely keys at a time: what waits to be peeled is then little more.
const SCANNED: usize = 1_024;

/// One key in the count of a slot; the bits below are the XOR of the ranks, 0 to 2, that the slot
/// has among the slots of its keys.
const ONE: u8 = 4;

/// A filter's slots, and how they came about.
pub(crate) struct Built<P> {
    pub(crate) shape: Shape,
    pub(crate) attempt: u8,
    pub(crate) slots: Slice<P>,
    /// Different hashes.
    pub(crate) key_count: u64,
}

/// Builds a filter with at most `attempts` seeds. Returns `None` once `is_cancelled` returns
/// `true`, as it must from then on.
pub(crate) fn build<P: Print>(
    hashes: &[u64],
    attempts: u8,
    is_cancelled: &dyn Fn() -> bool,
) -> Option<Built<P>> {
    let mut hashes = Cow::Borrowed(hashes);
    for attempt in 0..attempts.min(ATTEMPTS) {
        let keys = distinct(&hashes).count();
        let shape = Shape::new(keys as u64, attempt);
        let hasher = Hasher::new(shape, attempt);
        let slots = shape.slots() as usize; // Hardly more than keys.
        let peeled = peel(&hasher, ordered(&hasher, &hashes, keys), slots, is_cancelled);
        if is_cancelled() {
            return None;
        }
        if let Some(peeled) = peeled {
            let slots = fill(&hasher, &peeled, slots);
            return Some(Built { shape, attempt, slots, key_count: keys as u64 });
        }
        if attempt == 0 {
            // Equal hashes share all their slots and never stand alone. Those that are neighbours
            // were counted once already.
            let sorted = hashes.to_mut();
            sorted.sort_unstable();
            sorted.dedup();
        }
    }
    let shape = Shape { segment_log2: 0, segments: 1 };
    let slots = Slice::filled(P::default(), shape.slots() as usize, &FilterArena::heap());
    Some(Built { shape, attempt: SATURATED, slots, key_count: distinct(&hashes).count() as u64 })
}

/// The hashes without those that equal the one before.
fn distinct(hashes: &[u64]) -> impl Iterator<Item = u64> + Clone {
    hashes.chunk_by(|left, right| left == right).map(|equal| equal[0])
}

/// The mixed hashes of `keys` keys, roughly in the order of their first slots.
fn ordered(hasher: &Hasher, hashes: &[u64], keys: usize) -> PageVec<u64> {
    /// The high bits of a mixed hash that it is ordered by.
    const CHUNK_BITS: u32 = 9;

    let mixed = distinct(hashes).map(|hash| hasher.mix(hash));
    if keys <= IN_CACHE {
        let mut ordered = PageVec::with_capacity_in(keys, SystemPages);
        ordered.extend(mixed);
        return ordered;
    }
    let chunk = |mixed: u64| (mixed >> (u64::BITS - CHUNK_BITS)) as usize;
    let mut places = vec![0; 1 << CHUNK_BITS];
    mixed.clone().for_each(|mixed| places[chunk(mixed)] += 1);
    let mut total = 0;
    for place in &mut places {
        (*place, total) = (total, total + *place);
    }
    let mut ordered = page_vec::zeros(keys);
    for mixed in mixed {
        let place = &mut places[chunk(mixed)];
        ordered[*place] = mixed;
        *place += 1;
    }
    ordered
}

/// Mixed hashes in the order in which they came to stand alone, and the rank of the slot of each.
struct Peeled {
    mixed: PageVec<u64>,
    ranks: PageVec<u8>,
}

/// Peels all keys. Returns `None` if this seed fails, and once `is_cancelled`.
fn peel(
    hasher: &Hasher,
    mut mixed: PageVec<u64>,
    slots: usize,
    is_cancelled: &dyn Fn() -> bool,
) -> Option<Peeled> {
    let keys = mixed.len();
    let mut sums = page_vec::zeros::<u64>(slots);
    let mut counts = page_vec::zeros::<u8>(slots);
    let mut is_overfull = false;
    for &mixed in &mixed {
        let (places, _) = hasher.places(mixed);
        for (place, rank) in places.into_iter().zip(0..) {
            sums[place] ^= mixed;
            counts[place] = counts[place].wrapping_add(ONE) ^ rank;
            is_overfull |= counts[place] < ONE;
        }
    }
    if is_overfull {
        return None; // 64 keys share a slot: hashes as good as random never do.
    }

    let mut ranks = page_vec::zeros(keys);
    let mut peeled = 0;
    // Slots that had one key when they were put here, and those that their keys left with one. A
    // round needs nothing of itself, so that the processor works on several keys at once; and slots
    // are put there without a branch, because nobody can guess it.
    let (mut alone, mut next) = (Vec::new(), Vec::new());
    for first in (0..slots).step_by(SCANNED) {
        if is_cancelled() {
            return None;
        }
        alone.resize(alone.len().max(SCANNED), 0);
        let mut waiting = 0;
        for (slot, count) in (first..).zip(&counts[first..slots.min(first + SCANNED)]) {
            alone[waiting] = slot;
            waiting += usize::from(count / ONE == 1);
        }
        while waiting > 0 {
            if next.len() < ARITY * waiting {
                next.resize(ARITY * waiting, 0);
            }
            let mut found = 0;
            for &slot in &alone[..waiting] {
                if counts[slot] / ONE != 1 {
                    continue; // Its key was set aside for another slot.
                }
                let key = sums[slot];
                mixed[peeled] = key;
                ranks[peeled] = counts[slot] % ONE;
                peeled += 1;
                let (places, _) = hasher.places(key);
                for (place, rank) in places.into_iter().zip(0..) {
                    sums[place] ^= key;
                    counts[place] = (counts[place] - ONE) ^ rank;
                    next[found] = place;
                    found += usize::from(counts[place] / ONE == 1);
                }
            }
            (alone, next, waiting) = (next, alone, found);
        }
    }
    (peeled == keys).then_some(Peeled { mixed, ranks })
}

/// Fills the slots, last peeled first: each key finds the slot it was alone in still empty.
fn fill<P: Print>(hasher: &Hasher, peeled: &Peeled, slots: usize) -> Slice<P> {
    let mut filled = Slice::filled(P::default(), slots, &FilterArena::heap());
    for (&mixed, &rank) in peeled.mixed.iter().zip(&peeled.ranks).rev() {
        let (places, spread) = hasher.places(mixed);
        let [first, second, third] = places.map(|place| filled[place]);
        filled[places[usize::from(rank)]] = P::of(spread) ^ first ^ second ^ third;
    }
    filled
}
