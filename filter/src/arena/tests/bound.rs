//! Tests of pages that are released and reused under a limit.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{fill_of, heap_bytes};
use crate::arena::{
    ALIGNMENT, ArenaStats, CHUNK_BYTES, FilterArena, Slice,
    pages::{PageBytes, Released},
    space::Space,
};
use crate::line::{LINE_BYTES, Line};

/// The next step, with filters of this many parts.
#[derive(Debug, Clone)]
enum Step {
    Allocate {
        lines: usize,
        parts: usize,
    },
    /// Fill all available memory.
    Fill {
        parts: usize,
    },
    Free(usize),
    Bound {
        bytes_max: usize,
        outside: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lines = prop_oneof![
        4 => 1..CHUNK_BYTES / LINE_BYTES,
        2 => 1..200_usize,
        1 => Just(CHUNK_BYTES / LINE_BYTES),
    ];
    let step = prop_oneof![
        4 => (lines, 1..5_usize).prop_map(|(lines, parts)| Step::Allocate { lines, parts }),
        1 => (1..5_usize).prop_map(|parts| Step::Fill { parts }),
        3 => any::<usize>().prop_map(Step::Free),
        1 => (0..6 * CHUNK_BYTES, 0..CHUNK_BYTES / 4)
            .prop_map(|(bytes_max, outside)| Step::Bound { bytes_max, outside }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Returns the bytes after all releasable pages were released.
fn least(stats: ArenaStats) -> usize {
    stats.used_bytes + stats.unreclaimable_bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 48 }))]

    /// A caller that checks for room before each filter stays within the limit, and content stays
    /// intact.
    #[test]
    fn the_limit_holds(steps in steps(), cannot_release_pages in any::<bool>()) {
        let arena = FilterArena::new();
        if cannot_release_pages {
            // As on a system that cannot take pages back.
            arena.with_space(Space::stop_releasing_pages);
        }
        let mut filters: Vec<(u64, Vec<Slice<Line>>)> = Vec::new();
        let (mut bound, mut outside_bytes) = (usize::MAX, 0);
        for (number, step) in (0_u64..).zip(steps) {
            let before = arena.stats();
            let room = bound.saturating_sub(least(before) + before.rounding_bytes_max);
            match step {
                Step::Allocate { parts, .. } | Step::Fill { parts } => {
                    let lines = match step {
                        Step::Allocate { lines, .. } => lines,
                        _ if bound == usize::MAX => continue,
                        _ => room / LINE_BYTES,
                    };
                    let bytes = lines * LINE_BYTES;
                    let is_free = bytes <= before.free_range_bytes_max && before.bytes <= bound;
                    arena.announce(bytes, outside_bytes);
                    let lines_of = |part| lines * (part + 1) / parts - lines * part / parts;
                    let slice = |part| Slice::filled(fill_of(number), lines_of(part), &arena);
                    filters.push((number, (0..parts).map(slice).collect()));
                    let after = arena.stats();
                    if (1..=room).contains(&bytes) || is_free {
                        prop_assert!(after.bytes <= bound, "{:?}, then {:?}", before, after);
                    }
                }
                Step::Free(which) if !filters.is_empty() => {
                    filters.swap_remove(which % filters.len());
                }
                Step::Free(_) => {}
                Step::Bound { bytes_max, outside } => {
                    arena.set_bytes_max(bytes_max);
                    arena.announce(0, outside);
                    outside_bytes = outside;
                    bound = bytes_max.saturating_sub(outside);
                }
            }
            let stats = arena.stats();
            prop_assert!(stats.bytes <= bound.max(least(stats)), "{:?}, bound {}", stats, bound);
            prop_assert!(stats.bytes >= least(stats));
            for (number, parts) in &filters {
                let fill = fill_of(*number);
                prop_assert!(parts.iter().all(|part| part.iter().all(|line| *line == fill)));
            }
        }
        filters.clear();
        let stats = arena.stats();
        prop_assert_eq!((stats.used_bytes, heap_bytes(&arena)), (0, 0));
        prop_assert!(stats.chunks <= 1 && stats.bytes <= CHUNK_BYTES.min(bound), "{:?}", stats);
    }

