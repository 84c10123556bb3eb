//! Tests of blocks against sorted lists, and of malformed blocks.

use bytes::Bytes;
use proptest::{
    collection::{btree_set, vec},
    prelude::*,
    sample::Index,
    test_runner::RngSeed,
};
use sievedb_format::{Corruption, Encode, InternalKey, Kind, SEQUENCE_MAX, Trailer};

use super::{search::word_of, *};

/// User key and sequence number, which determine the value.
type Version = (Vec<u8>, u64);

/// Handle of all blocks.
const HANDLE: BlockHandle = BlockHandle { offset: 64, bytes: 4096 };

fn key((user_key, sequence): &Version) -> InternalKey<'_> {
    let kind = if *sequence == 3 { Kind::Tombstone } else { Kind::Put };
    InternalKey::new(user_key, Trailer::new(*sequence, kind))
}

fn value((user_key, sequence): &Version) -> Vec<u8> {
    vec![*sequence as u8; user_key.len()]
}

fn content(versions: &[Version]) -> Vec<u8> {
    let (mut builder, mut limited) = (BlockBuilder::default(), BlockBuilder::default());
    for (index, version) in versions.iter().enumerate() {
        builder.add(key(version), &value(version));
        let bytes_max = builder.content_bytes_max();
        let mut add_within = |max| limited.add_within(key(version), &value(version), max);
        // The first entry is never refused.
        let is_added = add_within(bytes_max - 1);
        assert_eq!(is_added, index == 0);
        assert!(is_added || add_within(bytes_max));
        assert_eq!(limited.content_bytes_max(), bytes_max);
    }
    let bytes_max = builder.content_bytes_max();
    let content = builder.finish().to_vec();
    assert!(content.len() <= bytes_max);
    content
}

fn block(versions: &[Version]) -> Block {
    Block::decode(content(versions).into(), BlockRole::Data, HANDLE).unwrap()
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

/// Checks both directions of a scan against the sorted list.
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
    fn block_agrees_with_a_sorted_list(
        versions in versions(),
        targets in vec((vec(any::<u8>(), 0..3), 0..10_u64), 10),
    ) {
        let block = block(&versions);
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
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
        length in any::<Index>(),
        is_cut: bool,
        is_index: bool,
    ) {
        let mut content = content(&versions);
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
        content in vec(any::<u8>(), 0..200),
        header in (0..4_u8, any::<u8>(), 0..3_u8, 0..4_u8, 0..4_u8, 0..2_u8, 0..4_u8),
        is_index: bool,
    ) {
        let role = if is_index { BlockRole::Index } else { BlockRole::Data };
        check_hostile(content.clone(), role);
        let (entries, widths, kind, entry_bytes, suffix_bytes, sequence, prefix_bytes) = header;
        let kind = if kind == 0 { 0xff } else { kind };
        let header = [entries, widths, kind, entry_bytes, suffix_bytes, sequence, prefix_bytes];
        check_hostile([&header, &content[..]].concat(), role);
    }
}

/// Checks that content accepted by `decode` is consistent.
fn check_hostile(content: Vec<u8>, role: BlockRole) {
    let Ok(block) = Block::decode(content.into(), role, HANDLE) else {
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
            assert!(block.position(key).is_some());
        }
    }
}

/// Header fields of a block, and the bytes after them.
#[derive(Clone, Copy)]
struct Raw {
    entries: u64,
    widths: u8,
    kind: u8,
    entry_bytes: u64,
    suffix_bytes: u64,
    sequence: u64,
    prefix_bytes: u64,
    rest: &'static [u8],
}

impl Raw {
    fn content(&self) -> Bytes {
        let mut content = Vec::new();
        content.put_varint(self.entries);
        content.put_u8(self.widths);
        content.put_u8(self.kind);
        for field in [self.entry_bytes, self.suffix_bytes, self.sequence, self.prefix_bytes] {
            content.put_varint(field);
        }
        content.put(self.rest);
        content.into()
    }
}

/// Encodes the widths of `end`, `suffix_more` and `sequence_more`.
fn widths(end: u8, suffix: u8, sequence: u8) -> u8 {
    end | suffix << 3 | sequence << 5
}

/// Puts of "pa" and "pb", with empty values and the same sequence number.
const TWO: Raw = Raw {
    entries: 2,
    widths: 0,
    kind: Kind::Put as u8,
    entry_bytes: 1,
    suffix_bytes: 1,
    sequence: 7,
    prefix_bytes: 1,
    rest: b"pab",
};

