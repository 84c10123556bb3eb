//! Key rotations beside writers, readers, flushes, checkpoints and backups.
//!
//! Writer `w` overwrites slots in turn: batch `n` stores its number as `w-newest` in two keyspaces,
//! and under one of the slots. So the number alone determines all entries of a writer.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use sievedb::{
    BackupSet, Db, KeyError, KeyProvider, Options, RootKey, StaticKeys,
    clock::{Clock as _, SystemClock},
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, from_env, report, seed, small_options},
};

use super::on;

const WRITERS: usize = 2;
const SLOTS: u64 = 40;
const SET: &str = "data/set";
/// Keys of the backup set. Those of the store are others.
const SET_KEY: u64 = 1000;
/// Each kind of work is done more often than this.
const ENOUGH: u64 = 5;
/// Time after which the threads end, although they have not done enough.
const TIME_MAX: Duration = Duration::from_secs(120);

/// Has every key from 1 on.
#[derive(Debug)]
struct Rotated {
    current: AtomicU64,
}

fn root_key(id: u64) -> RootKey {
    RootKey::new(std::array::from_fn(|at| (id >> (8 * (at % 8))) as u8 ^ 0x5a))
}

impl KeyProvider for Rotated {
    fn current_key_id(&self) -> Result<u64, KeyError> {
        Ok(self.current.load(SeqCst))
    }

    fn key(&self, id: u64) -> Result<RootKey, KeyError> {
        Ok(root_key(id))
    }
}

struct Shared {
    db: Db,
    disk: Arc<MemoryFs>,
    keys: Arc<Rotated>,
    stop: AtomicBool,
    /// Acknowledged batches of each writer.
    written: [AtomicU64; WRITERS],
    /// Checked states, calls of maintenance, and rewritten files.
    done: [AtomicU64; 3],
}

impl Shared {
    fn acknowledged(&self) -> [u64; WRITERS] {
        std::array::from_fn(|writer| self.written[writer].load(SeqCst))
    }

    fn is_enough(&self) -> bool {
        self.done.iter().chain([&self.keys.current]).all(|count| count.load(SeqCst) > ENOUGH)
    }

    fn set(&self) -> BackupSet {
        let set = BackupSet::with_fs(SET, on(&self.disk), Arc::new(SystemClock::new()));
        set.encryption(Arc::new(StaticKeys::new(SET_KEY, root_key(SET_KEY))))
    }

    fn options(&self) -> Options {
        small_options(on(&self.disk)).encryption(Arc::clone(&self.keys) as Arc<dyn KeyProvider>)
    }
}

fn write(shared: &Shared, writer: usize) -> u64 {
    let (db, other) = (&shared.db, shared.db.keyspace("other").unwrap());
    let mut number = 0;
    while !shared.stop.load(SeqCst) {
        number += 1;
        let mut batch = db.batch();
        for keyspace in [db.default_keyspace(), &other] {
            let slot = format!("{writer}-{:03}", number % SLOTS);
            batch.insert(keyspace, slot, format!("{number:060}")).unwrap();
            batch.insert(keyspace, format!("{writer}-newest"), format!("{number}")).unwrap();
        }
        batch.commit(sievedb::Durability::OsBuffer).unwrap();
        shared.written[writer].store(number, SeqCst);
    }
    number
}

/// Checks that a snapshot of `db` shows the batches of each writer up to one number, from `least`
/// on.
fn check(db: &Db, least: &[u64; WRITERS]) {
    let (snapshot, other) = (db.snapshot(), db.open_keyspace("other").unwrap());
    let of_other = snapshot.keyspace(&other).unwrap();
    let number = |value: Option<&[u8]>| {
        value.map_or(0, |value| std::str::from_utf8(value).unwrap().parse::<u64>().unwrap())
    };
    let entries: BTreeMap<_, _> = snapshot.iter().map(Result::unwrap).collect();
    for (writer, &least) in least.iter().enumerate() {
        let newest = format!("{writer}-newest");
        let last = number(entries.get(newest.as_bytes()).map(|value| &value[..]));
        assert!(last >= least, "writer {writer}: {last} of {least} batches");
        assert_eq!(number(of_other.get(&newest).unwrap().as_deref()), last, "half of a batch");
        for slot in 0..SLOTS {
            let key = format!("{writer}-{slot:03}");
            let wanted = (last.saturating_sub(SLOTS - 1)..=last)
                .find(|number| number % SLOTS == slot && *number > 0)
                .unwrap_or(0);
            let found = number(entries.get(key.as_bytes()).map(|value| &value[..]));
            assert_eq!(found, wanted, "{key} at {last}");
            assert_eq!(number(of_other.get(&key).unwrap().as_deref()), wanted, "{key} at {last}");
        }
    }
}

fn read(shared: &Shared) -> u64 {
    let mut states = 0;
    while !shared.stop.load(SeqCst) {
        check(&shared.db, &shared.acknowledged());
        states += 1;
        shared.done[0].store(states, SeqCst);
    }
    states
}

