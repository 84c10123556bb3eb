//! Power cuts while several threads write and workers flush and compact.
//!
//! The schedule is not reproducible. The invariants are: of each thread's writes a prefix survives,
//! with whole batches and all writes acknowledged as durable before the cut.

use std::{collections::BTreeMap, sync::Arc, thread};

use sievedb::{Db, Durability, Error, Keyspace, fs::Fs};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    check::guarded,
    rng::Rng,
    settings::{STORE_DIR, from_env, report, seed, small_options},
};

const THREADS: usize = 4;
const WRITES: u32 = 120;

/// Number of disk operations, and of a thread's writes that were durable then.
type Acknowledged = (usize, u32);

/// Write `n` of a thread writes to both keyspaces, under a key of its own and a shared one.
fn write(
    db: &Db,
    other: &Keyspace,
    thread: usize,
    n: u32,
    durability: Durability,
) -> Result<(), Error> {
    let (last, own) = (format!("last {thread}"), format!("{thread}.{n:04}"));
    let value = n.to_be_bytes();
    let mut batch = db.batch();
    batch.insert(db, &last, value)?;
    batch.insert(other, &own, [&value[..], &[b'x'; 100]].concat())?;
    batch.insert(db, &own, value)?;
    batch.insert(other, &last, value)?;
    batch.commit(durability).map(drop)
}

fn write_all(db: &Db, disk: &MemoryFs, thread: usize, seed: u64) -> Vec<Acknowledged> {
    let other = db.keyspace("other").expect("nothing fails");
    let mut lots = Rng::new(seed ^ thread as u64);
    let mut acknowledged = Vec::new();
    for n in 1..=WRITES {
        let words = [Durability::Memory, Durability::OsBuffer, Durability::Disk];
        let word = *lots.pick(&words);
        write(db, &other, thread, n, word).expect("nothing fails");
        if word == Durability::Disk {
            acknowledged.push((disk.operations(), n));
        }
    }
    acknowledged
}

/// Returns the number of surviving writes of a thread, which must be equal for all ways to read.
fn survived(db: &Db, other: &Keyspace, thread: usize) -> Result<u32, Error> {
    let mut counts = BTreeMap::new();
    for keyspace in [db.default_keyspace(), other] {
        let last = keyspace.get(format!("last {thread}"))?;
        let last = last.map_or(0, |value| u32::from_be_bytes(value[..4].try_into().expect("4")));
        let own = keyspace.prefix(format!("{thread}.")).collect::<Result<Vec<_>, _>>()?;
        let numbers: Vec<u32> = own
            .iter()
            .map(|(_, value)| u32::from_be_bytes(value[..4].try_into().expect("4 bytes")))
            .collect();
        assert!(numbers.iter().copied().eq(1..=last), "{thread}: {numbers:?}, last {last}");
        counts.insert(keyspace.name(), last);
    }
    let mut all = counts.values();
    let first = *all.next().expect("there are two keyspaces");
    assert!(all.all(|&count| count == first), "half a batch of thread {thread}: {counts:?}");
    Ok(first)
}

fn check(disk: &MemoryFs, at: usize, loss: Loss, acknowledged: &[Vec<Acknowledged>]) {
    let left = Arc::new(disk.crash(at, &loss));
    let db = small_options(left as Arc<dyn Fs>).open(STORE_DIR).expect("the store comes back");
    if !db.keyspaces().expect("it is open").contains(&"other".to_owned()) {
        assert!(acknowledged.iter().flatten().all(|&(by, _)| by > at), "the keyspace is gone");
        return;
    }
    let other = db.keyspace("other").expect("it is there");
    for (thread, acknowledged) in acknowledged.iter().enumerate() {
        let found = survived(&db, &other, thread).expect("the store can be read");
        let durable = acknowledged.iter().filter(|(by, _)| *by <= at).map(|(_, n)| *n);
        let durable = durable.max().unwrap_or(0);
        assert!(found >= durable, "thread {thread}: {durable} were durable, {found} are left");
    }
}

#[test]
fn prefix_of_each_threads_writes_survives() {
    let seed = seed("crashes under threads", 1);
    let rounds = from_env("SIEVE_ROUNDS", 10);
    let mut lots = Rng::new(seed);
    let mut states = 0;
    for _ in 0..rounds {
        let disk = Arc::new(MemoryFs::with_seed(lots.number()));
        let options = small_options(Arc::clone(&disk) as Arc<dyn Fs>).worker_threads(2);
        let db = options.open(STORE_DIR).expect("nothing fails");
        db.keyspace("other").expect("nothing fails");
        let round = lots.number();
        let acknowledged: Vec<_> = thread::scope(|scope| {
            let write = |thread| {
                let (db, disk) = (&db, &disk);
                scope.spawn(move || write_all(db, disk, thread, round))
            };
            let writers: Vec<_> = (0..THREADS).map(write).collect();
            writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
        });
        drop(db);
        for _ in 0..200 {
            let at = lots.below(disk.operations() + 1);
            let loss = match lots.below(4) {
                0 => Loss::Everything,
                1 => Loss::Nothing,
                lot => Loss::Random { seed: lots.number(), torn: lot == 2 },
            };
            let checked = guarded(|| {
                check(&disk, at, loss, &acknowledged);
                Ok(())
            });
            checked.unwrap_or_else(|text| panic!("{text}\n{}", disk.trace(at, &loss)));
            states += 1;
        }
    }
    report(&format!("crashes under threads: {states} states"));
}