#[test]
fn decode_refuses_malformed_blocks() {
    use Corruption::{Order, OutOfRange, Trailing, Truncated, Unsupported};
    let order = Order { what: "block" };
    let of_each = Raw { kind: 0xff, entry_bytes: 2, rest: b"p\x01a\x01b", ..TWO };
    let numbered = Raw { widths: widths(0, 0, 1), entry_bytes: 2, rest: b"p\x02a\x01a", ..TWO };
    let ended = Raw { widths: widths(1, 0, 0), entry_bytes: 0, rest: b"p\x01\x02ab", ..TWO };
    for (name, good) in [("two", TWO), ("kinds", of_each), ("numbers", numbered), ("ends", ended)] {
        assert!(Block::decode(good.content(), BlockRole::Data, HANDLE).is_ok(), "{name}");
    }
    let out = |what, value| OutOfRange { what, value };
    let short = |what, need, have| Truncated { what, need, have };
    let most = u64::from(u32::MAX);
    let cases: [(&str, Raw, Corruption); 24] = [
        ("more entries than bytes", Raw { entries: 11, ..TWO }, out("entries of a block", 11)),
        (
            "more entries than a number holds",
            Raw { entries: most + 1, ..TWO },
            out("entries of a block", most + 1),
        ),
        ("an end of five bytes", Raw { widths: 5, ..TWO }, out("widths of a block", 5)),
        (
            "an unknown kind",
            Raw { kind: 7, ..TWO },
            Unsupported { what: "kind of an entry", value: 7 },
        ),
        ("a range tombstone", Raw { kind: 6, ..TWO }, out("kind of an entry", 6)),
        (
            "kind 0 in a data block",
            Raw { kind: 0, ..TWO },
            Unsupported { what: "kind of an entry", value: 0 },
        ),
        (
            "a range tombstone among other kinds",
            Raw { rest: b"p\x01a\x06b", ..of_each },
            out("kind of an entry", 6),
        ),
        (
            "entries longer than a block",
            Raw { entry_bytes: most + 1, ..TWO },
            out("bytes of an entry", most + 1),
        ),
        (
            "entries that reach beyond the end",
            Raw { entry_bytes: most, ..TWO },
            short("entries of a block", most + 12, 14),
        ),
        (
            "a suffix beyond a key",
            Raw { suffix_bytes: 65_537, ..TWO },
            out("bytes of a key", 65_537),
        ),
        (
            "a prefix beyond a key",
            Raw { prefix_bytes: 65_537, ..TWO },
            out("bytes of a key", 65_537),
        ),
        (
            "a sequence number of 57 bits",
            Raw { sequence: 1 << 56, ..TWO },
            out("sequence number of a block", 1 << 56),
        ),
        (
            "a sum of 57 bits",
            Raw { sequence: SEQUENCE_MAX, ..numbered },
            out("sequence number of an entry", SEQUENCE_MAX + 2),
        ),
        ("half a prefix", Raw { prefix_bytes: 4, ..TWO }, short("prefix of a block", 4, 3)),
        ("half the ends", Raw { widths: widths(2, 0, 0), ..TWO }, short("ends of entries", 4, 2)),
        (
            "a suffix beyond its entry",
            Raw { suffix_bytes: 2, ..TWO },
            short("suffix of a key", 10, 9),
        ),
        (
            "an entry shorter than its head",
            Raw { widths: widths(0, 1, 1), ..TWO },
            out("end of an entry", 9),
        ),
        ("ends that descend", Raw { rest: b"p\x02\x01ab", ..ended }, out("end of an entry", 11)),
        (
            "an end beyond the content",
            Raw { rest: b"p\x01\x03ab", ..ended },
            short("entries of a block", 13, 12),
        ),
        (
            "bytes behind the last entry",
            Raw { rest: b"pabc", ..TWO },
            Trailing { what: "block", bytes: 1 },
        ),
        ("bytes without entries", Raw { entries: 0, ..TWO }, Trailing { what: "block", bytes: 2 }),
        ("keys that descend", Raw { rest: b"pba", ..TWO }, order.clone()),
        ("an entry twice", Raw { rest: b"paa", ..TWO }, order.clone()),
        ("versions that ascend", Raw { rest: b"p\x01a\x02a", ..numbered }, order),
    ];
    for (name, raw, want) in cases {
        let found = Block::decode(raw.content(), BlockRole::Data, HANDLE).map(drop);
        assert_eq!(found, Err(want), "{name}");
    }
    for cut in 0..TWO.content().len() {
        assert!(
            Block::decode(TWO.content().slice(..cut), BlockRole::Data, HANDLE).is_err(),
            "truncated at {cut}"
        );
    }
}

#[test]
fn an_index_with_more_entries_than_handles_is_refused() {
    let full =
        Raw { entries: 3, entry_bytes: 2, suffix_bytes: 0, rest: b"p@\x05@\x05@\x05", ..TWO };
    let decode = |raw: Raw| Block::decode(raw.content(), BlockRole::Index, HANDLE).map(drop);
    assert_eq!(decode(full), Err(Corruption::Order { what: "block" }));
    let out = Err(Corruption::OutOfRange { what: "entries of a block", value: 3 });
    assert_eq!(decode(Raw { rest: b"p@\x05@\x05@", ..full }), out);
    assert_eq!(decode(Raw { widths: widths(0, 0, 1), ..full }), out);
}

