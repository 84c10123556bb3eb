//! Tests of contents in pages, and of taking and returning pages.

use std::{cell::RefCell, collections::VecDeque, mem, ptr, rc::Rc, thread};

use bytes::Bytes;
use sievedb_format::{InternalKey, Kind, SEQUENCE_MAX, Trailer};

use super::{
    bitmap::CHUNK_PAGES,
    chunks::RUNS_WITHOUT_MAP,
    pages::{LEAVING_PAGES_MAX, kept_pages_max},
    system::calls::{GIVE_BACKS, MAPS, UNMAPS},
    *,
};
use crate::{BlockCache, BlockCounts, Table, TableIdentity, TableOptions, TableWriter};

/// Memory without a page, on a system with pages of 4 KiB.
fn memory() -> Arc<BlockMemory> {
    forget_calls();
    BlockMemory::new().expect("a system with pages of 4 KiB")
}

fn forget_calls() {
    for calls in [&MAPS, &GIVE_BACKS, &UNMAPS] {
        calls.with(|calls| calls.counted());
    }
}

fn copy(memory: &Arc<BlockMemory>, content: &[u8]) -> Option<Bytes> {
    memory.copy(content, BlockRole::Data).map(Bytes::from_owner)
}

/// Returns `count` contents of one page, in the order of their pages.
fn single_pages(memory: &Arc<BlockMemory>, count: usize) -> Vec<Bytes> {
    (0..count).map(|_| copy(memory, &[7; PAGE_BYTES]).expect("there is memory")).collect()
}

/// Returns the maximum resident bytes with `used` used pages.
fn with_kept(used: usize) -> usize {
    (used + kept_pages_max(used)) * PAGE_BYTES
}

#[test]
fn n1_contents_lie_in_pages_by_their_role_and_use_of_pages() {
    use BlockRole::{Data, Index};
    let cases = [
        (0, None, None),
        (1, None, None),
        (2047, None, None),
        (2048, None, Some(1)),
        (3071, None, Some(1)),
        (3072, Some(1), Some(1)),
        (4096, Some(1), Some(1)),
        (4097, None, Some(2)),
        (6143, None, Some(2)),
        (6144, Some(2), Some(2)),
        (16 << 10, Some(4), Some(4)),
        (256 << 10, Some(64), Some(64)),
        ((256 << 10) + 1, None, None),
    ];
    for (bytes, data, index) in cases {
        assert_eq!([pages_of(bytes, Data), pages_of(bytes, Index)], [data, index], "{bytes}");
    }
}

/// Contents stay unchanged while any number of threads take and return runs.
#[test]
fn contents_stay_unchanged_while_threads_take_runs() {
    let memory = memory();
    let seed = std::env::var("SIEVE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand_seed);
    eprintln!("SIEVE_SEED={seed}");
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let memory = &memory;
            scope.spawn(move || {
                let mut state = seed.wrapping_add(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                let mut held: Vec<(u8, Bytes)> = Vec::new();
                for step in 0..20_000_u32 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let pages = 1 + (state >> 8) as usize % 20;
                    if held.len() > 300 || state % 3 == 0 && !held.is_empty() {
                        let (fill, content) = held.swap_remove((state >> 32) as usize % held.len());
                        assert!(content.iter().all(|&byte| byte == fill), "step {step}");
                    } else {
                        let fill = state as u8;
                        let content = vec![fill; pages * PAGE_BYTES - 100];
                        held.push((fill, copy(memory, &content).expect("there is memory")));
                    }
                }
                assert!(held.iter().all(|(fill, content)| content.iter().all(|byte| byte == fill)));
            });
        }
    });
    assert_eq!(memory.resident_bytes(), 0);
}

fn rand_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

/// As in a forked process without the thread that held the lock.
#[test]
fn a_content_is_dropped_while_the_lock_is_held() {
    let memory = memory();
    let held = single_pages(&memory, 100);
    let pages = memory.pages.lock();
    drop(held);
    assert_eq!(pages.resident(), 100);
    drop(pages);
    memory.resident_bytes();
    assert_eq!(memory.resident_bytes(), 0);
}

