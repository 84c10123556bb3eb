//! The table of a cuckoo filter: the slots of a hash, and evictions.

use alloc::vec::Vec;
use core::mem;

use super::slots::Slots;

/// Maximum evictions per insertion.
///
/// Enough to fill any filter to 95 %: of 20 million slots, 2048 fill 94.8 %, 4096 fill 95.3 %, and
/// 8192 fill 95.6 %.
const STEPS_MAX: u32 = 8192;

/// Fingerprints in their slots.
#[derive(Clone)]
pub(super) struct Table {
    pub(super) slots: Slots,
    /// Slots in use.
    pub(super) keys: u64,
    /// `true` if an insertion failed and no key was removed since: the next walk would most likely
    /// fail, too.
    pub(super) is_full: bool,
}

impl Table {
    /// Creates a table. `keys` is the number of slots in use.
    pub(super) fn new(slots: Slots, keys: u64) -> Self {
        Self { slots, keys, is_full: false }
    }

    /// Inserts a fingerprint of `hash`, and returns `true` if one was present. Returns `None` and
    /// changes nothing if there is no room.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64) -> Option<bool> {
        let (fingerprint, near, far) = self.places(hash);
        let present = (self.slots.find(near, fingerprint) | self.slots.find(far, fingerprint)) != 0;
        let placed = self.put(near, fingerprint)
            || self.put(far, fingerprint)
            || !self.is_full
                && self.evict(if hash & 1 == 0 { near } else { far }, fingerprint, hash);
        if !placed {
            self.is_full = true;
            return None;
        }
        self.keys += 1;
        Some(present)
    }

    /// Removes a fingerprint of `hash`, if there is one.
    #[inline]
    pub(super) fn remove(&mut self, hash: u64) -> bool {
        let (fingerprint, near, far) = self.places(hash);
        for window in [near, far] {
            let found = self.slots.find(window, fingerprint);
            if found != 0 {
                self.slots.set(window + u64::from(found.trailing_zeros()), 0);
                self.keys -= 1;
                self.is_full = false;
                return true;
            }
        }
        false
    }

    #[inline]
    pub(super) fn contains(&self, hash: u64) -> bool {
        let (fingerprint, near, far) = self.places(hash);
        (self.slots.find(near, fingerprint) | self.slots.find(far, fingerprint)) != 0
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let (_, near, far) = self.places(hash);
        self.slots.prefetch(near);
        self.slots.prefetch(far);
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.keys = 0;
        self.is_full = false;
    }

    /// Returns the fingerprint of a hash and its two windows.
    #[inline]
    pub(super) fn places(&self, hash: u64) -> (u32, u64, u64) {
        /// Odd. Makes the fingerprint depend on the low bits of the hash; the high ones select the
        /// window.
        const FINGERPRINT: u64 = 0xd6e8_feb8_6659_fd93;
        // Below the number of fingerprints, which is a `u32`.
        let fingerprint =
            1 + scale(hash.wrapping_mul(FINGERPRINT), self.slots.fingerprints().into()) as u32;
        let near = scale(hash, self.slots.windows());
        (fingerprint, near, self.other_window(near, fingerprint))
    }

    /// Returns the other window of a fingerprint: `sum(fingerprint) - window`, modulo the number of
    /// windows.
    #[inline]
    pub(super) fn other_window(&self, window: u64, fingerprint: u32) -> u64 {
        let windows = self.slots.windows();
        let sum = scale(mix(fingerprint.into()), windows);
        if sum >= window { sum - window } else { sum + windows - window }
    }

    /// Puts `fingerprint` into an empty slot of `window`, if there is one.
    #[inline]
    fn put(&mut self, window: u64, fingerprint: u32) -> bool {
        let empty = self.slots.empty(window);
        if empty != 0 {
            let place = empty.trailing_zeros();
            self.slots.set(window + u64::from(place), fingerprint << 1 | place);
        }
        empty != 0
    }

    /// Puts `fingerprint` into `window`, which is full, by evicting a fingerprint to its other
    /// window, repeatedly, until there is an empty slot. On failure the table is unchanged.
    ///
    /// A random walk with one step of lookahead: it evicts the fingerprint whose other window has
    /// room, if there is one. The walk is a function of `random`.
    #[cold]
    fn evict(&mut self, mut window: u64, mut fingerprint: u32, mut random: u64) -> bool {
        // The place of each evicted fingerprint in its window, to undo the walk. Few walks are so
        // long that this allocates.
        let (mut full_words, mut places) = (Vec::new(), 0_u64);
        for step in 0..STEPS_MAX {
            let occupants = [0, 1].map(|place| {
                let value = self.slots.get(window + place);
                (value, self.other_window(window + place - u64::from(value & 1), value >> 1))
            });
            let empty = occupants.map(|(_, other)| self.slots.empty(other));
            random = random.wrapping_mul(0xd120_2ef8_f15b_0b6d).wrapping_add(1);
            let place = match empty {
                [0, 0] => random >> 63, // The best bit of the generator.
                [0, _] => 1,
                _ => 0,
            };
            let (evicted, other) = occupants[place as usize];
            self.slots.set(window + place, fingerprint << 1 | place as u32); // 0 or 1.
            places |= u64::from(evicted & 1) << (step % u64::BITS);
            if step % u64::BITS == u64::BITS - 1 {
                full_words.push(mem::take(&mut places));
            }
            (fingerprint, window) = (evicted >> 1, other);
            if empty[place as usize] != 0 {
                return self.put(window, fingerprint);
            }
        }
        let back = full_words
            .iter()
            .rev()
            .flat_map(|word| (0..u64::BITS).rev().map(move |i| word >> i & 1));
        for place in back {
            // `fingerprint` was in its other window, and returns to its slot there. The fingerprint
            // in that slot came from its own other window one step earlier.
            let slot = self.other_window(window, fingerprint) + place;
            let occupant = self.slots.get(slot);
            self.slots.set(slot, fingerprint << 1 | place as u32); // 0 or 1.
            fingerprint = occupant >> 1;
            window = slot - u64::from(occupant & 1);
        }
        false
    }
}

/// Maps `hash` to a number below `n`, by its high bits.
#[inline]
fn scale(hash: u64, n: u64) -> u64 {
    ((u128::from(hash) * u128::from(n)) >> u64::BITS) as u64 // Below `n`.
}

/// Applies the finalizer of SplitMix64. A plain product would correlate the sums of different
/// fingerprints.
#[inline]
pub(super) fn mix(fingerprint: u64) -> u64 {
    let z = fingerprint.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
