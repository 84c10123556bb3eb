//! Blocks against sorted lists, and against bytes that no builder makes.

use bytes::Bytes;
use proptest::{
    collection::{btree_set, vec},
    prelude::*,
    sample::Index,
    test_runner::RngSeed,
};
use sievedb_format::{Corruption, Encode, InternalKey, Kind, SEQUENCE_MAX, Trailer};

use super::*;
use crate::handle::BlockHandle;

/// User key and sequence number; the value follows from them.
type Version = (Vec<u8>, u64);

/// Where the blocks of these tests would lie.
const PLACE: BlockHandle = BlockHandle { offset: 64, bytes: 4096 };

fn key((user_key, sequence): &Version) -> InternalKey<'_> {
    InternalKey::new(user_key, Trailer::new(*sequence, Kind::Put))
}

fn value((user_key, sequence): &Version) -> Vec<u8> {
    vec![*sequence as u8; user_key.len()]
}

fn content(versions: &[Version], restart_interval: usize) -> Vec<u8> {
    let mut builder = BlockBuilder::new(restart_interval);
    for version in versions {
        let bytes_max = builder.content_bytes_with(key(version), &value(version));
        builder.add(key(version), &value(version));
        assert!(builder.content_bytes() <= bytes_max);
    }
    let content_bytes = builder.content_bytes();
    let content = builder.finish().to_vec();
    assert_eq!(content.len(), content_bytes);
    content
}

fn block(versions: &[Version], restart_interval: usize) -> Block {
    Block::decode(content(versions, restart_interval).into(), BlockRole::Data, PLACE).unwrap()
}

fn get(block: &Block, target: InternalKey<'_>) -> Option<(Trailer, Bytes)> {
    block.get_with(target, |trailer, value| (trailer, value.to_bytes()))
}

fn versions() -> impl Strategy<Value = Vec<Version>> {
    let letters = prop::sample::select(vec![0, b'a', b'b', 0xff]);
    let user_key = prop_oneof![4 => vec(letters, 0..5), 1 => vec(any::<u8>(), 0..40)];
    btree_set((user_key, 1..9_u64), 0..80).prop_map(|versions| {
        let mut versions: Vec<_> = versions.into_iter().collect();
        versions.sort_by(|a, b| key(a).cmp(&key(b)));
        versions
    })
}

fn config() -> ProptestConfig {
    let seed = std::env::var("SIEVE_SEED").map_or(42, |seed| seed.parse().unwrap());
    eprintln!("SIEVE_SEED={seed}");
    let rng_seed = RngSeed::Fixed(seed);
    ProptestConfig { cases: 1000, rng_seed, failure_persistence: None, ..Default::default() }
}

/// Everything that can be done with a block; the list is what it holds.
fn check(block: &Block, versions: &[Version]) {
    let mut cursor = BlockCursor::new(block.clone());
    assert!(!cursor.is_positioned());
    cursor.seek_to_first();
    for version in versions {
        assert_eq!(cursor.key(), Some(key(version)));
        assert_eq!(cursor.value(), value(version));
        cursor.next();
    }
    assert_eq!(cursor.key(), None);
    cursor.seek_to_last();
    for version in versions.iter().rev() {
        assert_eq!(cursor.key(), Some(key(version)));
        assert_eq!(cursor.value(), value(version));
        cursor.prev();
    }
    assert_eq!(cursor.key(), None);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn block_answers_as_a_sorted_list(
        versions in versions(),
        restart_interval in prop::sample::select(vec![1, 2, 3, 16, RESTART_INTERVAL_MAX]),
        targets in vec((vec(any::<u8>(), 0..3), 0..10_u64), 10),
    ) {
        let block = block(&versions, restart_interval);
        check(&block, &versions);
        let mut cursor = BlockCursor::new(block.clone());
        let own = versions.iter().flat_map(|(user_key, _)| {
            (0..10).map(move |sequence| (user_key.clone(), sequence))
        });
        for (user_key, sequence) in own.chain(targets) {
            for trailer in [Trailer::seek(sequence), Trailer::OLDEST] {
                let target = InternalKey::new(&user_key, trailer);
                let at = versions.partition_point(|version| key(version) < target);
                cursor.seek(target);
                prop_assert_eq!(cursor.key(), versions.get(at).map(key));
                cursor.seek_before(target);
                let before = at.checked_sub(1);
                prop_assert_eq!(cursor.key(), before.map(|before| key(&versions[before])));
                let same = versions.get(at).filter(|version| version.0 == user_key);
                let want = same.map(|same| (key(same).trailer, Bytes::from(value(same))));
                prop_assert_eq!(get(&block, target), want);
            }
        }
    }

    #[test]
    fn damaged_content_is_refused_or_a_block(
        versions in versions(),
        restart_interval in prop::sample::select(vec![1, 3, 16]),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
        length in any::<Index>(),
        is_cut: bool,
        is_index: bool,
    ) {
        let mut content = content(&versions, restart_interval);
        for (index, byte) in damage {
            let at = index.index(content.len());
            content[at] = byte;
        }
        if is_cut {
            content.truncate(length.index(content.len()));
        }
        let role = if is_index { BlockRole::Index } else { BlockRole::Data };
        check_hostile(content, role);
    }

    #[test]
    fn random_content_is_refused_or_a_block(
        mut content in vec(any::<u8>(), 0..200),
        restarts in 0..4_u32,
        is_index: bool,
    ) {
        let role = if is_index { BlockRole::Index } else { BlockRole::Data };
        check_hostile(content.clone(), role);
        content.put_u32(restarts);
        check_hostile(content, role);
    }
}

