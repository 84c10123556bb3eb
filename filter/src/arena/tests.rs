//! Tests of allocations against a model, and of filters in an arena against equal ones on the heap.

mod bound;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{chunk::Chunk, free_ranges::FreeRanges, pages::PageBytes, *};
use crate::decode_error::DecodeError;
use crate::filter_block::{self, Expected, FilterKind, Trailer};
use crate::line::{LINE_BYTES, Line};
use crate::range_filter::{PointCollector, RangeFilter};
use crate::ribbon::Ribbon;
use crate::table_filter::TableFilter;

const EXPECTED: Expected = Expected { hash_seed: 1, salt: 2 };

/// The next step: allocate a number of lines, or free the allocation with this index.
#[derive(Debug, Clone)]
enum Step {
    Allocate(usize),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lines_of_chunk = CHUNK_BYTES / LINE_BYTES;
    let take = prop_oneof![
        4 => 1..lines_of_chunk,
        2 => 1..200_usize,
        1 => Just(lines_of_chunk),
        1 => lines_of_chunk..3 * lines_of_chunk,
        1 => Just(0),
    ];
    let step = prop_oneof![take.prop_map(Step::Allocate), any::<usize>().prop_map(Step::Free)];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 24 }))]

    /// Allocations keep their content, do not overlap, are aligned to 64, and are counted.
    #[test]
    fn allocations_are_disjoint_and_counted(steps in steps(), bytes_max in proptest::option::of(0..8_usize)) {
        let arena = FilterArena::new();
        if let Some(chunks) = bytes_max {
            arena.set_bytes_max(chunks * CHUNK_BYTES);
        }
        let mut pieces: Vec<(u64, Slice<Line>)> = Vec::new();
        for (number, step) in (0_u64..).zip(steps) {
            match step {
                Step::Allocate(lines) => {
                    let fill = fill_of(number);
                    pieces.push((number, Slice::filled(fill, lines, &arena)));
                }
                Step::Free(which) if !pieces.is_empty() => {
                    pieces.swap_remove(which % pieces.len());
                }
                Step::Free(_) => {}
            }
            let used: usize = pieces.iter().map(|(_, piece)| piece.len() * LINE_BYTES).sum();
            let stats = arena.stats();
            prop_assert_eq!(stats.used_bytes, used);
            prop_assert!(stats.bytes >= used);
            match bytes_max {
                Some(chunks) => {
                    let least = used + stats.unreclaimable_bytes;
                    prop_assert!(stats.bytes <= least.max(chunks * CHUNK_BYTES));
                }
                None => {
                    let chunk_bytes = stats.bytes - heap_bytes(&arena);
                    prop_assert!(chunk_bytes.is_multiple_of(CHUNK_BYTES));
                }
            }
            let mut places = BTreeMap::new();
            for (number, piece) in &pieces {
                prop_assert!(piece.iter().all(|line| *line == fill_of(*number)), "piece {}", number);
                let first = piece.as_ptr().addr();
                prop_assert!(first.is_multiple_of(ALIGNMENT));
                if !piece.is_empty() {
                    places.insert(first, first + piece.len() * LINE_BYTES);
                }
            }
            let ends = places.values();
            prop_assert!(ends.zip(places.keys().skip(1)).all(|(end, next)| end <= next));
        }
        pieces.clear();
        let stats = arena.stats();
        prop_assert_eq!((stats.used_bytes, heap_bytes(&arena)), (0, 0));
        prop_assert!(stats.chunks <= 1 && stats.bytes <= CHUNK_BYTES, "{:?}", stats);
    }

    /// After any steps, free ranges and allocations cover all chunks.
    #[test]
    fn free_ranges_complement_allocations(sizes in proptest::collection::vec(1..3_000_usize, 1..60)) {
        const PAGE: usize = 1 << 10;

        let (base, bytes) = (1 << 30, 100 * PAGE);
        let mut free = FreeRanges::new(PageBytes::new(Some(PAGE)));
        let whole_pages = |pieces: &[(usize, usize)]| {
            let is_in = |page: usize, first: usize, size: usize| {
                first < page + PAGE && page < first + size
            };
            let is_whole =
                |page: &usize| pieces.iter().all(|&(first, size)| !is_in(*page, first, size));
            (base..base + bytes).step_by(PAGE).filter(is_whole).count() * PAGE
        };
        free.add(base, bytes);
        let mut pieces = Vec::new();
        let mut left = bytes;
        for (index, size) in sizes.into_iter().enumerate() {
            let before = free.whole_page_bytes();
            if let Some(first) = free.allocate(size) {
                pieces.push((first, size));
                left -= size;
                prop_assert!(before - free.whole_page_bytes() < size + PAGE);
            }
            if index % 3 == 2 && !pieces.is_empty() {
                let (first, size) = pieces.swap_remove(index % pieces.len());
                left += size;
                prop_assert!(free.deallocate(first, size, base, bytes) >= size);
            }
            prop_assert_eq!(free.bytes(), left);
            prop_assert_eq!(free.whole_page_bytes(), whole_pages(&pieces));
            let lengths: Vec<_> = free.longest_first().map(|(_, bytes)| bytes).collect();
            prop_assert!(lengths.is_sorted_by(|longer, shorter| longer >= shorter));
            prop_assert_eq!(free.longest(), lengths.first().copied().unwrap_or(0));
        }
        let mut last = 0;
        for (first, size) in pieces {
            last = free.deallocate(first, size, base, bytes);
        }
        prop_assert_eq!(free.bytes(), bytes);
        prop_assert!(last == bytes || last == 0);
        prop_assert_eq!(free.of_bytes(bytes).count(), 1, "all free ranges are merged");
    }
}

