//! Internals of a cuckoo filter.

use alloc::vec::Vec;

use super::table::mix;
use super::*;

/// Returns hash `i` of a sequence.
fn hash(seed: u64, i: u64) -> u64 {
    mix(mix(seed).wrapping_add(i))
}

#[test]
fn other_window_is_an_involution() {
    for slots in [2, 3, 4, 5, 100, 1021] {
        let filter = CuckooFilter::with_shape(slots, 8);
        for fingerprint in 1..=filter.table.slots.fingerprints() {
            for window in 0..slots - 1 {
                let other = filter.table.other_window(window, fingerprint);
                assert!(
                    other < slots - 1,
                    "{slots} slots, fingerprint {fingerprint}, window {window}"
                );
                assert_eq!(filter.table.other_window(other, fingerprint), window, "{slots} slots");
            }
        }
    }
}

#[cfg_attr(miri, ignore = "long loops without unsafe code")]
#[test]
fn fingerprints_and_windows_use_their_range() {
    let filter = CuckooFilter::with_shape(1000, 8);
    let places: Vec<_> = (0..100_000).map(|i| filter.table.places(hash(3, i))).collect();
    let extremes = |of: fn(&(u32, u64, u64)) -> u64| {
        (places.iter().map(of).min(), places.iter().map(of).max())
    };
    assert_eq!(extremes(|place| place.0.into()), (Some(1), Some(127)));
    assert_eq!(extremes(|place| place.1), (Some(0), Some(998)));
    assert_eq!(extremes(|place| place.2), (Some(0), Some(998)));
}

/// A rejected key leaves every bit of the table unchanged.
#[cfg_attr(miri, ignore = "long loops without unsafe code")]
#[test]
fn a_rejected_key_changes_nothing() {
    for seed in 0..20 {
        let mut filter = CuckooFilter::with_shape(2000 + seed, 9);
        let mut rejected = 0;
        let mut i = 0;
        while rejected < 10 {
            filter.table.is_full = false; // Walk each time.
            let before = filter.table.slots.clone();
            if filter.insert_hash(hash(seed, i)).is_err() {
                rejected += 1;
                assert!(filter.table.slots == before, "seed {seed}, key {i}");
            }
            i += 1;
        }
    }
}

/// Shapes reach their capacity, small and large.
#[cfg_attr(miri, ignore = "long loops without unsafe code")]
#[test]
fn the_capacity_is_reached() {
    let cases = [
        (1, 0.01, 300),
        (2, 0.5, 300),
        (3, 0.01, 300),
        (10, 0.1, 300),
        (30, 0.03, 300),
        (100, 0.01, 300),
        (300, 0.1, 100),
        (1000, 0.001, 100),
        (10_000, 0.02, 20),
        (100_000, 0.03, 4),
    ];
    let mut failures = Vec::new();
    for (capacity, fpr, rounds) in cases {
        for seed in 0..rounds {
            let mut filter = CuckooFilter::with_rate(capacity, fpr);
            let rejected = (0..capacity).filter(|&i| filter.insert_hash(hash(seed, i)).is_err());
            let rejected = rejected.count();
            if rejected > 0 {
                failures.push((capacity, fpr, seed, rejected));
            }
        }
    }
    // 2024 filters, of which one in a thousand may fail.
    assert!(failures.len() <= 3, "{failures:?}");
}

#[test]
fn a_key_fits_four_times() {
    let mut filter = CuckooFilter::with_shape(1000, 12);
    let results: Vec<_> = (0..5).map(|_| filter.insert("ant")).collect();
    assert_eq!(results[..4], [Ok(false), Ok(true), Ok(true), Ok(true)]);
    assert_eq!(results[4], Err(FilterFull { keys: 4 }));
    assert!(filter.insert("bee").is_ok(), "others still fit");
    assert_eq!([(); 5].map(|()| filter.remove("ant")), [true, true, true, true, false]);
    assert!(filter.may_contain("bee") && filter.keys() == 1);
}

#[test]
fn crafted_tables_are_rejected() {
    // 16 slots of 8 bits.
    let cases = [
        ("fingerprint zero", 5, 1),
        ("before the first window", 0, 0b11),
        ("after the last window", 15, 0b10),
    ];
    for (name, slot, value) in cases {
        let mut filter = CuckooFilter::with_shape(16, 8);
        filter.table.slots.set(slot, value);
        let read = <CuckooFilter>::from_bytes(&filter.to_bytes());
        let want = DecodeError::OutOfRange { what: "cuckoo slot", value: value.into() };
        assert_eq!(read.err(), Some(want), "{name}");
    }
}
