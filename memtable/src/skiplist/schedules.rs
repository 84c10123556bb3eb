//! Concurrent inserts, scans and searches under thread schedules that shuttle chooses.
//!
//! Run them with `cargo test -p sievedb-memtable --features shuttle --lib schedules`. A failure
//! prints the schedule and the seed.
//!
//! Each of these mutations of `insert` fails at least one test:
//!
//! * a link is stored instead of compared and swapped;
//! * level 1 is linked before level 0;
//! * after a lost race, the position is not searched again, or the new node's own link is not
//!   stored again.

use std::{
    array, env,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use shuttle::{
    Config, Runner,
    scheduler::{DfsScheduler, RandomScheduler, Scheduler},
    thread,
};
use sievedb_format::{InternalKey, Kind, Trailer};

use super::*;

/// Fewer schedules would mean that the threads are not interleaved.
const SCHEDULES_MIN: usize = 20;

/// A key and the height of its tower.
type Entry = (u8, usize);

type Read = fn(&Shared);

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    config.stack_size = 256 << 10; // For the message of a panic.
    config.silence_warnings = true; // About weak orderings: see `crate::sync`.
    Runner::new(scheduler, config).run(test)
}

/// Runs `test` under all schedules.
fn every_schedule(test: impl Fn() + Send + Sync + 'static) {
    let schedules = run(DfsScheduler::new(None, false), test);
    eprintln!("{schedules} schedules");
    assert!(schedules >= SCHEDULES_MIN, "{schedules} schedules");
}

/// Runs `test` under this number of random schedules.
fn many_schedules(schedules: usize, test: impl Fn() + Send + Sync + 'static) {
    let seed = env::var("SIEVE_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    eprintln!("SIEVE_SEED={seed}");
    run(RandomScheduler::new_from_seed(seed, schedules), test);
}

/// A list and its expected contents.
struct Shared {
    list: SkipList,
    entries: Vec<Entry>,
    /// By key: the entry has been inserted. Not scheduled: only links are.
    inserted: [AtomicBool; 256],
    value: Bytes,
}

impl Shared {
    fn insert(&self, (key, height): Entry) {
        self.list.insert_with_height(height, internal(&[key]), &self.value);
        self.inserted[usize::from(key)].store(true, SeqCst);
    }

    fn insert_all(&self, entries: &[Entry]) {
        let keys: Vec<_> = entries.iter().map(|&(key, height)| ([key], height)).collect();
        let with_values = keys.iter().map(|(key, height)| (*height, internal(key), &*self.value));
        self.list.insert_with_heights(with_values);
        entries.iter().for_each(|&(key, _)| self.inserted[usize::from(key)].store(true, SeqCst));
    }

    /// Returns the keys inserted so far, in order.
    fn inserted_keys(&self) -> Vec<u8> {
        (0..=u8::MAX).filter(|&key| self.inserted[usize::from(key)].load(SeqCst)).collect()
    }

    fn scan(&self) {
        let before = self.inserted_keys();
        let walk = keys(self.list.first(), Node::next);
        self.check_scan(&before, &walk);
    }

    fn seek_each(&self) {
        for &(key, _) in &self.entries {
            let before = self.inserted_keys();
            let found = self.list.lower_bound(internal(&[key])).map(key_of);
            let known = before.iter().copied().find(|&other| other >= key);
            assert!(
                found.is_some() || known.is_none(),
                "{key}: nothing found, {known:?} is present"
            );
            if let Some(found) = found {
                let bound = known.unwrap_or(u8::MAX);
                assert!((key..=bound).contains(&found), "{key}: {found}, {known:?} is present");
            }
        }
    }

    fn scan_back(&self) {
        let before = self.inserted_keys();
        let mut walk = keys(self.list.last(), |node| self.list.last_before(node.key()));
        walk.reverse();
        self.check_scan(&before, &walk);
    }

    fn read(&self) {
        self.scan();
        self.seek_each();
        self.scan_back();
    }

    /// Checks that `walk` is sorted, unique and has every key of `before`.
    fn check_scan(&self, before: &[u8], walk: &[u8]) {
        assert!(walk.is_sorted_by(|a, b| a < b), "{walk:?} is not in order");
        assert!(before.iter().all(|key| walk.contains(key)), "{before:?} were present: {walk:?}");
        let is_known = |key| self.entries.iter().any(|entry| entry.0 == key);
        assert!(walk.iter().all(|&key| is_known(key)), "{walk:?}");
    }

    /// Checks the complete list: each level has exactly the towers of that height, in order.
    fn check(&self) {
        for level in 0..HEIGHT_MAX {
            let on_level = self.entries.iter().filter(|entry| entry.1 > level);
            let mut expected: Vec<u8> = on_level.map(|entry| entry.0).collect();
            expected.sort_unstable();
            // SAFETY: a tower reached on a level has that level.
            let link = |tower: Tower<'_>| Node::new(unsafe { tower.link(level) }.load(Acquire));
            let found = keys(link(self.list.tower()), |node| link(node.tower()));
            assert_eq!(found, expected, "level {level}");
        }
        assert_eq!(self.list.len(), self.entries.len());
        self.read();
    }
}

fn internal(user_key: &[u8]) -> InternalKey<'_> {
    InternalKey::new(user_key, Trailer::new(1, Kind::Put))
}