fn fill_of(number: u64) -> Line {
    Line::from_bytes(&[number as u8 ^ 0x5a; LINE_BYTES])
}

fn heap_bytes(arena: &FilterArena) -> usize {
    arena.with_space(|space| space.heap_bytes()).expect("an arena")
}

fn hashes(count: u64) -> Vec<u64> {
    (0..count).map(|i| crate::key_hash(&i.to_le_bytes(), 3)).collect()
}

fn trailer(bytes: &[u8]) -> Result<Trailer, DecodeError> {
    Trailer::read(bytes, bytes.len() as u64, EXPECTED)
}

fn decode_in(bytes: &[u8], arena: &FilterArena) -> Result<TableFilter, DecodeError> {
    trailer(bytes)?.decode_in(bytes, f64::INFINITY, arena)
}

fn decode_range_in(bytes: &[u8], arena: &FilterArena) -> Result<RangeFilter, DecodeError> {
    trailer(bytes)?.decode_range_in(bytes, arena)
}

/// Every kind, whole and in part: same results, bytes and counts as on the heap.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn filters_equal_those_on_the_heap() {
    let present = hashes(60_000);
    let probed: Vec<u64> = hashes(90_000);
    let arena = FilterArena::new();
    let mut filters = Vec::new();
    for kind in [FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::BinaryFuse] {
        for bits_per_key in [1.5, 10.0, 18.0] {
            let built =
                TableFilter::build(kind, &present, bits_per_key).expect("the kind is built");
            let bytes = filter_block::encode(&built, EXPECTED);
            let on_heap = filter_block::decode(&bytes, EXPECTED).expect("the block is valid");
            for round in 0..12 {
                let filter = decode_in(&bytes, &arena).expect("the block is valid");
                assert_eq!(filter_block::encode(&filter, EXPECTED), bytes, "{kind:?} {round}");
                assert_eq!(filter.memory_bytes(), on_heap.memory_bytes());
                filters.push((filter, on_heap.clone()));
            }
        }
    }
    assert!(arena.stats().chunks > 1, "{:?}", arena.stats());
    for (filter, on_heap) in &filters {
        for &hash in &probed {
            assert_eq!(filter.may_contain_hash(hash), on_heap.may_contain_hash(hash));
        }
    }
    drop(filters);
    assert_eq!(arena.stats().used_bytes, 0);
    assert!(arena.stats().chunks <= 1);
}

#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn range_filters_equal_those_on_the_heap() {
    let arena = FilterArena::new();
    let mut collector = PointCollector::new();
    let mut keys: Vec<_> = hashes(700_000).into_iter().map(u64::to_be_bytes).collect();
    keys.sort_unstable();
    keys.iter().for_each(|key| collector.push(key));
    let points = collector.finish(&keys[0], &keys[keys.len() - 1]);
    let built = RangeFilter::build(points, 12.0, 7);
    let bytes = filter_block::encode_range(&built, EXPECTED);
    let filter = decode_range_in(&bytes, &arena).expect("the block is valid");
    let copy = filter.clone();
    assert_eq!(arena.stats().used_bytes, filter.memory_bytes() + copy.memory_bytes());
    assert!(arena.stats().chunks > 0, "{:?}", arena.stats());
    assert_eq!(filter_block::encode_range(&filter, EXPECTED), bytes);
    for first in hashes(300_000) {
        let last = first.saturating_add(1 << 30);
        let want = built.may_contain_range(first, last);
        assert_eq!(filter.may_contain_range(first, last), want);
        assert_eq!(copy.may_contain_range(first, last), want);
    }
    drop((filter, copy));
    assert_eq!(arena.stats().used_bytes, 0);
    // The damage is found after a part has been allocated.
    for at in [0, bytes.len() / 2, bytes.len() - 1] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert!(decode_range_in(&bytes, &arena).is_err(), "byte {at}");
        assert_eq!(arena.stats().used_bytes, 0, "byte {at}");
    }
}

