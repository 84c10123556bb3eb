//! Saved filters round-trip, and a cleared filter equals a new one.

use sievedb_filter::{DecodeError, Xxh3};

use super::{SavedStructure, Structure, found, insert_all};
use crate::key_sets::adversarial_keys;
use crate::random::{Random, seed};

fn filled<F: Structure>(capacity: u64, hasher: Xxh3) -> F {
    let mut filter = F::with_rate(capacity, 0.01, hasher);
    for i in 0..capacity {
        let taken = filter.try_insert(&i.to_le_bytes());
        assert!(taken.is_ok(), "{} rejects a key within its capacity", F::NAME);
    }
    filter
}

/// Checks that both have the same bytes and results.
fn assert_same<F: SavedStructure>(read: &F, filter: &F) {
    assert_eq!(read.to_bytes(), filter.to_bytes());
    assert_eq!(read.stats(), filter.stats());
    for hash in Random(seed()).many(10_000) {
        assert_eq!(read.may_contain_hash(hash), filter.may_contain_hash(hash));
    }
}

pub(super) fn bytes_are_read_back<F: SavedStructure>() {
    for capacity in [0, 1, 7, 1_000, 20_000] {
        let filter: F = filled(capacity, Xxh3::default());
        let read = F::from_bytes(&filter.to_bytes()).expect("just written");
        assert_same(&read, &filter);
    }
    for (name, keys) in adversarial_keys() {
        let mut filter = F::with_rate(keys.len() as u64, 0.01, Xxh3::default());
        let taken = insert_all(&mut filter, &keys);
        let read = F::from_bytes(&filter.to_bytes()).expect("just written");
        assert!(taken.iter().all(|key| found(&read, key)), "{name}");
    }

    // Two in one stream, followed by other bytes.
    let (first, second): (F, F) = (filled(100, Xxh3::default()), filled(3_000, Xxh3::default()));
    let mut stream = Vec::new();
    first.save(&mut stream).expect("memory");
    second.save(&mut stream).expect("memory");
    stream.extend(b"rest");
    let mut stream = &stream[..];
    assert_same(&F::load(&mut stream).expect("the first"), &first);
    assert_same(&F::load(&mut stream).expect("the second"), &second);
    assert_eq!(stream, b"rest");
}

pub(super) fn another_hasher_is_rejected<F: SavedStructure>() {
    let filter: F = filled(100, Xxh3::with_seed(5));
    let bytes = filter.to_bytes();
    let read = F::from_bytes_with_hasher(&bytes, Xxh3::with_seed(5)).expect("the same hasher");
    assert_same(&read, &filter);
    for seed in [0, 4, u64::MAX] {
        let rejected = F::from_bytes_with_hasher(&bytes, Xxh3::with_seed(seed)).err();
        assert!(matches!(rejected, Some(DecodeError::Mismatch { .. })), "{seed}: {rejected:?}");
    }
}

#[cfg(feature = "serde")]
pub(super) fn serde_reads_back<F>()
where
    F: SavedStructure + serde::Serialize + serde::de::DeserializeOwned,
{
    let filter: F = filled(300, Xxh3::default());
    let mut json = serde_json::to_string(&filter).expect("bytes are a list in JSON");
    assert_same(&serde_json::from_str::<F>(&json).expect("just written"), &filter);
    for rejected in ["[]", "[1,2,3]", "[256]", "7", "\"SieveFlt\""] {
        assert!(serde_json::from_str::<F>(rejected).is_err(), "{rejected}");
    }
    json.insert_str(1, "0,");
    assert!(serde_json::from_str::<F>(&json).is_err(), "an extra byte");
}

pub(super) fn clear_empties<F: Structure>() {
    let new = F::with_rate(500, 0.01, Xxh3::default());
    let mut filter: F = filled(500, Xxh3::default());
    let stats = filter.stats();
    assert!(stats.keys.abs_diff(500) <= 15 && stats.fpr > 0.0, "{stats}");
    assert!((stats.keys_estimated - 500.0).abs() < 40.0, "{stats:?}");
    filter.clear();
    assert_eq!(filter.stats(), new.stats());
    assert!(Random(seed()).many(1000).into_iter().all(|hash| !filter.may_contain_hash(hash)));
}
