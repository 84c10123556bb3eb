//! A bank: transfers between accounts in transactions. Concurrent transfers keep the total.
//!
//! `cargo run -p sievedb --example transactions`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::{error, thread};

use sievedb::{Db, Durability, Error, Keyspace, Result, Transaction, TransactionOptions};

const ACCOUNTS: u32 = 10;
const THREADS: u32 = 4;
const TRANSFERS: u32 = 200;

fn balance(transaction: &Transaction, accounts: &Keyspace, account: u32) -> Result<i64> {
    let value = transaction.get(accounts, account.to_be_bytes())?;
    let bytes = value.as_deref().and_then(|value| value.try_into().ok());
    Ok(bytes.map_or(0, i64::from_be_bytes))
}

/// Transfers `amount` and logs the transfer. Returns `false` if the balance is too low.
fn transfer(db: &Db, [from, to]: [u32; 2], amount: i64) -> Result<bool> {
    let (accounts, log) = (db.keyspace("accounts")?, db.keyspace("log")?);
    // Runs again if another transfer has changed one of the two accounts.
    db.transaction(|transaction| {
        let rest = balance(transaction, &accounts, from)? - amount;
        if rest < 0 || from == to {
            return Ok(false);
        }
        let sum = balance(transaction, &accounts, to)? + amount;
        transaction.insert(&accounts, from.to_be_bytes(), rest.to_be_bytes())?;
        transaction.insert(&accounts, to.to_be_bytes(), sum.to_be_bytes())?;
        // The newest log entry has the largest key. Two transfers that read the same one conflict.
        let newest = transaction.iter(&log).next_back().transpose()?;
        let number =
            newest.and_then(|(key, _)| (&*key).try_into().ok()).map_or(0, u64::from_be_bytes);
        transaction.insert(
            &log,
            (number + 1).to_be_bytes(),
            format!("{from} to {to}: {amount}"),
        )?;
        Ok(true)
    })
}

fn total(db: &Db) -> Result<i64> {
    let accounts = db.keyspace("accounts")?;
    let transaction = db.begin_with(TransactionOptions::new().read_only(true));
    (0..ACCOUNTS).map(|account| balance(&transaction, &accounts, account)).sum()
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let (accounts, log) = (db.keyspace("accounts")?, db.keyspace("log")?);
    for account in 0..ACCOUNTS {
        accounts.fetch_add(account.to_be_bytes(), 100)?;
    }

    let transfers = |thread: u32| {
        let steps = (0..TRANSFERS).map(|step| (step * (thread + 3), step * 7 + thread, step % 50));
        let mut done = 0;
        for (from, to, amount) in steps {
            let pair = [from % ACCOUNTS, to % ACCOUNTS];
            done += u32::from(transfer(&db, pair, i64::from(amount)).expect("a transfer"));
        }
        done
    };
    let transfers = &transfers;
    let done: u32 = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || transfers(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(total(&db)?, 100 * i64::from(ACCOUNTS));
    assert_eq!(log.iter().count(), done as usize);
    println!("{done} transfers, {} in all accounts", total(&db)?);

    // By hand: the commit reports the key that another write has changed.
    let mut transaction = db.begin();
    let before = balance(&transaction, &accounts, 0)?;
    transaction.insert(&accounts, 0_u32.to_be_bytes(), (before + 5).to_be_bytes())?;
    accounts.fetch_add(0_u32.to_be_bytes(), 10)?;
    match transaction.commit(Durability::Disk) {
        Err(Error::Conflict { keyspace, key }) => println!("conflict: {keyspace} {key:?}"),
        other => panic!("the account was changed: {other:?}"),
    }
    Ok(())
}