/// Clones and shrunk copies stay in the arena; shrinking frees memory.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn clones_and_shrunk_filters_are_in_the_same_arena() {
    let built = Ribbon::build(&hashes(700_000), 16.0);
    let bytes = filter_block::encode(&built.clone().into(), EXPECTED);
    assert_eq!(FilterArena::heap().stats(), ArenaStats::default());
    let arena = FilterArena::new();
    let filter = decode_in(&bytes, &arena).expect("the block is valid");
    let TableFilter::Ribbon(mut filter) = filter else { panic!("a ribbon") };
    let used = arena.stats().used_bytes;
    assert!(used > 1 << 20 && used <= filter.memory_bytes());
    let half = filter.shrunk_to(8.0);
    assert!(arena.stats().used_bytes.abs_diff(used + used / 2) < used / 10);
    let copy = half.clone();
    assert!(arena.stats().used_bytes.abs_diff(2 * used) < used / 10);
    drop((half, copy));
    filter.shrink_to(8.0);
    assert!(arena.stats().used_bytes.abs_diff(used / 2) < used / 10);
    // A filter keeps the arena alive.
    drop(arena);
    assert!(hashes(700_000).iter().all(|&hash| filter.may_contain_hash(hash)));
}

#[cfg_attr(miri, ignore = "expects chunks of 2 MiB")]
#[test]
fn few_small_filters_take_no_chunk() {
    let arena = FilterArena::new();
    let small: Vec<Slice<u64>> = (0..100).map(|_| Slice::filled(1, 100, &arena)).collect();
    let stats = arena.stats();
    assert_eq!((stats.bytes, stats.used_bytes, stats.chunks), (80_000, 80_000, 0));
    let large = Slice::filled(7_u8, CHUNK_BYTES + 1, &arena);
    assert_eq!(arena.stats().chunks, 1);
    assert_eq!(arena.stats().bytes, 80_000 + 2 * CHUNK_BYTES);
    // The chunk has room for more.
    let beside = Slice::filled(8_u8, CHUNK_BYTES / 2, &arena);
    assert_eq!(arena.stats().chunks, 1);
    drop((large, beside));
    assert_eq!(arena.stats().chunks, 0, "no larger chunk is kept");
    drop(small);
    let rounding_bytes_max = arena.stats().rounding_bytes_max;
    assert_eq!(arena.stats(), ArenaStats { rounding_bytes_max, ..ArenaStats::default() });
}

#[test]
fn chunks_are_aligned_and_can_be_written() {
    for chunks in [1, 3] {
        let chunk = Chunk::new(chunks * CHUNK_BYTES).expect("the system has it");
        assert!(chunk.at(0).addr().get().is_multiple_of(CHUNK_BYTES));
        for offset in [0, chunk.bytes() - 1] {
            let byte = chunk.at(offset);
            // SAFETY: within the chunk, which is not shared.
            unsafe { byte.write(7) }
        }
    }
}

/// Pages change while other threads read. Whether they become huge depends on the system and is not
/// tested.
#[test]
fn small_pages_become_huge_ones_during_reads() {
    let small_bytes = |arena: &FilterArena| arena.with_space(|space| space.small_bytes());
    let arena = FilterArena::new();
    arena.start_with_small_pages();
    let mut pieces: Vec<Slice<u64>> = Vec::new();
    for number in 0..9_u64 {
        let before = small_bytes(&arena).expect("an arena");
        pieces.push(Slice::filled(number, CHUNK_BYTES / size_of::<u64>(), &arena));
        let after = small_bytes(&arena).expect("an arena");
        assert_eq!(after, (before + CHUNK_BYTES).min(4 * CHUNK_BYTES), "piece {number}");
    }
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut rounds = 0_u64;
            while !is_done.load(std::sync::atomic::Ordering::Acquire) || rounds == 0 {
                for (number, piece) in (0_u64..).zip(&pieces) {
                    assert!(piece.iter().step_by(97).all(|value| *value == number));
                }
                rounds += 1;
            }
            rounds
        });
        arena.use_huge_pages();
        is_done.store(true, std::sync::atomic::Ordering::Release);
        assert!(reader.join().expect("the content is intact") > 0);
    });
    assert_eq!(small_bytes(&arena), Some(0));
    pieces.push(Slice::filled(9, CHUNK_BYTES / size_of::<u64>(), &arena));
    assert_eq!(small_bytes(&arena), Some(0), "no chunk has small pages");
    for (number, piece) in (0_u64..).zip(&pieces) {
        assert!(piece.iter().all(|value| *value == number), "piece {number}");
    }
}

