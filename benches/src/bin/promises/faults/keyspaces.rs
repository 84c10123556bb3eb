//! Stores with many keyspaces.

use std::{error::Error, fs, io, path::Path};

use sievedb::{Db, Durability, Keyspace, Options};
use sievedb_workload::{clock::now, random::Random};

use crate::{
    figure::{Figure, Measured},
    scale::{MIB, Scale},
};

/// Creates `count` keyspaces.
fn create(db: &Db, count: u64) -> Result<Vec<Keyspace>, Box<dyn Error>> {
    Ok((0..count).map(|number| db.keyspace(&name(number))).collect::<Result<_, _>>()?)
}

fn name(number: u64) -> String {
    format!("keyspace {number}")
}

/// Reopens a store with entries in the memtables of all keyspaces, after a clean close and after a
/// crash: on a copy of its directory that was made while the store was open.
pub(crate) fn measure_reopening(scale: &Scale) -> Measured {
    let mut figures = Vec::new();
    for (count, bound_ms) in [(200, 100.0), (scale.pick(2_000, 1_000), 1_000.0)] {
        let path = scale.directory.join(count.to_string());
        let crashed = scale.directory.join(format!("crashed {count}"));
        let db = Db::open(&path)?;
        for keyspace in create(&db, count)? {
            for key in 0..10_u64 {
                keyspace.insert(key.to_be_bytes(), [b'v'; 100])?;
            }
        }
        db.persist(Durability::Disk)?;
        copy(&path, &crashed)?;
        db.close()?;
        for (path, end) in [(&path, "clean close"), (&crashed, "crash")] {
            let begun = now();
            let db = Db::open(path)?;
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            drop(db);
            let name = format!("reopening {count} keyspaces after a {end}");
            figures.push(Figure::new(name, "ms", ms).at_most(bound_ms));
        }
    }
    Ok(figures)
}

/// Copies the files of a directory into a new one.
#[expect(clippy::disallowed_methods, reason = "copies a store behind the engine's back")]
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Writes 100,000 small entries into 2,000 keyspaces, at three budgets.
pub(crate) fn measure_writes(scale: &Scale) -> Measured {
    let (keyspaces, writes) = (scale.pick(2_000, 500), scale.pick(100_000, 25_000));
    let mut figures = Vec::new();
    for (budget_mib, bound_s) in [(256, None), (128, None), (64, Some(1.0))] {
        let path = scale.directory.join(budget_mib.to_string());
        let db = Options::new().memory_budget(budget_mib * MIB).open(path)?;
        let handles = create(&db, keyspaces)?;
        let mut random = Random::new(13);
        let begun = now();
        for _ in 0..writes {
            random.choose(&handles).insert(random.next().to_be_bytes(), [b'v'; 20])?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let name = format!("{writes} writes into {keyspaces} keyspaces at {budget_mib} MiB");
        let figure = Figure::new(name, "s", seconds);
        figures.push(match bound_s {
            Some(bound) => figure.at_most(bound),
            None => figure,
        });
    }
    Ok(figures)
}

/// Drops keyspaces one by one: empty ones, and ones that hold a memtable and a table each.
pub(crate) fn measure_drops(scale: &Scale) -> Measured {
    let count = scale.pick(1_000, 200);
    let mut figures = Vec::new();
    for (full, what) in [(false, "empty"), (true, "full")] {
        let db = Db::open(scale.directory.join(what))?;
        let keyspaces = create(&db, count)?;
        for key in 0..if full { 20_u64 } else { 0 } {
            if key == 10 {
                db.flush()?;
            }
            for keyspace in &keyspaces {
                keyspace.insert(key.to_be_bytes(), [b'v'; 100])?;
            }
        }
        drop(keyspaces);
        let begun = now();
        for number in 0..count {
            db.drop_keyspace(&name(number))?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let name = format!("dropping {count} {what} keyspaces one by one");
        figures.push(Figure::new(name, "s", seconds));
    }
    Ok(figures)
}
