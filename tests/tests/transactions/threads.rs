//! Transactions of many threads beside steady writers, flushes and compactions.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use sievedb::{Db, Error, TransactionOptions};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

fn open() -> Db {
    let options = small_options(Arc::new(MemoryFs::new())).worker_threads(2);
    options.open(STORE_DIR).expect("a new store")
}

/// Ends the other threads, also by a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `body` beside writers of other keys and a thread that flushes and compacts.
fn beside_writers(db: &Db, body: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2 {
            let done = &done;
            scope.spawn(move || {
                for number in 0_u32.. {
                    if done.load(Relaxed) {
                        break;
                    }
                    db.insert(format!("x{writer}{}", number % 500), [7; 50]).unwrap();
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Relaxed) {
                db.flush().unwrap();
                db.compact().unwrap();
            }
        });
        let _end = End(&done);
        body();
    });
}

/// A range of the same keyspace that others never write commits at the first try, whatever the
/// number of their writes.
#[test]
fn steady_writers_beside_a_range_do_not_hold_up_its_commit() {
    let db = open();
    let once = TransactionOptions::new().retries_max(0);
    beside_writers(&db, || {
        for round in 0..100 {
            let added = db.transaction_with(once, |transaction| {
                let count = transaction.prefix(&db, "a").count();
                transaction.get(&db, "absent")?;
                transaction.insert(&db, format!("a{round:03}"), "")?;
                Ok(count)
            });
            assert_eq!(added.unwrap(), round);
        }
    });
}

/// Each thread appends behind the last key: no number is used twice, and none is left out.
#[test]
fn appends_of_many_threads_are_serial() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 40;
    let db = open();
    beside_writers(&db, || {
        let append = || {
            for _ in 0..ROUNDS {
                db.transaction(|transaction| {
                    let last = transaction.prefix(&db, "a").next_back().transpose()?;
                    let number = last.map_or(0, |(key, _)| {
                        std::str::from_utf8(&key[1..]).unwrap().parse::<usize>().unwrap() + 1
                    });
                    transaction.insert(&db, format!("a{number:05}"), "")
                })
                .unwrap();
            }
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(append);
            }
        });
    });
    assert_eq!(db.prefix("a").count(), THREADS * ROUNDS);
    let last = db.prefix("a").next_back().unwrap().unwrap();
    assert_eq!(last.0, format!("a{:05}", THREADS * ROUNDS - 1));
}

/// Entries of a queue are popped once, in order, beside producers.
#[test]
fn queue_is_popped_in_order() {
    const ITEMS: u32 = 300;
    let db = open();
    let pop_all = || {
        let mut popped = Vec::new();
        while let Some((key, value)) = db.pop_first().unwrap() {
            assert_eq!(key, value);
            popped.push(key);
        }
        assert!(popped.is_sorted());
        popped.len()
    };
    let popped: usize = thread::scope(|scope| {
        let producer = scope.spawn(|| {
            for item in 0..ITEMS {
                db.insert(item.to_be_bytes(), item.to_be_bytes()).unwrap();
            }
        });
        let consumers: Vec<_> = (0..3).map(|_| scope.spawn(pop_all)).collect();
        producer.join().unwrap();
        consumers.into_iter().map(|consumer| consumer.join().unwrap()).sum()
    });
    let rest = std::iter::from_fn(|| db.pop_last().unwrap());
    let rest: Vec<_> = rest.map(|(key, _)| key).collect();
    assert!(rest.is_sorted_by(|a, b| a > b));
    assert_eq!(popped + rest.len(), ITEMS as usize);
    assert!(db.pop_first().unwrap().is_none());
}

/// A conflict between an insert and the commit is found under every durability, with the insert in
/// flight.
#[test]
fn no_update_is_lost_by_transactions() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 50;
    let db = open();
    let add = || {
        for _ in 0..ROUNDS {
            db.transaction_with(TransactionOptions::new().retries_max(10_000), |transaction| {
                let count = transaction.get(&db, "count")?.map_or(0, |value| {
                    std::str::from_utf8(&value).unwrap().parse::<usize>().unwrap()
                });
                transaction.insert(&db, "count", (count + 1).to_string())
            })
            .unwrap();
            let lost = db.begin_with(TransactionOptions::new());
            drop(lost);
        }
    };
    beside_writers(&db, || {
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(add);
            }
        });
    });
    assert_eq!(db.get("count").unwrap().unwrap(), (THREADS * ROUNDS).to_string());
    assert!(!matches!(db.begin().commit(None), Err(Error::Conflict { .. })));
}