/// Content that passes the checks must hold together, whoever wrote it.
fn check_hostile(content: Vec<u8>, role: BlockRole) {
    let Ok(block) = Block::decode(content.into(), role, PLACE) else {
        return;
    };
    let mut cursor = BlockCursor::new(block.clone());
    let mut forward = Vec::new();
    cursor.seek_to_first();
    while let Some(key) = cursor.key() {
        forward.push((key.user_key.to_vec(), key.trailer));
        if role == BlockRole::Index {
            assert!(cursor.handle().is_some());
        }
        cursor.next();
    }
    cursor.seek_to_last();
    for (user_key, trailer) in forward.iter().rev() {
        assert_eq!(cursor.key(), Some(InternalKey::new(user_key, *trailer)));
        cursor.prev();
    }
    for (user_key, trailer) in &forward {
        let key = InternalKey::new(user_key, *trailer);
        cursor.seek(key);
        assert_eq!(cursor.key(), Some(key));
        if role == BlockRole::Data {
            assert!(get(&block, key).is_some());
        } else {
            assert!(block.handle_for(key).is_some());
        }
    }
}

/// Entries as `(shared, suffix, sequence)`, restart offsets, and the count that is claimed.
fn raw(entries: &[(u64, &[u8], u64)], restarts: &[u32], count: u32) -> Bytes {
    let mut content = Vec::new();
    for (shared, suffix, sequence) in entries {
        content.put_varint(*shared);
        content.put_varint(suffix.len() as u64);
        content.put_u8(Kind::Put as u8);
        content.put_varint(*sequence);
        content.put_varint(0);
        content.put(suffix);
    }
    for restart in restarts {
        content.put_u32(*restart);
    }
    content.put_u32(count);
    content.into()
}