    /// Compares released pages with a set.
    #[test]
    fn released_pages_equal_a_set(steps in proptest::collection::vec((0..400_usize, 1..80_usize, any::<bool>()), 1..60)) {
        const PAGE: usize = 16;

        let page_bytes = PageBytes::new(Some(PAGE));
        let (mut released, mut model) = (Released::default(), BTreeSet::new());
        for (first, bytes, is_release) in steps {
            if is_release {
                let pages = page_bytes.within(first, bytes);
                let mut gaps_end = pages.end;
                while let Some(gap) = released.last_gap(pages.clone()) {
                    prop_assert!(gap.end <= gaps_end && !gap.is_empty());
                    gaps_end = gap.start;
                    for page in gap.clone().step_by(PAGE) {
                        prop_assert!(model.insert(page), "{} is released twice", page);
                    }
                    released.add(gap);
                }
                prop_assert!(pages.step_by(PAGE).all(|page| model.contains(&page)));
            } else {
                released.remove(page_bytes, first, bytes);
                model.retain(|page| page + PAGE <= first || first + bytes <= *page);
            }
            prop_assert_eq!(released.bytes(), model.len() * PAGE);
        }
    }
}

/// A store fills its limit, so that filters are on the heap although there are free ranges.
#[test]
fn free_ranges_make_room_for_the_heap() {
    const FILTER_BYTES: usize = CHUNK_BYTES / 3 + 1_024;

    let bytes_max = 2 * CHUNK_BYTES + FILTER_BYTES;
    let arena = FilterArena::new();
    arena.set_bytes_max(bytes_max);
    let filter = |number: u8| Slice::filled(number, FILTER_BYTES, &arena);
    // The first is allocated before there is a chunk. Then there are two per chunk, and one has no
    // room.
    let filters: Vec<_> = (0..6).map(filter).collect();
    let stats = arena.stats();
    assert_eq!((stats.chunks, heap_bytes(&arena)), (2, 2 * FILTER_BYTES));
    if cfg!(all(target_os = "linux", not(miri))) {
        assert!(stats.bytes <= bytes_max, "{stats:?}");
        assert!(stats.unreclaimable_bytes <= 2 * stats.rounding_bytes_max, "{stats:?}");
        assert_eq!(stats.free_range_bytes_max, 0);
    } else {
        assert_eq!(stats.bytes, bytes_max + FILTER_BYTES);
        assert_eq!(stats.unreclaimable_bytes, 2 * (CHUNK_BYTES - 2 * FILTER_BYTES));
        assert!(stats.free_range_bytes_max > CHUNK_BYTES - 2 * FILTER_BYTES - 1_000, "{stats:?}");
    }
    for (number, filter) in (0..).zip(&filters) {
        assert!(filter.iter().all(|byte| *byte == number), "filter {number}");
    }
}

/// A larger chunk starts with a free range of the usual chunk size.
#[test]
fn a_free_range_of_a_chunks_length_is_not_a_chunk() {
    let arena = FilterArena::new();
    let first = Slice::filled(1_u8, CHUNK_BYTES + ALIGNMENT, &arena);
    let last = Slice::filled(2_u8, CHUNK_BYTES - ALIGNMENT, &arena);
    drop(first);
    let gap = Slice::filled(3_u8, CHUNK_BYTES, &arena);
    let between = Slice::filled(4_u8, ALIGNMENT, &arena);
    drop(gap);
    assert_eq!((arena.stats().chunks, heap_bytes(&arena)), (1, 0));
    arena.set_bytes_max(0);
    assert_eq!(arena.stats().chunks, 1);
    assert!(last.iter().all(|byte| *byte == 2) && between.iter().all(|byte| *byte == 4));
}

/// Residency as Linux reports it.
#[cfg(all(target_os = "linux", not(miri)))]
mod residency {
    use rustix::param::page_size;

    use super::*;

