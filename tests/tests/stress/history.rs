//! Writes of each thread as a function of the thread and the number of the write.
//!
//! A thread numbers its writes from 1. It writes its keys in rounds, each key once a round, each
//! round in another order. The order is an invertible permutation, so that the newest write of a
//! key up to some number is computed directly.

use super::random::mix;

/// Number of writing threads.
pub(super) const THREADS: u32 = 8;
/// Keys of each thread; a prime, so that every factor below it has an inverse.
pub(super) const KEYS: u32 = 1009;
/// Group of writes that may form a batch.
const GROUP: u64 = 16;

/// Returns the stored key. Keys of different threads are interleaved.
pub(super) fn stored_key(thread: u32, key: u32) -> [u8; 4] {
    (key * THREADS + thread).to_be_bytes()
}

/// Returns the thread and key of the stored `bytes`.
pub(super) fn parse_key(bytes: &[u8]) -> (u32, u32) {
    let number = u32::from_be_bytes(bytes.try_into().expect("keys have 4 bytes"));
    (number % THREADS, number / THREADS)
}

/// Returns whether the mirror has the key too, written by the same batch.
pub(super) fn is_mirrored(key: u32) -> bool {
    key.is_multiple_of(2)
}

/// Returns the key that write `number` changes.
pub(super) fn key_of(thread: u32, number: u64) -> u32 {
    let (round, at) = ((number - 1) / u64::from(KEYS), (number - 1) % u64::from(KEYS));
    let (factor, shift) = order(thread, round);
    ((factor * at + shift) % u64::from(KEYS)) as u32
}

/// Returns whether write `number` removes its key.
pub(super) fn is_removal(thread: u32, number: u64) -> bool {
    mix(number << 8 | u64::from(thread)).is_multiple_of(4)
}

/// Returns the value that write `number` stores under `key`.
pub(super) fn value(thread: u32, key: u32, number: u64) -> Vec<u8> {
    let mixed = mix(number << 8 | u64::from(thread));
    let mut value = number.to_be_bytes().to_vec();
    value.extend_from_slice(&stored_key(thread, key));
    // Some values are compressible.
    let step = if mixed & 0x100 == 0 { 0 } else { mixed >> 32 };
    let filler = (0..mixed >> 56).map(|at| (mixed.wrapping_add(at.wrapping_mul(step)) >> 3) as u8);
    value.extend(filler);
    value
}

/// Returns the number of the write that stored `value`.
pub(super) fn number_of(value: &[u8]) -> u64 {
    let (number, _) = value.split_first_chunk().expect("values begin with their number");
    u64::from_be_bytes(*number)
}

/// Returns the number of the write whose value `key` has after write `number`, if any.
pub(super) fn state_after(thread: u32, key: u32, number: u64) -> Option<u64> {
    let round = number.checked_sub(1)? / u64::from(KEYS);
    let in_round = |round: u64| {
        let (factor, shift) = order(thread, round);
        let keys = u64::from(KEYS);
        let at = (u64::from(key) + keys - shift) * inverse(factor) % keys;
        round * keys + at + 1
    };
    let newest = Some(in_round(round)).filter(|&newest| newest <= number);
    let newest = newest.or_else(|| round.checked_sub(1).map(in_round))?;
    Some(newest).filter(|&newest| !is_removal(thread, newest))
}

/// Returns the last write of the batch that starts with write `number`.
pub(super) fn batch_end(thread: u32, number: u64) -> u64 {
    let group = number / GROUP;
    let is_batch = mix(!(group << 8 | u64::from(thread))).is_multiple_of(8);
    if is_batch { group * GROUP + GROUP - 1 } else { number }
}

/// Returns whether a batch ends with write `number`, so that readers may see that state.
pub(super) fn is_batch_end(thread: u32, number: u64) -> bool {
    batch_end(thread, number) == number
}

/// Returns the order of keys in a round: key = factor · place + shift.
fn order(thread: u32, round: u64) -> (u64, u64) {
    let mixed = mix(round << 8 | u64::from(thread));
    let keys = u64::from(KEYS);
    (1 + (mixed >> 32) % (keys - 1), mixed % keys)
}

/// By Fermat's little theorem.
fn inverse(factor: u64) -> u64 {
    let (mut power, mut result, mut exponent) = (factor, 1, KEYS - 2);
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = result * power % u64::from(KEYS);
        }
        power = power * power % u64::from(KEYS);
        exponent /= 2;
    }
    result
}

#[test]
fn state_equals_sequential_writes() {
    for thread in [0, 5] {
        let mut model = vec![None; KEYS as usize];
        for number in 1..5 * u64::from(KEYS) {
            let key = key_of(thread, number);
            model[key as usize] = (!is_removal(thread, number)).then_some(number);
            let near = [key, (key + 1) % KEYS, (number % u64::from(KEYS)) as u32];
            for key in near {
                assert_eq!(state_after(thread, key, number), model[key as usize], "{number}");
            }
        }
        assert!((0..KEYS).all(|key| state_after(thread, key, 0).is_none()));
    }
}