#[test]
fn an_index_of_blocks_that_do_not_ascend_is_refused() {
    let decode = |handles: &[(u64, u64)]| {
        let mut builder = BlockBuilder::default();
        for (at, &(offset, bytes)) in handles.iter().enumerate() {
            let mut value = Vec::new();
            BlockHandle { offset, bytes }.encode(&mut value);
            builder.add(InternalKey::new(&[at as u8], Trailer::OLDEST), &value);
        }
        let content = builder.finish().to_vec().into();
        Block::decode(content, BlockRole::Index, HANDLE).map(|block| block.entries())
    };
    assert_eq!(decode(&[(64, 10), (74, 5), (100, 5)]), Ok(3));
    let refused = Err(Corruption::Order { what: "handles of an index" });
    for handles in [[(64, 10), (64, 10)], [(64, 10), (73, 5)], [(100, 10), (64, 10)]] {
        assert_eq!(decode(&handles), refused, "{handles:?}");
    }
}

#[test]
fn kind_0_is_valid_in_an_index_only() {
    let handle: &[u8] = b"s\x40\x64";
    let raw = Raw { entries: 1, kind: 0, entry_bytes: 3, sequence: 0, prefix_bytes: 0, ..TWO };
    let index =
        Block::decode(Raw { rest: b"s\x40\x64", ..raw }.content(), BlockRole::Index, HANDLE)
            .unwrap();
    assert_eq!(handle.len(), 3);
    let mut cursor = BlockCursor::new(index);
    cursor.seek_to_first();
    assert_eq!(cursor.key(), Some(InternalKey::new(b"s", Trailer::OLDEST)));
    let later = Raw { sequence: 1, rest: b"s\x40\x64", ..raw }.content();
    let want = Corruption::OutOfRange { what: "sequence number of an entry", value: 1 };
    assert_eq!(Block::decode(later, BlockRole::Index, HANDLE).map(drop), Err(want));
}

/// Lookups with many matching tags, or no tags.
#[test]
fn many_versions_and_large_blocks_are_searched() {
    let mut versions: Vec<Version> = (1..=100).rev().map(|n| (b"versions".to_vec(), n)).collect();
    check_lookups(&versions);
    // Exceeds the limit of tags; every third key has two versions.
    for n in 0..1000_u64 {
        let user_key = format!("w{n:04}").into_bytes();
        versions.extend(
            (1..=1 + u64::from(n.is_multiple_of(3))).rev().map(|at| (user_key.clone(), at)),
        );
    }
    check_lookups(&versions);
}

fn check_lookups(versions: &[Version]) {
    let block = block(versions);
    for version in versions {
        let seek = InternalKey::seek(&version.0, version.1);
        assert_eq!(get(&block, seek), Some((key(version).trailer, value(version).into())));
        let absent = [&version.0[..], b"x"].concat();
        assert_eq!(get(&block, InternalKey::seek(&absent, SEQUENCE_MAX)), None);
        let oldest = InternalKey::seek(&version.0, 0);
        assert_eq!(get(&block, oldest), None);
    }
}

#[test]
fn an_index_decodes_handles() {
    let block = |value: &[u8]| {
        let mut builder = BlockBuilder::default();
        builder.add(InternalKey::new(b"k", Trailer::OLDEST), value);
        Block::decode(builder.finish().to_vec().into(), BlockRole::Index, HANDLE)
    };
    let handle = BlockHandle { offset: 64, bytes: 100 };
    let mut bytes = Vec::new();
    handle.encode(&mut bytes);
    let target = InternalKey::seek(b"k", SEQUENCE_MAX);
    let handle_for = |target| {
        let index = block(&bytes).unwrap();
        index.position(target).map(|at| index.handle_at(at))
    };
    assert_eq!(handle_for(target), Some(handle));
    let behind = InternalKey::seek(b"ka", SEQUENCE_MAX);
    assert_eq!(handle_for(behind), None);
    bytes.push(0);
    assert!(block(&bytes).is_err(), "a byte behind the handle");
    assert!(block(b"").is_err(), "no handle");
}

#[test]
fn an_empty_block_has_no_positions() {
    for block in [Block::empty(BlockRole::Data), block(&[])] {
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

#[test]
fn words_order_as_bytes() {
    let bytes: Vec<_> = (0..12).map(|n| 0x10 + n).collect();
    for length in 0..bytes.len() {
        let mut want = [0; 8];
        want[..length.min(8)].copy_from_slice(&bytes[..length.min(8)]);
        assert_eq!(word_of(&bytes[..length]), u64::from_be_bytes(want), "{length} bytes");
    }
}
