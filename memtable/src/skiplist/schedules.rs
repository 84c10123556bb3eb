//! What the list promises to threads that insert neighbours, walk and search at once.
//!
//! Run them with `cargo test -p sievedb-memtable --features shuttle --lib schedules`. A failure
//! prints the schedule and the seed.
//!
//! Each of these changes to `insert`, made by hand, lets at least one of the tests fail: a link is
//! stored, not compared and swapped; level 1 is linked before level 0; after a link was taken by
//! another node, the place is not looked for again, or the new node's own link is not set again.

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

/// Fewer would say that the threads do not take turns.
const SCHEDULES_MIN: usize = 20;

/// A key, and the links of its tower.
type Entry = (u8, usize);

/// What a thread reads.
type Read = fn(&Shared);

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    config.stack_size = 256 << 10; // A panic's message takes much.
    config.silence_warnings = true; // Of what `crate::sync` says.
    Runner::new(scheduler, config).run(test)
}

/// Runs `test` under all schedules.
fn every_schedule(test: impl Fn() + Send + Sync + 'static) {
    let schedules = run(DfsScheduler::new(None, false), test);
    eprintln!("{schedules} schedules");
    assert!(schedules >= SCHEDULES_MIN, "{schedules} schedules");
}

/// Runs `test` under `schedules` of them.
fn many_schedules(schedules: usize, test: impl Fn() + Send + Sync + 'static) {
    let seed = env::var("SIEVE_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    eprintln!("SIEVE_SEED={seed}");
    run(RandomScheduler::new_from_seed(seed, schedules), test);
}

/// A list, what is to be in it, and what is.
struct Shared {
    list: SkipList,
    entries: Vec<Entry>,
    /// By key: whether the entry has been inserted. No steps: only links are.
    inserted: [AtomicBool; 256],
    value: Bytes,
}

impl Shared {
    fn insert(&self, (key, height): Entry) {
        self.list.insert_tower(height, internal(&[key]), &self.value);
        self.inserted[usize::from(key)].store(true, SeqCst);
    }

    /// The keys of the entries inserted by now, in order.
    fn inserted(&self) -> Vec<u8> {
        (0..=u8::MAX).filter(|&key| self.inserted[usize::from(key)].load(SeqCst)).collect()
    }

    fn walk_forward(&self) {
        let before = self.inserted();
        let walk = keys(self.list.first(), Node::next);
        self.check_walk(&before, &walk);
    }

    fn seek_each(&self) {
        for &(key, _) in &self.entries {
            let before = self.inserted();
            let found = self.list.at_or_behind(internal(&[key])).map(key_of);
            let known = before.iter().copied().find(|&other| other >= key);
            assert!(found.is_some() || known.is_none(), "{key}: nothing found, {known:?} is there");
            if let Some(found) = found {
                let bound = known.unwrap_or(u8::MAX);
                assert!((key..=bound).contains(&found), "{key}: {found}, {known:?} is there");
            }
        }
    }

    fn walk_back(&self) {
        let before = self.inserted();
        let mut walk = keys(self.list.last(), |node| self.list.before(node.key()));
        walk.reverse();
        self.check_walk(&before, &walk);
    }

    fn read(&self) {
        self.walk_forward();
        self.seek_each();
        self.walk_back();
    }

    /// `walk` meets every key that was there before it began, once, and in order.
    fn check_walk(&self, before: &[u8], walk: &[u8]) {
        assert!(walk.is_sorted_by(|a, b| a < b), "{walk:?} is not in order");
        assert!(before.iter().all(|key| walk.contains(key)), "{before:?} were there: {walk:?}");
        let is_known = |key| self.entries.iter().any(|entry| entry.0 == key);
        assert!(walk.iter().all(|&key| is_known(key)), "{walk:?}");
    }

    /// With all inserted: each level has every entry with a tower so high, in order.
    fn check(&self) {
        for level in 0..HEIGHT_MAX {
            let on_level = self.entries.iter().filter(|entry| entry.1 > level);
            let mut expected: Vec<u8> = on_level.map(|entry| entry.0).collect();
            expected.sort_unstable();
            // SAFETY: a tower that is met on a level has it.
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

/// Those of a walk from `first`, which may not go on for ever.
fn keys<'l>(first: Option<Node<'l>>, step: impl Fn(Node<'l>) -> Option<Node<'l>>) -> Vec<u8> {
    std::iter::successors(first, |node| step(*node)).take(100).map(key_of).collect()
}

/// Inserts `there`, then those of each of `threads` in a thread of its own while one more reads, if
/// told how.
fn insert_at_once<const N: usize>(there: &[Entry], threads: [&[Entry]; N], read: Option<Read>) {
    let value = Bytes::from(b"value".to_vec());
    let shared = Arc::new(Shared {
        list: SkipList::new(),
        entries: [there, &threads.concat()].concat(),
        inserted: array::from_fn(|_| AtomicBool::new(false)),
        value: value.clone(),
    });
    there.iter().for_each(|&entry| shared.insert(entry));
    let reading = read.map(|read| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || read(&shared))
    });
    let inserting = threads.map(|entries| {
        let (shared, entries) = (Arc::clone(&shared), entries.to_vec());
        thread::spawn(move || entries.into_iter().for_each(|entry| shared.insert(entry)))
    });
    let all = inserting.into_iter().chain(reading);
    all.for_each(|thread| thread.join().expect("it does not panic"));
    shared.check();
    drop(shared);
    assert!(value.is_unique(), "a value was not dropped");
}

#[test]
fn two_neighbours_are_inserted_at_once() {
    let cases: [(&str, &[Entry], Entry, Entry); 5] = [
        ("into an empty list", &[], (5, 1), (6, 1)),
        ("into an empty list, on two levels", &[], (5, 2), (6, 2)),
        ("a low one before a high one", &[], (5, 1), (6, 2)),
        ("a high one before a low one", &[], (5, 2), (6, 1)),
        ("between others", &[(4, 2), (7, 1)], (5, 2), (6, 1)),
    ];
    for (name, there, first, second) in cases {
        eprintln!("{name}");
        every_schedule(move || insert_at_once(there, [&[first], &[second]], None));
    }
}

#[test]
fn one_reads_while_one_inserts() {
    let reads: [(&str, Read); 3] = [
        ("walks", Shared::walk_forward),
        ("seeks", Shared::seek_each),
        ("back", Shared::walk_back),
    ];
    let cases: [(&str, &[Entry], &[Entry]); 3] = [
        ("into an empty list", &[], &[(5, 2)]),
        ("before a high one", &[(7, 2)], &[(5, 2)]),
        ("behind a high one", &[(4, 2)], &[(5, 2)]),
    ];
    for (name, there, entries) in cases {
        for (read_name, read) in reads {
            eprintln!("{name}, {read_name}");
            every_schedule(move || insert_at_once(there, [entries], Some(read)));
        }
    }
}

/// Too many schedules to run all of them.
#[test]
fn several_insert_while_one_reads() {
    many_schedules(3_000, || {
        let there = [(10, 2), (20, 1), (30, 3)];
        let low: &[Entry] = &[(14, 1), (11, 2), (25, 1)];
        let middle: &[Entry] = &[(13, 3), (12, 1), (26, 2)];
        let high: &[Entry] = &[(15, 4), (16, 2), (24, 3)];
        insert_at_once(&there, [low, middle, high], Some(Shared::read));
    });
    many_schedules(3_000, || {
        insert_at_once(&[], [&[(5, 3)], &[(6, 3)], &[(7, 3)]], Some(Shared::read));
    });
}