    /// Returns the resident pages of a range, from `mincore`.
    fn resident_pages(first: usize, bytes: usize) -> usize {
        let mut pages = vec![0_u8; bytes / page_size()];
        let first = std::ptr::with_exposed_provenance_mut(first);
        // SAFETY: it reads no byte of the range and writes one per page.
        let found = unsafe { libc::mincore(first, bytes, pages.as_mut_ptr()) };
        assert_eq!(found, 0, "the range is mapped");
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    /// Requests huge pages, as khugepaged may at any time. Before Linux 6.1 the system refuses.
    fn collapse(first: usize, bytes: usize) {
        const MADV_COLLAPSE: libc::c_int = 25;

        let first = std::ptr::with_exposed_provenance_mut(first);
        // SAFETY: the range is mapped, and the advice changes no byte.
        let advised = unsafe { libc::madvise(first, bytes, MADV_COLLAPSE) };
        let _ = advised;
    }

    /// A lowered limit releases pages of a free range, also in huge pages. A later allocation there
    /// works.
    #[test]
    fn released_pages_are_not_resident_until_reused() {
        const QUARTER: usize = CHUNK_BYTES / 4;

        for starts_small in [false, true] {
            let arena = FilterArena::new();
            if starts_small {
                arena.start_with_small_pages();
            }
            // The bytes suffice for a chunk.
            drop(Slice::filled(0_u8, CHUNK_BYTES, &arena));
            let mut quarters: Vec<Slice<u8>> =
                (1..=4).map(|fill| Slice::filled(fill, QUARTER, &arena)).collect();
            let pages = QUARTER / page_size();
            let gone = quarters.remove(1);
            let first = gone.as_ptr().addr();
            assert_eq!(resident_pages(first, QUARTER), pages);
            drop(gone);
            assert_eq!(resident_pages(first, QUARTER), pages, "the pages are reused");
            assert_eq!(arena.stats().bytes, CHUNK_BYTES);

            // As many as needed, from the end.
            arena.set_bytes_max(CHUNK_BYTES - QUARTER / 2);
            assert_eq!(arena.stats().bytes, CHUNK_BYTES - QUARTER / 2);
            assert_eq!(resident_pages(first, QUARTER / 2), pages / 2);
            assert_eq!(resident_pages(first + QUARTER / 2, QUARTER / 2), 0);
            arena.set_bytes_max(CHUNK_BYTES);
            arena.announce(0, QUARTER);
            assert_eq!(arena.stats().bytes, CHUNK_BYTES - QUARTER);
            assert_eq!(resident_pages(first, QUARTER), 0);
            // The gap stays: the system does not fill it even on request.
            arena.use_huge_pages();
            collapse(quarters[0].as_ptr().addr(), CHUNK_BYTES);
            assert_eq!(resident_pages(first, QUARTER), 0);

            arena.announce(0, 0);
            let again = Slice::filled(9_u8, QUARTER - ALIGNMENT, &arena);
            assert_eq!(again.as_ptr().addr(), first, "the free range is reused");
            assert_eq!(arena.stats().bytes, CHUNK_BYTES);
            assert_eq!(resident_pages(first, QUARTER), pages);
            assert!(again.iter().all(|byte| *byte == 9));
            for (fill, quarter) in [1, 3, 4].into_iter().zip(&quarters) {
                assert!(quarter.iter().all(|byte| *byte == fill), "quarter {fill}");
            }
        }
    }

    /// Released pages make room for a chunk.
    #[test]
    fn released_pages_do_not_count_for_a_new_chunk() {
        const QUARTER: usize = CHUNK_BYTES / 4;

        let arena = FilterArena::new();
        drop(Slice::filled(0_u8, CHUNK_BYTES, &arena));
        let mut quarters: Vec<Slice<u8>> =
            (1..=4).map(|fill| Slice::filled(fill, QUARTER, &arena)).collect();
        quarters.remove(1);
        arena.set_bytes_max(CHUNK_BYTES - QUARTER);
        arena.set_bytes_max(2 * CHUNK_BYTES - QUARTER);
        let half = Slice::filled(5_u8, CHUNK_BYTES / 2, &arena);
        assert_eq!((arena.stats().chunks, heap_bytes(&arena)), (2, 0));
        drop((half, quarters));
    }

    /// The empty chunk is unmapped too, and other memory stays intact.
    #[test]
    fn an_empty_chunk_is_unmapped_under_a_limit() {
        let arena = FilterArena::new();
        let large = Slice::filled(1_u8, CHUNK_BYTES, &arena);
        drop(large);
        assert_eq!((arena.stats().chunks, arena.stats().bytes), (1, CHUNK_BYTES));
        arena.set_bytes_max(CHUNK_BYTES - 1);
        assert_eq!((arena.stats().chunks, arena.stats().bytes), (0, 0));
        let on_heap = Slice::filled(2_u8, CHUNK_BYTES, &arena);
        assert_eq!(heap_bytes(&arena), CHUNK_BYTES);
        assert!(on_heap.iter().all(|byte| *byte == 2));
    }
}
