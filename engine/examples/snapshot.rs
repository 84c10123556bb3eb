//! A report over a store that other threads change: a snapshot does not change.
//!
//! `cargo run -p sievedb --example snapshot`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use sievedb::{Db, Durability, Snapshot};

pub(crate) const ACCOUNTS: u64 = 100;
pub(crate) const BALANCE: u64 = 1000;

pub(crate) struct Bank {
    pub(crate) db: Db,
    /// Held from the reads to the commit of a transfer. A batch writes atomically, but a read
    /// before it is not part of it.
    transfers: Mutex<()>,
}

impl Bank {
    /// Opens all accounts. All threads share one `Bank`, because it holds the lock.
    pub(crate) fn open(db: Db) -> sievedb::Result<Self> {
        for account in 0..ACCOUNTS {
            db.insert_if_absent(account.to_be_bytes(), BALANCE.to_be_bytes())?;
        }
        Ok(Self { db, transfers: Mutex::default() })
    }

    /// Moves one unit between two accounts; returns `false` if the first one is empty. The sum in a
    /// snapshot never changes.
    pub(crate) fn transfer(&self, from: u64, to: u64) -> sievedb::Result<bool> {
        // The lock protects no data of its own, so a panic of its last holder has broken nothing.
        let _lock = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        let balance = |account: u64| {
            let found = self.db.get(account.to_be_bytes())?;
            Ok::<_, sievedb::Error>(found.map_or(0, |bytes| number(&bytes)))
        };
        let Some(less) = balance(from)?.checked_sub(1) else { return Ok(false) };
        let mut batch = self.db.batch();
        if from != to {
            batch.insert(&self.db, from.to_be_bytes(), less.to_be_bytes())?;
            batch.insert(&self.db, to.to_be_bytes(), (balance(to)? + 1).to_be_bytes())?;
        }
        batch.commit(Durability::OsBuffer)?;
        Ok(true)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

pub(crate) fn sum(snapshot: &Snapshot) -> sievedb::Result<u64> {
    snapshot.iter().map(|entry| Ok(number(&entry?.1))).sum()
}

#[cfg_attr(test, expect(dead_code, reason = "a test includes this file for `Bank`"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let bank = Arc::new(Bank::open(Db::open(dir.path())?)?);

    let transfers = [1, 3].map(|step| {
        let bank = Arc::clone(&bank);
        thread::spawn(move || {
            (0..10_000)
                .try_for_each(|n| bank.transfer(n % ACCOUNTS, (n * 7 + step) % ACCOUNTS).map(drop))
        })
    });
    let mut reports = 0;
    while !transfers.iter().all(thread::JoinHandle::is_finished) {
        assert_eq!(sum(&bank.db.snapshot())?, ACCOUNTS * BALANCE);
        reports += 1;
    }
    for thread in transfers {
        thread.join().expect("the transfers do not panic")?;
    }
    assert_eq!(sum(&bank.db.snapshot())?, ACCOUNTS * BALANCE);
    println!("{reports} reports while money moved: each found {}", ACCOUNTS * BALANCE);
    Ok(())
}
