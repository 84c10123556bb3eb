//! The frontier of a web crawler: each URL is fetched once, or again after a crash, the most urgent
//! first, by several threads.
//!
//! `seen` has every URL that was ever found: most lookups are of absent keys, which costs a cache
//! miss each. `frontier` orders the URLs that are due by priority. A crash of the process loses no
//! URL: it is in the frontier, or leased to a worker until the frontier is opened again.
//!
//! `cargo run -p sievedb --example url_frontier`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::{
    error,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use sievedb::{Db, Keyspace, Result};

/// Pages of the synthetic web. Page `n` links to six others.
const PAGES: u64 = 2_000;
const WORKERS: u64 = 3;

/// Keyspaces of a frontier.
struct Frontier {
    db: Db,
    /// URL → depth at which it was found.
    seen: Keyspace,
    /// Depth, URL → nothing.
    due: Keyspace,
    /// URL → depth, of pages that a worker fetches.
    leased: Keyspace,
}

/// Key of a URL in `due`: a smaller depth is more urgent.
fn due_key(depth: u32, url: &str) -> Vec<u8> {
    [&depth.to_be_bytes()[..], url.as_bytes()].concat()
}

impl Frontier {
    fn open(db: &Db) -> Result<Self> {
        let (seen, due, leased) =
            (db.keyspace("seen")?, db.keyspace("due")?, db.keyspace("leased")?);
        let frontier = Self { db: db.clone(), seen, due, leased };
        // Leases of the last run: their workers are gone.
        for entry in frontier.leased.iter() {
            let (url, depth) = entry?;
            frontier.db.transaction(|tx| {
                tx.remove(&frontier.leased, &url)?;
                tx.insert(&frontier.due, [&depth[..], &url[..]].concat(), "")
            })?;
        }
        Ok(frontier)
    }

    /// Adds a URL, unless it was found before.
    fn add(&self, url: &str, depth: u32) -> Result<bool> {
        // The common case: a URL that is known needs no transaction.
        if self.seen.contains_key(url)? {
            return Ok(false);
        }
        self.db.transaction(|tx| {
            if tx.contains_key(&self.seen, url)? {
                return Ok(false);
            }
            tx.insert(&self.seen, url, depth.to_be_bytes())?;
            tx.insert(&self.due, due_key(depth, url), "")?;
            Ok(true)
        })
    }

    /// Leases the most urgent URL.
    fn lease(&self) -> Result<Option<(u32, String)>> {
        self.db.transaction(|tx| {
            let Some(first) = tx.iter(&self.due).next() else { return Ok(None) };
            let (key, _) = first?;
            let (depth, url) = key.split_at(size_of::<u32>());
            tx.remove(&self.due, &key)?;
            tx.insert(&self.leased, url, depth)?;
            let depth = depth.try_into().map_or(u32::MAX, u32::from_be_bytes);
            Ok(Some((depth, String::from_utf8_lossy(url).into_owned())))
        })
    }
}

/// Returns the links of a page.
fn fetch(url: &str) -> impl Iterator<Item = String> {
    let page: u64 = url.rsplit('/').next().and_then(|page| page.parse().ok()).unwrap_or_default();
    (1..=6).map(move |link| format!("https://example.org/{}", (page * 7 + link * link) % PAGES))
}

/// Fetches pages until none is left. Returns their number.
fn work(frontier: &Frontier, active: &AtomicU64) -> Result<u64> {
    let mut fetched = 0;
    loop {
        active.fetch_add(1, Relaxed);
        let Some((depth, url)) = frontier.lease()? else {
            // Another worker may still find links.
            if active.fetch_sub(1, Relaxed) == 1 {
                return Ok(fetched);
            }
            thread::yield_now();
            continue;
        };
        for link in fetch(&url) {
            frontier.add(&link, depth + 1)?;
        }
        frontier.leased.remove(&url)?;
        fetched += 1;
        active.fetch_sub(1, Relaxed);
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let frontier = Frontier::open(&db)?;
    assert!(frontier.add("https://example.org/0", 0)?);
    assert!(!frontier.add("https://example.org/0", 0)?, "it was found before");

    let active = AtomicU64::new(0);
    let fetched: Result<Vec<u64>> = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..WORKERS).map(|_| scope.spawn(|| work(&frontier, &active))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let fetched: u64 = fetched?.iter().sum();
    assert_eq!(fetched, frontier.seen.len()?, "each page that was found is fetched once");
    assert!(frontier.due.is_empty()? && frontier.leased.is_empty()?);
    println!("fetched {fetched} pages of {PAGES} by {WORKERS} workers");
    Ok(())
}
