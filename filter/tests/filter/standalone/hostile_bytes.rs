//! Invalid bytes are rejected without a panic, or decode to a usable filter.

use sievedb_filter::{DecodeError, Xxh3};

use super::SavedStructure;
use crate::allocations::total_in;
use crate::random::{Random, seed};

/// Bytes before the payload, and of the checksum after it.
const HEADER_BYTES: usize = 32;
const CRC_BYTES: usize = 4;
/// Cases per kind of random damage.
const CASES: usize = 50_000;

pub(super) fn are_rejected<F: SavedStructure>() {
    let mut filter = F::with_rate(20, 0.05, Xxh3::default());
    for i in 0..20_u8 {
        filter.try_insert(&[i]).expect("20 keys have room");
    }
    let good = filter.to_bytes();
    let mut random = Random(seed());

    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(F::from_bytes(&bytes).is_err(), "bit {bit} is flipped");
        assert!(F::load(&bytes[..]).is_err(), "bit {bit} is flipped");
    }
    for cut in 0..good.len() {
        assert!(F::from_bytes(&good[..cut]).is_err(), "the first {cut} bytes");
        assert!(F::from_bytes(&good[good.len() - cut..]).is_err(), "the last {cut} bytes");
        assert!(F::load(&good[..cut]).is_err(), "the first {cut} bytes");
    }
    assert!(F::from_bytes(&[&good[..], &[0]].concat()).is_err(), "a byte follows");

    for _ in 0..CASES {
        let len = random.next() as usize % 200;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        assert!(F::from_bytes(&bytes).is_err(), "{bytes:?}");
        // With a valid start, so that more of the bytes are checked.
        let keep = HEADER_BYTES.min(len);
        bytes[..keep].copy_from_slice(&good[..keep]);
        assert!(F::from_bytes(&bytes).is_err(), "{bytes:?}");
    }
    for _ in 0..2 * CASES {
        assert_usable::<F>(&resealed(&good, &mut random));
    }
}

/// Damages the payload, and corrects length and checksum.
fn resealed(good: &[u8], random: &mut Random) -> Vec<u8> {
    /// Values at which sizes overflow or are off by one.
    const EDGES: [u64; 12] =
        [0, 1, 63, 64, 65, 1 << 20, 1 << 32, 1 << 40, 1 << 58, 1 << 63, u64::MAX - 1, u64::MAX];
    let mut payload = good[HEADER_BYTES..good.len() - CRC_BYTES].to_vec();
    let below = |random: &mut Random, n: usize| (random.next() % n as u64) as usize;
    for _ in 0..=below(random, 3) {
        let len = payload.len().max(1);
        match below(random, 5) {
            0 => payload.truncate(below(random, len)),
            1 => payload.extend((0..below(random, 40)).map(|_| random.next() as u8)),
            2 if !payload.is_empty() => payload[below(random, len)] = random.next() as u8,
            3 if !payload.is_empty() => payload[below(random, len)] ^= 1 << below(random, 8),
            _ => {
                // A whole field, mostly one of the first.
                let at = 8 * below(random, (len / 8).clamp(1, 5));
                let edge = EDGES[below(random, EDGES.len())].to_le_bytes();
                if let Some(field) = payload.get_mut(at..at + 8) {
                    field.copy_from_slice(&edge);
                }
            }
        }
    }
    let mut bytes = good[..HEADER_BYTES].to_vec();
    bytes[24..32].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.extend(payload);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// Checks that the bytes are rejected by more than a checksum, or are a usable filter no larger
/// than the bytes.
fn assert_usable<F: SavedStructure>(bytes: &[u8]) {
    /// Memory of a filter besides what is saved.
    const BOOKKEEPING_BYTES: usize = 4096;

    let (read, allocated) = total_in(|| F::from_bytes(bytes));
    // Twice, because an array may be read into one form and kept in another.
    let allowed = 2 * bytes.len() + BOOKKEEPING_BYTES;
    assert!(allocated <= allowed, "{allocated} bytes are allocated for {bytes:?}");
    let mut filter = match read {
        Ok(filter) => filter,
        Err(error) => {
            assert!(!matches!(error, DecodeError::Checksum { .. }), "{bytes:?}: {error}");
            return;
        }
    };
    assert!(filter.memory_bytes() <= bytes.len() + BOOKKEEPING_BYTES, "{bytes:?}");
    assert_eq!(filter.to_bytes(), bytes, "a different filter was read");
    for hash in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
        let before = filter.may_contain_hash(hash);
        if let Ok(present) = filter.try_insert_hash(hash) {
            assert_eq!(present, before);
            assert!(filter.may_contain_hash(hash));
        }
    }
    let stats = filter.stats();
    assert!((0.0..=1.0).contains(&stats.fill) && (0.0..=1.0).contains(&stats.fpr), "{stats:?}");
    filter.clear();
}
