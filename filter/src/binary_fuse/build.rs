//! Builds the slots from hashes, by peeling.
//!
//! A key that is alone in one of its slots can always be satisfied by that slot, whatever the other
//! slots hold. Removing it leaves other keys alone. When all keys are removed, the slots are filled
//! in reverse order. If keys remain that are never alone, the next seed is tried.
//!
//! Memory besides the hashes, in bytes per key of a large set: 8 for the mixed hashes, which end up
//! in peeling order; 1 for the slot in which each key was alone; 10.1 for the sum and count of the
//! hashes in each slot. Together these are 19.1 bytes, and less than 20 with the peeling queue. The
//! filter is allocated after the sums are freed. If duplicates are not adjacent, a sorted copy
//! takes 8 more.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::place::{ATTEMPTS, Hasher, SATURATED};
use super::print::Print;
use super::shape::{ARITY, Shape};
use crate::{
    arena::{FilterArena, Slice},
    page_vec::{self, PageVec, SystemPages},
};

/// Above this number, keys are sorted by their first slot so that their sums are in the cache.
const IN_CACHE: usize = 65_536;

/// Slots scanned at a time for keys that are alone, which bounds the queue.
const SCANNED: usize = 1_024;

/// One key in the count of a slot. The bits below are the XOR of the ranks, 0 to 2, that the slot
/// has among the slots of its keys.
const ONE: u8 = 4;

/// The slots of a filter and how they were built.
pub(crate) struct Built<P> {
    pub(crate) shape: Shape,
    pub(crate) attempt: u8,
    pub(crate) slots: Slice<P>,
    /// Distinct hashes.
    pub(crate) key_count: u64,
}

/// Builds a filter with at most `attempts` seeds. Returns `None` once `is_cancelled` returns
/// `true`, which it must then always do.
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
        let slots = shape.slots() as usize; // Slightly more than keys.
        let peeled = peel(&hasher, ordered(&hasher, &hashes, keys), slots, is_cancelled);
        if is_cancelled() {
            return None;
        }
        if let Some(peeled) = peeled {
            let slots = fill(&hasher, &peeled, slots);
            return Some(Built { shape, attempt, slots, key_count: keys as u64 });
        }
        if attempt == 0 {
            // Duplicates share all their slots and are never alone. Adjacent ones were removed
            // already.
            let sorted = hashes.to_mut();
            sorted.sort_unstable();
            sorted.dedup();
        }
    }
    let shape = Shape { segment_log2: 0, segments: 1 };
    let slots = Slice::filled(P::default(), shape.slots() as usize, &FilterArena::heap());
    Some(Built { shape, attempt: SATURATED, slots, key_count: distinct(&hashes).count() as u64 })
}

/// Returns the hashes that differ from their predecessors.
fn distinct(hashes: &[u64]) -> impl Iterator<Item = u64> + Clone {
    hashes.chunk_by(|left, right| left == right).map(|equal| equal[0])
}

/// Returns the mixed hashes of `keys` keys, roughly sorted by their first slot.
fn ordered(hasher: &Hasher, hashes: &[u64], keys: usize) -> PageVec<u64> {
    /// High bits of a mixed hash to sort by.
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

/// Mixed hashes in peeling order, and for each the rank of the slot in which it was alone.
struct Peeled {
    mixed: PageVec<u64>,
    ranks: PageVec<u8>,
}

/// Peels all keys. Returns `None` if this seed fails, or once `is_cancelled`.
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
        return None; // 64 keys share a slot, which random hashes never do.
    }

    let mut ranks = page_vec::zeros(keys);
    let mut peeled = 0;
    // Slots that had one key when they were queued, for this round and for the next. Keys of one
    // round are independent, so the CPU overlaps them. Queueing is branchless, because the branch
    // would be unpredictable.
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
                    continue; // Its key was removed by another slot.
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
    debug_assert!(peeled <= keys, "a key is peeled once");
    (peeled == keys).then_some(Peeled { mixed, ranks })
}

/// Fills the slots, last peeled first: the slot in which a key was alone is still empty.
fn fill<P: Print>(hasher: &Hasher, peeled: &Peeled, slots: usize) -> Slice<P> {
    debug_assert_eq!(peeled.mixed.len(), peeled.ranks.len());
    let mut filled = Slice::filled(P::default(), slots, &FilterArena::heap());
    for (&mixed, &rank) in peeled.mixed.iter().zip(&peeled.ranks).rev() {
        let (places, spread) = hasher.places(mixed);
        let [first, second, third] = places.map(|place| filled[place]);
        filled[places[usize::from(rank)]] = P::of(spread) ^ first ^ second ^ third;
    }
    filled
}
