//! Counters of eight threads by merge operands: no read, no lock, no lost update.
//!
//! `cargo run --release -p sievedb --example counters`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::{error::Error, sync::Arc, thread};

use sievedb::{Counter, Db, KeyspaceOptions, MergeError, MergeOperator, Options, SetUnion};

const THREADS: i64 = 8;
const VISITS: i64 = 1_000;

/// An operator of this program: keeps the last five parts of a list that is separated by commas.
#[derive(Debug)]
struct LastFive;

impl MergeOperator for LastFive {
    fn name(&self) -> &str {
        "last five"
    }

    fn merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let parts = base.into_iter().chain(operands.iter().copied());
        let parts: Vec<&[u8]> = parts.flat_map(|part| part.split(|&byte| byte == b',')).collect();
        Ok(parts[parts.len().saturating_sub(5)..].join(&b','))
    }

    // The last five of two lists are the last five of the joined list.
    fn partial_merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.merge(key, Some(older), &[newer]).ok()
    }
}

fn count(db: &Db, page: &str) -> Result<i64, Box<dyn Error>> {
    let visits = db.open_keyspace("visits")?.get(page)?.ok_or("no visit")?;
    Ok(i64::from_be_bytes(visits[..].try_into()?))
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    // An operator of the application is registered at each open.
    let options = || Options::new().merge_operator(Arc::new(LastFive));
    let db = options().open(dir.path())?;
    let of = |operator: Arc<dyn MergeOperator>| KeyspaceOptions::new().merge_operator(operator);
    let visits = db.keyspace_with("visits", &of(Arc::new(Counter)))?;
    let visitors = db.keyspace_with("visitors", &of(Arc::new(SetUnion)))?;
    let recent = db.keyspace_with("recent", &of(Arc::new(LastFive)))?;

    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (visits, visitors) = (&visits, &visitors);
                scope.spawn(move || -> sievedb::Result<()> {
                    for _ in 0..VISITS {
                        visits.merge("home", 1_i64.to_be_bytes())?;
                    }
                    visitors.merge("home", SetUnion::encode([format!("user {thread}")]))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    assert_eq!(count(&db, "home")?, THREADS * VISITS);
    println!("{THREADS} threads counted {} visits", count(&db, "home")?);

    let home = visitors.get("home")?.ok_or("no visitor")?;
    let users = SetUnion::decode(&home)?;
    assert_eq!(users.len() as i64, THREADS);
    println!("by {} users, the first of them {:?}", users.len(), str::from_utf8(users[0])?);

    // All of one batch are visible at once.
    let mut batch = db.batch();
    for page in ["news", "about", "home", "help", "home", "jobs"] {
        batch.merge(&recent, "user 1", page)?;
        batch.merge(&visits, page, 1_i64.to_be_bytes())?;
    }
    batch.commit(sievedb::Durability::OsBuffer)?;
    drop((visits, visitors, recent));

    // A compaction applies the operands, and the values stay the same.
    let before = count(&db, "home")?;
    for name in ["visits", "visitors", "recent"] {
        db.open_keyspace(name)?.compact()?;
    }
    assert_eq!(count(&db, "home")?, before);
    db.close()?;

    let db = options().open(dir.path())?;
    let pages = db.open_keyspace("recent")?.get("user 1")?.ok_or("no page")?;
    assert_eq!(&*pages, b"about,home,help,home,jobs");
    println!("the last pages of user 1: {}", str::from_utf8(&pages)?);
    Ok(())
}
