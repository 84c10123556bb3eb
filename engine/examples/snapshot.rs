//! A report over a store that others change meanwhile: a snapshot stays as it was.
//!
//! `cargo run -p sievedb --example snapshot`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::thread;

use sievedb::{Db, Durability, Snapshot};

const ACCOUNTS: u64 = 100;
const BALANCE: u64 = 1000;

/// Moves one unit between two accounts. The sum never changes, but for readers between two writes.
fn transfer(db: &Db, from: u64, to: u64) -> sievedb::Result<()> {
    let mut batch = db.batch();
    for (account, change) in [(from, -1), (to, 1)] {
        let balance = db.get(account.to_be_bytes())?.map_or(0, |bytes| number(&bytes));
        batch.insert(
            db,
            account.to_be_bytes(),
            balance.saturating_add_signed(change).to_be_bytes(),
        )?;
    }
    batch.commit(Durability::OsBuffer)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

fn sum(snapshot: &Snapshot) -> sievedb::Result<u64> {
    snapshot.iter().map(|entry| Ok(number(&entry?.1))).sum()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Db::open(folder.path())?;
    for account in 0..ACCOUNTS {
        db.insert(account.to_be_bytes(), BALANCE.to_be_bytes())?;
    }

    let writer = db.clone();
    let transfers = thread::spawn(move || {
        (0..10_000).try_for_each(|n| transfer(&writer, n % ACCOUNTS, (n * 7 + 1) % ACCOUNTS))
    });
    let mut reports = 0;
    while !transfers.is_finished() {
        assert_eq!(sum(&db.snapshot())?, ACCOUNTS * BALANCE);
        reports += 1;
    }
    transfers.join().expect("the transfers do not panic")?;
    println!("{reports} reports while money moved: each found {}", ACCOUNTS * BALANCE);
    Ok(())
}
