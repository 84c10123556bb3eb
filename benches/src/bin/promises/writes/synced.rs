//! Synced writes, over a loop that appends to a file and syncs it.

use std::{
    collections::VecDeque,
    error::Error,
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::Barrier,
    thread,
};

use sievedb::{CommitFuture, Db, Durability, Options, Result};
use sievedb_benches::{key, value};
use sievedb_workload::clock::now;

use super::median;
use crate::{
    figure::{Figure, Measured},
    scale::Scale,
};

/// Commits in flight of the one thread that does not wait for each.
const IN_FLIGHT: usize = 64;

/// Writers, and their least speed over that of one.
const THREADS: [(u64, f64); 3] = [(8, 4.0), (16, 6.0), (48, 12.0)];

/// Measures writes of an entry with [`Durability::Disk`] by 1 to 48 threads, and by one thread with
/// 64 commits in flight. Each round measures all in turn; ratios are medians over rounds.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let writes = scale.pick(200, 60);
    let db = Options::new().open(scale.directory.join("db"))?;
    let bytes = log_bytes(&db, writes)?;
    let (mut one, mut in_flight) = (Vec::new(), Vec::new());
    let mut many = THREADS.map(|_| Vec::new());
    let mut bare_us = Vec::new();
    for round in 0..scale.pick(5, 3) {
        let path = scale.directory.join(format!("bare{round}"));
        let (bare, of_store) = one_by_one(&db, &path, bytes as usize, writes)?;
        bare_us.push(bare * 1e6);
        one.push(of_store / bare);
        let single = synced(&db, 1, writes)?;
        for (ratios, (threads, _)) in many.iter_mut().zip(THREADS) {
            ratios.push(single / synced(&db, threads, writes)?);
        }
        in_flight.push(single / asynchronous(&db, writes * IN_FLIGHT as u64)?);
    }
    let mut figures = vec![
        Figure::new("log bytes of a write of 16 + 100 bytes", "bytes", bytes).at_most(168.0),
        Figure::new("append and sync, bare loop", "us", median(bare_us)),
        Figure::new("synced write of one thread, over the bare loop", "x", median(one))
            .at_most(1.05),
    ];
    for (ratios, (threads, least)) in many.into_iter().zip(THREADS) {
        let name = format!("synced writes of {threads} threads, over those of one");
        figures.push(Figure::new(name, "x", median(ratios)).at_least(least));
    }
    let name = format!("one thread with {IN_FLIGHT} commits in flight, over one at a time");
    figures.push(Figure::new(name, "x", median(in_flight)).at_least(12.0));
    Ok(figures)
}

/// Returns the bytes that a write adds to the log.
fn log_bytes(db: &Db, writes: u64) -> Result<f64> {
    synced(db, 1, 1)?;
    let before = db.stats().log_bytes;
    synced(db, 1, writes)?;
    Ok((db.stats().log_bytes - before) as f64 / writes as f64)
}

/// Returns the median time of an append of `bytes` bytes and its sync, and that of a synced write,
/// in seconds. Both take turns: the time of a sync changes with the load of the disk.
#[expect(clippy::disallowed_methods, reason = "the loop is bare")]
fn one_by_one(
    db: &Db,
    path: &Path,
    bytes: usize,
    writes: u64,
) -> Result<(f64, f64), Box<dyn Error>> {
    let mut file = OpenOptions::new().create_new(true).append(true).open(path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()?;
    let durable = db.default_keyspace().with_durability(Durability::Disk);
    let record = vec![b'r'; bytes];
    let (mut bare, mut of_store) = (Vec::new(), Vec::new());
    for index in 0..writes {
        let start = now();
        file.write_all(&record)?;
        file.sync_data()?;
        bare.push(start.elapsed().as_secs_f64());
        let start = now();
        durable.insert(key(index), value(index))?;
        of_store.push(start.elapsed().as_secs_f64());
    }
    Ok((median(bare), median(of_store)))
}

/// Returns the time of a synced write of one of `threads` threads over their number, in seconds.
fn synced(db: &Db, threads: u64, writes: u64) -> Result<f64> {
    let durable = db.default_keyspace().with_durability(Durability::Disk);
    let start = Barrier::new(threads as usize + 1);
    thread::scope(|scope| {
        let write = |thread: u64| {
            let (durable, start) = (&durable, &start);
            scope.spawn(move || -> Result<()> {
                start.wait();
                for index in thread * writes..(thread + 1) * writes {
                    durable.insert(key(index), value(index))?;
                }
                Ok(())
            })
        };
        let writers: Vec<_> = (0..threads).map(write).collect();
        start.wait();
        let begun = now();
        for writer in writers {
            writer.join().expect("a failing write returns its error")?;
        }
        Ok(begun.elapsed().as_secs_f64() / (threads * writes) as f64)
    })
}

/// Returns the time of a write of one thread that has [`IN_FLIGHT`] commits in flight, in seconds.
fn asynchronous(db: &Db, writes: u64) -> Result<f64> {
    let mut in_flight = VecDeque::<CommitFuture>::new();
    let mut batch = db.batch();
    let start = now();
    for index in 0..writes {
        if in_flight.len() == IN_FLIGHT
            && let Some(oldest) = in_flight.pop_front()
        {
            oldest.wait()?;
        }
        batch.insert(db, key(index), value(index))?;
        in_flight.push_back(batch.commit_async(Durability::Disk)?);
    }
    for commit in in_flight {
        commit.wait()?;
    }
    Ok(start.elapsed().as_secs_f64() / writes as f64)
}