fn key_of(node: Node<'_>) -> u8 {
    assert_eq!(node.value(), b"value");
    node.key().user_key[0]
}

/// Returns the keys of a scan from `first`, limited in case of a cycle.
fn keys<'l>(first: Option<Node<'l>>, step: impl Fn(Node<'l>) -> Option<Node<'l>>) -> Vec<u8> {
    std::iter::successors(first, |node| step(*node)).take(100).map(key_of).collect()
}

/// How a thread inserts its entries.
#[derive(Debug, Clone, Copy)]
enum Insert {
    OneByOne,
    Together,
}

/// Inserts `initial`, then the entries of `threads` concurrently, one thread each, while another
/// thread runs `read`.
fn insert_concurrently<const N: usize>(
    insert: Insert,
    initial: &[Entry],
    threads: [&[Entry]; N],
    read: Option<Read>,
) {
    let value = Bytes::from(b"value".to_vec());
    let shared = Arc::new(Shared {
        list: SkipList::with_seed(SEED_STEP),
        entries: [initial, &threads.concat()].concat(),
        inserted: array::from_fn(|_| AtomicBool::new(false)),
        value: value.clone(),
    });
    initial.iter().for_each(|&entry| shared.insert(entry));
    let reader = read.map(|read| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || read(&shared))
    });
    let writers = threads.map(|entries| {
        let (shared, entries) = (Arc::clone(&shared), entries.to_vec());
        thread::spawn(move || match insert {
            Insert::OneByOne => entries.into_iter().for_each(|entry| shared.insert(entry)),
            Insert::Together => shared.insert_all(&entries),
        })
    });
    let all = writers.into_iter().chain(reader);
    all.for_each(|thread| thread.join().expect("the thread does not panic"));
    shared.check();
    drop(shared);
    assert!(value.is_unique(), "a value was not dropped");
}

#[test]
fn concurrent_inserts_of_neighbors() {
    let cases: [(&str, &[Entry], Entry, Entry); 5] = [
        ("into an empty list", &[], (5, 1), (6, 1)),
        ("into an empty list, on two levels", &[], (5, 2), (6, 2)),
        ("a low tower before a high one", &[], (5, 1), (6, 2)),
        ("a high tower before a low one", &[], (5, 2), (6, 1)),
        ("between other nodes", &[(4, 2), (7, 1)], (5, 2), (6, 1)),
    ];
    for (name, initial, first, second) in cases {
        eprintln!("{name}");
        every_schedule(move || {
            insert_concurrently(Insert::Together, initial, [&[first], &[second]], None);
        });
        // The ends of levels make too many schedules to run all of them.
        many_schedules(3_000, move || {
            insert_concurrently(Insert::OneByOne, initial, [&[first], &[second]], None);
        });
    }
}

#[test]
fn reads_during_an_insert() {
    let reads: [(&str, Read); 3] =
        [("scan", Shared::scan), ("seek", Shared::seek_each), ("reverse scan", Shared::scan_back)];
    let cases: [(&str, &[Entry], &[Entry]); 3] = [
        ("into an empty list", &[], &[(5, 2)]),
        ("before a high tower", &[(7, 2)], &[(5, 2)]),
        ("after a high tower", &[(4, 2)], &[(5, 2)]),
    ];
    for (name, initial, entries) in cases {
        for (read_name, read) in reads {
            eprintln!("{name}, {read_name}");
            every_schedule(move || {
                insert_concurrently(Insert::Together, initial, [entries], Some(read));
            });
        }
    }
}

/// There are too many schedules to run all of them.
#[test]
fn reads_during_concurrent_inserts() {
    for insert in [Insert::OneByOne, Insert::Together] {
        many_schedules(3_000, move || {
            let initial = [(10, 2), (20, 1), (30, 3)];
            let low: &[Entry] = &[(14, 1), (11, 2), (25, 1)];
            let middle: &[Entry] = &[(13, 3), (12, 1), (26, 2)];
            let high: &[Entry] = &[(15, 4), (16, 2), (24, 3)];
            insert_concurrently(insert, &initial, [low, middle, high], Some(Shared::read));
        });
        many_schedules(3_000, move || {
            let threads: [&[Entry]; 3] = [&[(5, 3)], &[(6, 3)], &[(7, 3)]];
            insert_concurrently(insert, &[], threads, Some(Shared::read));
        });
        // At the ends, which change hands.
        many_schedules(3_000, move || {
            let threads: [&[Entry]; 3] = [&[(5, 2), (8, 1)], &[(6, 1), (9, 2)], &[(7, 2)]];
            insert_concurrently(insert, &[(1, 2)], threads, Some(Shared::read));
        });
    }
}