/// A filter that is damaged or truncated frees its memory.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn an_invalid_filter_frees_its_memory() {
    let kinds = [FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::BinaryFuse];
    for (kind, on_heap) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let arena = FilterArena::new();
        if on_heap {
            arena.set_bytes_max(0);
        }
        let built = TableFilter::build(kind, &hashes(700_000), 18.0).expect("the kind is built");
        let mut bytes = filter_block::encode(&built, EXPECTED);
        let trailer = trailer(&bytes).expect("the block is valid");
        let mut pieces = 0;
        let loaded: Result<TableFilter, DecodeError> =
            trailer.load_in(f64::INFINITY, &arena, |piece| {
                pieces += 1;
                Ok(&bytes[piece.start as usize..piece.end as usize])
            });
        drop(loaded.expect("the block is valid"));
        assert!(pieces > 10, "{kind:?}: {pieces}");
        for fails_at in [0, 1, pieces / 2, pieces - 1] {
            let mut probed = 0;
            let loaded = trailer.load_in(f64::INFINITY, &arena, |piece| {
                probed += 1;
                let bytes = &bytes[piece.start as usize..piece.end as usize];
                let missing = DecodeError::Truncated { what: "piece", need: 1, have: 0 };
                if probed > fails_at { Err(missing) } else { Ok(bytes) }
            });
            assert!(loaded.is_err(), "{kind:?}, piece {fails_at}");
            assert_eq!(probed, fails_at + 1, "reading stops at the first error");
            assert_eq!(arena.stats().used_bytes, 0, "{kind:?}, piece {fails_at}");
            assert_eq!(heap_bytes(&arena), 0, "{kind:?}, piece {fails_at}");
        }
        for (less, more) in [(1, 0), (64, 0), (0, 1), (0, 64)] {
            let loaded: Result<TableFilter, DecodeError> =
                trailer.load_in(f64::INFINITY, &arena, |piece| {
                    let end = (piece.end as usize - less + more).min(bytes.len());
                    Ok(&bytes[piece.start as usize..end])
                });
            assert!(loaded.is_err(), "{kind:?}: {less} bytes less, {more} more");
            assert_eq!((arena.stats().used_bytes, heap_bytes(&arena)), (0, 0), "{kind:?}");
        }
        for at in [0, bytes.len() / 2, bytes.len() - 100] {
            bytes[at] ^= 1;
            assert!(decode_in(&bytes, &arena).is_err(), "{kind:?}, {at}");
            assert_eq!(
                (arena.stats().used_bytes, heap_bytes(&arena)),
                (0, 0),
                "{kind:?}, byte {at}"
            );
            bytes[at] ^= 1;
        }
    }
}

/// Threads allocate and free concurrently; their content stays intact.
#[test]
fn threads_share_an_arena() {
    let arena = FilterArena::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let arena = &arena;
            scope.spawn(move || {
                let mut kept: Vec<Slice<u64>> = Vec::new();
                for round in 0..if cfg!(miri) { 20_u64 } else { 200 } {
                    let lines =
                        1_000 + (thread * 7_919 + round * 104_729) % (CHUNK_BYTES as u64 / 35);
                    kept.push(Slice::filled(thread << 32 | round, lines as usize, arena));
                    if round % 4 == 3 {
                        kept.swap_remove(round as usize % kept.len());
                    }
                    if kept.len() > 20 {
                        kept.remove(0);
                    }
                    let all_ours = |piece: &Slice<u64>| {
                        piece.iter().all(|value| *value == piece[0]) && piece[0] >> 32 == thread
                    };
                    assert!(kept.iter().all(all_ours));
                }
            });
        }
    });
    assert_eq!(arena.stats().used_bytes, 0);
    assert!(arena.stats().chunks <= 1);
}