/// A shrinking cache returns memory for any choice of evicted blocks.
#[test]
fn pages_of_scattered_blocks_return_to_the_system() {
    let memory = memory();
    let mut held = single_pages(&memory, 4_096);
    assert_eq!(memory.resident_bytes(), 4_096 * PAGE_BYTES);
    let places: Vec<usize> = held.iter().map(|block| block.as_ptr().expose_provenance()).collect();
    let mut at = 0..;
    held.retain(|_| at.next().is_some_and(|at: usize| at.is_multiple_of(2)));
    let resident_bytes = memory.resident_bytes();
    assert!(resident_bytes <= with_kept(held.len()), "{resident_bytes}");
    let is_zero = |&&place: &&usize| {
        // SAFETY: its chunk is mapped, because blocks in it are held; no thread writes meanwhile.
        unsafe { ptr::with_exposed_provenance::<u8>(place + PAGE_BYTES - 1).read() == 0 }
    };
    let returned = places.iter().skip(1).step_by(2).filter(is_zero).count();
    assert_eq!(resident_bytes, (places.len() - returned) * PAGE_BYTES);
    assert!(held.iter().all(|block| **block == [7; PAGE_BYTES]));
}

/// Each step takes few calls if the pages are adjacent.
#[test]
fn n2_pages_return_in_bounded_steps_of_few_calls() {
    let memory = memory();
    let held = single_pages(&memory, 16 * CHUNK_PAGES);
    let dropped = held.len() - 100;
    let mut pages = memory.pages.lock();
    let mut held = held.into_iter();
    // While the lock is held, no page is returned.
    held.by_ref().take(dropped).for_each(drop);
    memory.put_back_dropped(&mut pages);
    let mut steps = 0;
    loop {
        let leaving = pages.take_surplus();
        let count: usize = leaving.iter().map(|it| usize::from(it.run().pages)).sum();
        assert!(count <= LEAVING_PAGES_MAX, "{count} pages in a step");
        if leaving.is_empty() {
            break;
        }
        assert!(leaving.len() <= 2, "{} calls for {count} adjacent pages", leaving.len());
        pages.free(&leaving, true);
        steps += 1;
    }
    assert_eq!(steps, dropped.div_ceil(LEAVING_PAGES_MAX));
    assert_eq!(pages.resident(), 100);
    drop(pages);
    assert!(held.all(|block| *block == [7; PAGE_BYTES]));
}

/// Another thread uses the memory while the system takes pages back.
#[test]
fn n2_no_lock_is_held_while_pages_return() {
    let memory = memory();
    let held = single_pages(&memory, 100);
    let (other, copied) = (Arc::clone(&memory), Rc::new(RefCell::new(Vec::new())));
    let of_hook = Rc::clone(&copied);
    // Copies into none of the pages that return: they would become zeros.
    let use_memory = move || {
        let is_free = other.pages.try_lock().is_some();
        let content = is_free.then(|| copy(&other, &[9; PAGE_BYTES])).flatten();
        of_hook.borrow_mut().push(content);
    };
    GIVE_BACKS.with(|calls| calls.run_with(use_memory, || drop(held)));
    let calls = GIVE_BACKS.with(|calls| calls.counted());
    assert!(calls > 0 && copied.borrow().len() == calls, "{calls} calls");
    let is_whole = |content: &Option<Bytes>| content.as_deref() == Some(&[9; PAGE_BYTES][..]);
    assert!(copied.borrow().iter().all(is_whole), "the lock was held, or a page was given away");
    assert_eq!(memory.resident_bytes(), calls * PAGE_BYTES);
}

#[test]
fn n2_a_dropped_cache_only_unmaps() {
    let memory = memory();
    let mut held = single_pages(&memory, 4 * CHUNK_PAGES);
    // A content that a caller holds after the cache is dropped.
    let pinned = held.swap_remove(CHUNK_PAGES + 3);
    assert_eq!(GIVE_BACKS.with(|calls| calls.counted()), 0);
    memory.close(|| drop(mem::take(&mut held)));
    assert_eq!(UNMAPS.with(|calls| calls.counted()), 3);
    assert_eq!(GIVE_BACKS.with(|calls| calls.counted()), 2, "on both sides of the pinned page");
    assert_eq!(memory.resident_bytes(), PAGE_BYTES);
    assert_eq!(*pinned, [7; PAGE_BYTES]);
    drop(pinned);
    assert_eq!((memory.resident_bytes(), UNMAPS.with(|calls| calls.counted())), (0, 1));
}

/// The last table drops the cache, whose blocks lie in slots of its index too.
#[test]
fn n2_the_last_table_only_unmaps() {
    let identity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };
    let mut writer = TableWriter::new(Vec::new(), identity, TableOptions::new()).unwrap();
    let keys: Vec<_> = (0..2_000_u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        let value: Vec<u8> = (0..1_800).map(|at| at as u8).collect();
        writer.add(InternalKey::new(key, Trailer::new(5, Kind::Put)), &value).unwrap();
    }
    let (bytes, summary) = writer.finish().unwrap();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = Table::open(Arc::new(Bytes::from(bytes)), identity, summary.bytes, cache).unwrap();
    for key in &keys {
        table.get(key, SEQUENCE_MAX, &mut BlockCounts::default()).unwrap().unwrap();
    }
    forget_calls();
    drop(table);
    assert_eq!(GIVE_BACKS.with(|calls| calls.counted()), 0);
    assert!(UNMAPS.with(|calls| calls.counted()) > 1);
}

