//! Followers beside a writer at full speed: flushes, compactions, rotations of the log, changes of
//! keyspaces, range deletes, reopens.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use sievedb::{
    Db, Durability, Error, Options, Snapshot,
    clock::{Clock as _, SystemClock},
    fs::Fs,
    fs::RealFs,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, from_env, report, seed, small_options},
};

/// Keys of each keyspace that batches overwrite in turn.
const SLOTS: u64 = 50;
/// Every batch of this number removes the slots from here on by a range.
const REMOVE_EVERY: u64 = 70;
const REMOVED_FROM: u64 = 30;

/// Batches and states of each follower: a run has more.
const BATCHES: u64 = 100;
const STATES: u64 = 5;
/// Time after which a run ends, although it has not done enough.
const TIME_MAX: Duration = Duration::from_secs(120);

struct Shared {
    stop: AtomicBool,
    /// Batches that the operating system has.
    written: AtomicU64,
    /// Checked states of both followers.
    states: [AtomicU64; 2],
}

impl Shared {
    fn is_enough(&self) -> bool {
        self.written.load(SeqCst) > BATCHES
            && self.states.iter().all(|states| states.load(SeqCst) > STATES)
    }
}

fn number(value: Option<impl AsRef<[u8]>>) -> u64 {
    value.map_or(0, |value| std::str::from_utf8(value.as_ref()).unwrap().parse().unwrap())
}

/// Commits batch `number` to both keyspaces: its number as `newest`, and under one of the slots.
fn commit(db: &Db, number: u64, durability: Durability) {
    let other = db.keyspace("other").unwrap();
    let mut batch = db.batch();
    for keyspace in [db.default_keyspace(), &other] {
        if number.is_multiple_of(REMOVE_EVERY) {
            batch.remove_range(keyspace, format!("{REMOVED_FROM:03}")..).unwrap();
        }
        batch.insert(keyspace, "newest", format!("{number:0100}")).unwrap();
        batch.insert(keyspace, format!("{:03}", number % SLOTS), format!("{number}")).unwrap();
    }
    batch.commit(durability).unwrap();
}

/// Writes until it is stopped, and reopens the store now and then.
fn write(options: &Options, dir: &Path, lots: &mut Rng, shared: &Shared) -> u64 {
    let mut db = options.clone().open(dir).unwrap();
    let mut last = number(db.get("newest").unwrap());
    while !shared.stop.load(SeqCst) {
        let levels = [Durability::Memory, Durability::OsBuffer, Durability::OsBuffer];
        let durability = *lots.pick(&levels);
        last += 1;
        commit(&db, last, durability);
        if durability > Durability::Memory {
            shared.written.store(last, SeqCst);
        }
        match lots.below(600) {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            2 if !db.keyspace_exists("renamed").unwrap() => {
                let passing = db.keyspace("passing").unwrap();
                passing.insert("number", format!("{last}")).unwrap();
                db.rename_keyspace("passing", "renamed").unwrap();
            }
            3 => drop(db.drop_keyspace("renamed").unwrap()),
            4 => {
                let passing = db.keyspace("passing").unwrap();
                passing.insert("number", "0").unwrap();
                passing.clear().unwrap();
                passing.flush().unwrap();
                db.drop_keyspace("passing").unwrap();
            }
            5 => {
                db.close().unwrap();
                db = options.clone().open(dir).unwrap();
            }
            _ => {}
        }
    }
    last
}

/// Checks that the snapshot shows all batches up to one number, and returns it.
fn check(db: &Db, snapshot: &Snapshot) -> Result<u64, Error> {
    let other = snapshot.keyspace(db.open_keyspace("other").unwrap())?;
    let entries: BTreeMap<_, _> = snapshot.iter().collect::<Result<_, _>>()?;
    let last = number(entries.get(&b"newest"[..]));
    assert_eq!(number(other.get("newest")?), last, "half of a batch");
    let removed = last - last % REMOVE_EVERY;
    for slot in 0..SLOTS {
        let key = format!("{slot:03}");
        let newest = (1..=last).rev().find(|number| number % SLOTS == slot).unwrap_or(0);
        let hidden = slot >= REMOVED_FROM && newest < removed;
        let wanted = if hidden { 0 } else { newest };
        assert_eq!(number(entries.get(key.as_bytes())), wanted, "slot {slot} at {last}");
        assert_eq!(number(snapshot.get(&key)?), wanted, "slot {slot} at {last}, by a lookup");
        assert_eq!(number(other.get(&key)?), wanted, "slot {slot} of the other at {last}");
    }
    Ok(last)
}