#[test]
fn decode_refuses_malformed_blocks() {
    use Corruption::{Missing, Order, OutOfRange, Truncated};
    let order = Order { what: "block" };
    let no_restart = Missing { what: "restart of a block" };
    let restart = |value| OutOfRange { what: "restart offset", value };
    let many: Vec<_> = (0..=RESTART_INTERVAL_MAX as u64)
        .rev()
        .map(|n| if n == 256 { (0, &b"k"[..], n + 1) } else { (1, &b""[..], n + 1) })
        .collect();
    // An entry with a key of one byte takes six.
    let cases: [(&str, Bytes, Corruption); 15] = [
        ("nothing", Bytes::new(), Truncated { what: "restart offsets", need: 4, have: 0 }),
        (
            "restarts that are not there",
            raw(&[], &[], 1),
            Truncated { what: "restart offsets", need: 8, have: 4 },
        ),
        (
            "more restarts than memory",
            raw(&[], &[], u32::MAX),
            Truncated { what: "restart offsets", need: 4 * (1 << 32), have: 4 },
        ),
        ("a restart without entries", raw(&[], &[0], 1), restart(0)),
        ("entries without a restart", raw(&[(0, b"a", 1)], &[], 0), no_restart.clone()),
        (
            "a first restart behind the first entry",
            raw(&[(0, b"a", 1), (0, b"b", 1)], &[6], 1),
            no_restart.clone(),
        ),
        ("a restart within an entry", raw(&[(0, b"a", 1)], &[0, 3], 2), restart(3)),
        ("a restart at the end", raw(&[(0, b"a", 1)], &[0, 6], 2), restart(6)),
        ("a restart twice", raw(&[(0, b"a", 1), (0, b"b", 1)], &[0, 0], 2), restart(0)),
        ("an interval too long", raw(&many, &[0], 1), no_restart),
        (
            "a shared part without an entry before",
            raw(&[(1, b"a", 1)], &[0], 1),
            OutOfRange { what: "shared bytes at a restart", value: 1 },
        ),
        (
            "a shared part too long",
            raw(&[(0, b"a", 1), (2, b"a", 1)], &[0], 1),
            OutOfRange { what: "shared bytes of a key", value: 2 },
        ),
        ("keys that descend", raw(&[(0, b"b", 1), (0, b"a", 1)], &[0], 1), order.clone()),
        ("versions that ascend", raw(&[(0, b"b", 1), (1, b"", 2)], &[0], 1), order.clone()),
        ("a shared part too short", raw(&[(0, b"ab", 1), (0, b"ac", 1)], &[0], 1), order),
    ];
    for (name, content, want) in cases {
        let found = Block::decode(content, BlockRole::Data, PLACE).map(drop);
        assert_eq!(found, Err(want), "{name}");
    }
    assert!(
        Block::decode(raw(&many[1..], &[0], 1), BlockRole::Data, PLACE).is_err(),
        "first shares"
    );
    let two = raw(&[(0, b"ab", 1), (0, b"ac", 1)], &[0, 7], 2);
    assert!(Block::decode(two, BlockRole::Data, PLACE).is_ok(), "a restart shares nothing");
}

#[test]
fn an_index_holds_handles() {
    let block = |value: &[u8]| {
        let mut builder = BlockBuilder::new(1);
        builder.add(InternalKey::new(b"k", Trailer::OLDEST), value);
        Block::decode(builder.finish().to_vec().into(), BlockRole::Index, PLACE)
    };
    let handle = BlockHandle { offset: 64, bytes: 100 };
    let mut bytes = Vec::new();
    handle.encode(&mut bytes);
    let target = InternalKey::seek(b"k", SEQUENCE_MAX);
    assert_eq!(block(&bytes).unwrap().handle_for(target), Some(handle));
    let behind = InternalKey::seek(b"ka", SEQUENCE_MAX);
    assert_eq!(block(&bytes).unwrap().handle_for(behind), None);
    bytes.push(0);
    assert!(block(&bytes).is_err(), "a byte behind the handle");
    assert!(block(b"").is_err(), "no handle");
}

#[test]
fn an_empty_block_has_no_places() {
    for block in [Block::empty(BlockRole::Data), block(&[], 16)] {
        check(&block, &[]);
        let target = InternalKey::seek(b"", SEQUENCE_MAX);
        let mut cursor = BlockCursor::new(block.clone());
        cursor.seek(target);
        assert!(!cursor.is_positioned());
        cursor.seek_before(target);
        assert!(!cursor.is_positioned());
        assert_eq!(get(&block, target), None);
    }
}

#[test]
fn common_prefix_finds_the_first_difference() {
    for len in 0..40 {
        let a = vec![7; len];
        assert_eq!(common_prefix(&a, &a), len);
        assert_eq!(common_prefix(&a, &[a.clone(), vec![7]].concat()), len);
        for at in 0..len {
            let mut b = a.clone();
            b[at] = 8;
            assert_eq!(common_prefix(&a, &b), at, "length {len}");
            assert_eq!(common_prefix(&b, &a[..at]), at, "length {len}");
        }
    }
}