fn maintain(shared: &Shared, lots: &mut Rng) -> u64 {
    let (db, mut calls, mut backups) = (&shared.db, 0, 0);
    while !shared.stop.load(SeqCst) {
        let least = shared.acknowledged();
        match lots.below(5) {
            0 | 1 => db.flush().unwrap(),
            2 => db.compact().unwrap(),
            3 => {
                let path = format!("data/copy{calls}");
                db.checkpoint(&path).unwrap();
                let copy = shared.options().open(&path).unwrap();
                check(&copy, &least);
                assert!(copy.verify().unwrap().is_good());
            }
            _ => {
                shared.set().create(db).unwrap();
                backups += 1;
                let path = format!("data/restored{calls}");
                shared.set().restore(backups, &path).unwrap();
                let set_keys = Arc::new(StaticKeys::new(SET_KEY, root_key(SET_KEY)));
                let restored = small_options(on(&shared.disk)).encryption(set_keys);
                check(&restored.open(&path).unwrap(), &least);
            }
        }
        calls += 1;
        shared.done[1].store(calls, SeqCst);
    }
    calls
}

fn rotate(shared: &Shared) -> u64 {
    let mut files = 0;
    while !shared.stop.load(SeqCst) {
        let current = shared.keys.current.fetch_add(1, SeqCst) + 1;
        let done = shared.db.reencrypt().unwrap();
        // A table that was begun before may have the key before.
        assert!(done.key_ids.contains(&current), "{done:?} without {current}");
        files += done.files_rewritten;
        shared.done[2].store(files, SeqCst);
        thread::sleep(Duration::from_millis(5));
    }
    files
}

/// `SIEVE_REENCRYPT_SECONDS` runs longer.
#[test]
fn reencryptions_beside_writes_and_copies_lose_nothing() {
    let seed = seed("reencryptions", 1);
    let length = Duration::from_secs(from_env("SIEVE_REENCRYPT_SECONDS", 3));
    let (disk, clock) = (Arc::new(MemoryFs::new()), SystemClock::new());
    let keys = Arc::new(Rotated { current: AtomicU64::new(1) });
    let options = small_options(on(&disk)).clock(Arc::new(SystemClock::new())).worker_threads(2);
    // No compaction runs at the end without being waited for.
    let options = options.idle_compactions(false);
    let db = options.encryption(Arc::clone(&keys) as Arc<dyn KeyProvider>).open(STORE_DIR).unwrap();
    drop(db.keyspace("other").unwrap());
    let (stop, written, done) = Default::default();
    let shared = Shared { db, disk, keys, stop, written, done };
    let failure = Mutex::new(None);
    let guarded = |run: &mut dyn FnMut() -> u64| {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            shared.stop.store(true, SeqCst);
            *failure.lock().unwrap() = Some(panic);
            0
        })
    };
    let counts = thread::scope(|scope| {
        let (shared, guarded) = (&shared, &guarded);
        let mut threads: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || guarded(&mut || write(shared, writer))))
            .collect();
        threads.push(scope.spawn(move || guarded(&mut || read(shared))));
        threads.push(scope.spawn(move || guarded(&mut || maintain(shared, &mut Rng::new(seed)))));
        threads.push(scope.spawn(move || guarded(&mut || rotate(shared))));
        let goes_on = |now| now < length || (now < TIME_MAX && !shared.is_enough());
        while goes_on(clock.now()) && !shared.stop.load(SeqCst) {
            thread::sleep(Duration::from_millis(10));
        }
        shared.stop.store(true, SeqCst);
        threads.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
    });
    if let Some(panic) = failure.into_inner().unwrap() {
        resume_unwind(panic);
    }
    let Shared { db, disk, keys, written, .. } = shared;
    let last = written.map(AtomicU64::into_inner);
    let current = keys.current.fetch_add(1, SeqCst) + 1;
    // Tables that were begun before have the key before.
    db.wait_for_background().unwrap();
    // A worker may be unlinking obsolete files of keys before.
    let is_done = |_| {
        let is_done = db.reencrypt().unwrap().key_ids == [current];
        if !is_done {
            thread::sleep(Duration::from_millis(20));
        }
        is_done
    };
    assert!((0..100).any(is_done), "nothing runs beside it");
    check(&db, &last);
    assert!(db.verify().unwrap().is_good());
    db.close().unwrap();
    let only = Arc::new(StaticKeys::new(current, root_key(current)));
    let db = small_options(on(&disk)).encryption(only).open(STORE_DIR).unwrap();
    check(&db, &last);
    assert!(db.verify().unwrap().is_good());
    let [first, second, states, calls, files] = counts[..] else { panic!("{counts:?}") };
    report(&format!(
        "reencryptions: {first} and {second} batches, {states} states, {calls} calls, {files} files \
         rewritten by {current} keys"
    ));
    assert!([states, calls, files, current].iter().all(|&count| count > ENOUGH), "{counts:?}");
}