/// Two of many chunks have single free pages. After one failed search each, longer runs skip them.
#[test]
fn n3_a_search_does_not_walk_full_chunks() {
    const CHUNKS: usize = 64;
    let memory = memory();
    let mut held = single_pages(&memory, CHUNKS * CHUNK_PAGES);
    // Every second page of two chunks: no content of two pages fits.
    for chunk in [50, 20] {
        for page in (0..CHUNK_PAGES).step_by(2).rev() {
            drop(held.remove(chunk * CHUNK_PAGES + page));
        }
    }
    let searches = || memory.pages.lock().searches();
    let mut before = searches();
    let mut searched = || searches() - mem::replace(&mut before, searches());
    let two = [7; 2 * PAGE_BYTES];
    held.extend((0..100).map(|_| copy(&memory, &two).expect("there is memory")));
    let count = searched();
    assert!(count <= 100 + 2, "{count} searches for 100 contents, at most 2 failed");
    // All single free pages of these chunks, except those kept for reuse.
    held.extend(single_pages(&memory, CHUNK_PAGES - 10));
    let count = searched();
    assert!(count <= CHUNK_PAGES, "{count} searches for {CHUNK_PAGES} pages");
    assert_eq!(memory.pages.lock().mapped(), (CHUNKS + 1) * CHUNK_PAGES);
}

/// As with `mlockall`: each call to return pages fails.
#[test]
fn n6_pages_that_the_system_does_not_take_back_are_reused() {
    let memory = memory();
    let mut held = single_pages(&memory, 4 * CHUNK_PAGES);
    GIVE_BACKS.with(|calls| calls.refuse(true));
    let mut at = 0..;
    held.retain(|_| at.next().is_some_and(|at: usize| at.is_multiple_of(2)));
    let calls = GIVE_BACKS.with(|calls| calls.counted());
    assert!((1..=2 * CHUNK_PAGES).contains(&calls), "{calls} calls: each page once");
    let mapped_bytes = 4 * CHUNK_PAGES * PAGE_BYTES;
    assert_eq!(memory.resident_bytes(), mapped_bytes, "all is resident");
    // The next contents reuse them without a map.
    MAPS.with(|calls| calls.counted());
    held.extend(single_pages(&memory, 2 * CHUNK_PAGES));
    assert_eq!(MAPS.with(|calls| calls.counted()), 0);
    assert!(held.iter().all(|block| **block == [7; PAGE_BYTES]));
    drop(held);
    assert_eq!(memory.resident_bytes(), 0, "unmapping does not fail");
    GIVE_BACKS.with(|calls| calls.refuse(false));
}

#[test]
fn n6_a_refused_map_is_not_requested_for_each_content() {
    let memory = memory();
    MAPS.with(|calls| calls.refuse(true));
    for round in 0..3 {
        for _ in 0..=RUNS_WITHOUT_MAP {
            assert!(copy(&memory, &[7; PAGE_BYTES]).is_none());
        }
        assert_eq!(MAPS.with(|calls| calls.counted()), 1, "round {round}");
    }
    MAPS.with(|calls| calls.refuse(false));
    assert!(copy(&memory, &[7; PAGE_BYTES]).is_some(), "the system has memory again");
}

/// A full cache: each new content evicts some. One of 20 is an index partition of four pages.
#[test]
fn n4_few_kept_pages_avoid_most_calls() {
    const CAPACITY_PAGES: usize = 768;
    let memory = memory();
    let (mut held, mut used, mut pages_written) = (VecDeque::new(), 0, 0);
    for n in 0..20_000_usize {
        let pages = if n.wrapping_mul(0x9e37_79b9) >> 7 & 0x1f < 2 { 4 } else { 1 };
        held.push_back((copy(&memory, &vec![7; pages * PAGE_BYTES]), pages));
        used += pages;
        pages_written += pages;
        while used > CAPACITY_PAGES {
            used -= held.pop_front().map_or(0, |(_, pages)| pages);
        }
        assert!(memory.resident_bytes() <= with_kept(used));
    }
    let calls = GIVE_BACKS.with(|calls| calls.counted());
    assert!(calls < pages_written / 20, "{calls} calls for {pages_written} pages");
}