/// Refreshes and checks a follower until it is stopped. Returns the number of checked states.
fn follow(db: &Db, lots: &mut Rng, shared: &Shared, is_on_demand: bool) -> u64 {
    let (mut states, mut last, mut kept) = (0, 0, Vec::new());
    while !shared.stop.load(SeqCst) {
        let written = shared.written.load(SeqCst);
        if is_on_demand {
            db.refresh().unwrap();
        } else {
            thread::sleep(Duration::from_millis(1));
        }
        let snapshot = db.snapshot();
        let seen = match check(db, &snapshot) {
            // Only a few files may be open.
            Err(Error::FilesGone { .. }) => continue,
            seen => seen.unwrap(),
        };
        assert!(seen >= last, "{seen} after {last}");
        if is_on_demand {
            assert!(seen >= written, "{seen} of {written} batches");
        }
        last = seen;
        states += 1;
        shared.states[usize::from(is_on_demand)].store(states, SeqCst);
        let by_get = number(db.get("newest").unwrap_or_default());
        assert!(by_get == 0 || by_get >= seen, "{by_get} after {seen}");
        if lots.chance(1, 10) {
            kept.push((snapshot, seen));
        }
        if kept.len() > 3 {
            let (snapshot, seen) = kept.swap_remove(lots.below(kept.len()));
            match check(db, &snapshot) {
                Err(Error::FilesGone { .. }) => {}
                again => assert_eq!(again.unwrap(), seen, "a snapshot has changed"),
            }
        }
        let known = ["default", "other", "passing", "renamed"];
        assert!(db.keyspaces().unwrap().iter().all(|name| known.contains(&&**name)));
    }
    states
}

/// Runs a writer and two followers of a store with these `options` for so many seconds.
pub(super) fn run(options: Options, dir: &Path, seed: u64, seconds: u64) {
    let clock = || Arc::new(SystemClock::new());
    let options = options.clock(clock()).worker_threads(2);
    let db = options.clone().open(dir).unwrap();
    drop(db.keyspace("other").unwrap());
    db.close().unwrap();
    let (stop, written, states) = Default::default();
    let shared = Shared { stop, written, states };
    let follower = || options.clone().clock(clock()).follow(true);
    let on_demand = follower().open_files_max(100).open(dir).unwrap();
    let interval = Duration::from_millis(3);
    let by_interval = follower().follow_interval(interval).open(dir).unwrap();
    let failure = Mutex::new(None);
    let guarded = |run: &mut dyn FnMut() -> u64| {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        result.unwrap_or_else(|panic| {
            shared.stop.store(true, SeqCst);
            *failure.lock().unwrap() = Some(panic);
            0
        })
    };
    let (writes, states) = thread::scope(|scope| {
        let shared = &shared;
        let guarded = &guarded;
        let writer =
            scope.spawn(move || guarded(&mut || write(&options, dir, &mut Rng::new(seed), shared)));
        let followers = [(&on_demand, true), (&by_interval, false)].map(|(db, is_on_demand)| {
            scope.spawn(move || {
                guarded(&mut || follow(db, &mut Rng::new(!seed), shared, is_on_demand))
            })
        });
        let (clock, length) = (SystemClock::new(), Duration::from_secs(seconds));
        let goes_on = |now| now < length || (now < TIME_MAX && !shared.is_enough());
        while goes_on(clock.now()) && !shared.stop.load(SeqCst) {
            thread::sleep(Duration::from_millis(10));
        }
        shared.stop.store(true, SeqCst);
        let states = followers.map(|it| it.join().unwrap());
        (writer.join().unwrap(), states)
    });
    if let Some(panic) = failure.into_inner().unwrap() {
        std::panic::resume_unwind(panic);
    }
    report(&format!("followers: {writes} batches, {states:?} states, all of them prefixes"));
    let is_enough = writes > BATCHES && states.iter().all(|&states| states > STATES);
    assert!(is_enough, "{writes}, {states:?}");
}

/// `SIEVE_FOLLOW_SECONDS` runs longer.
#[test]
fn followers_see_prefixes_on_a_disk_in_memory() {
    let fs = Arc::new(MemoryFs::new()) as Arc<dyn Fs>;
    let seconds = from_env("SIEVE_FOLLOW_SECONDS", 3);
    run(small_options(fs), Path::new(STORE_DIR), seed("followers", 1), seconds);
}

#[test]
fn followers_see_prefixes_on_a_real_disk() {
    let (dir, fs) = (tempfile::tempdir().unwrap(), Arc::new(RealFs) as Arc<dyn Fs>);
    let seconds = from_env("SIEVE_FOLLOW_SECONDS", 3);
    run(small_options(fs), &dir.path().join("db"), seed("followers on a disk", 1), seconds);
}
