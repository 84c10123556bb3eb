//! Bytes that an incremental backup copies, and a restore that is compared byte for byte. Prints
//! name, tab and value, and the bound if it has one.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example backups -- [--mib MIB]
//! ```
//!
//! A store gets MIB MiB of entries with 1,000-byte values, and is compacted and backed up. Then 1 %
//! of the keys get other values, and it is backed up again. One store gets those of a range of
//! keys, another one those of random keys. Percentages are the bytes that a backup adds, of all
//! bytes of the first one.
//!
//! A backup does not flush: it copies the log. So it adds the changed entries, wherever they are,
//! and tables that were rewritten meanwhile. A full compaction rewrites all tables, and the next
//! backup copies them again.
//!
//! | name                         | value                                                    |
//! |------------------------------|----------------------------------------------------------|
//! | `store_mib`                  | bytes of the first backup, in MiB                        |
//! | `range_bytes_percent`        | added after a change of one range; bound: 1.3            |
//! | `random_bytes_percent`       | added after a change of random keys; bound: 1.3          |
//! | `range_flushed_percent`      | the next one, after a flush                              |
//! | `random_compacted_percent`   | the next one, after a full compaction                    |
//! | `bytes_lost`                 | bytes of restored files that differ or are missing; bound: 0 |
//! | `entries_lost`               | entries of the restored store that differ; bound: 0      |
//! | `checkpoint_ms`              | time of a checkpoint of the store, median of 5; bound: 50 |
//! | `create_mib_per_second`      | speed of the first backup                                |
//! | `restore_mib_per_second`     | speed of the restore                                     |

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(clippy::unwrap_used, reason = "a benchmark ends by a panic")]
#![expect(clippy::disallowed_methods, reason = "files are compared outside of the store")]

use std::{fs, path::Path};

use clap::Parser;
use sievedb::{
    Backup, BackupSet, Db,
    clock::{Clock as _, SystemClock},
};
use sievedb_benches::key;

const VALUE_BYTES: usize = 1000;

#[derive(Debug, Parser)]
struct Args {
    /// Size of the store, in MiB.
    #[arg(long, default_value_t = 128)]
    mib: u64,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Returns a value that does not compress.
fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut state = number | 1;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
}

/// Gives the entries with these indexes the values of a round.
fn change(db: &Db, indexes: impl Iterator<Item = u64>, round: u64) {
    for index in indexes {
        db.insert(key(index), value(index + (round << 32))).unwrap();
    }
}

fn percent(backup: &Backup, all: &Backup) -> f64 {
    100.0 * backup.bytes_added as f64 / all.bytes as f64
}

/// Returns the bytes of files in `store` that the directory `copy` lacks or has otherwise. The
/// manifests differ, and the store may append to the newest segment of its log.
fn lost_bytes(store: &Path, copy: &Path) -> u64 {
    let mut lost = 0;
    for entry in fs::read_dir(store).unwrap() {
        let name = entry.unwrap().file_name();
        let path = Path::new(&name);
        if path.extension().is_none_or(|end| end != "sst" && end != "filter") {
            continue;
        }
        let wanted = fs::read(store.join(path)).unwrap();
        if fs::read(copy.join(path)).ok().as_ref() != Some(&wanted) {
            lost += wanted.len() as u64;
        }
    }
    lost
}

/// A store with an incremental backup of a change.
struct Changed {
    db: Db,
    set: BackupSet,
    first: Backup,
    /// After the change.
    second: Backup,
    /// Time of the first backup, in seconds.
    seconds: f64,
}

/// Creates a store in `dir` and two backups, between which the entries `indexes` change.
fn changed(dir: &Path, keys: u64, indexes: impl Iterator<Item = u64>) -> Changed {
    let clock = SystemClock::new();
    let db = Db::open(dir.join("db")).unwrap();
    let set = BackupSet::new(dir.join("set"));
    change(&db, 0..keys, 0);
    db.compact().unwrap();
    db.wait_for_background().unwrap();
    let start = clock.now();
    let first = set.create(&db).unwrap();
    let seconds = (clock.now() - start).as_secs_f64();
    change(&db, indexes, 1);
    let second = set.create(&db).unwrap();
    Changed { db, set, first, second, seconds }
}

fn main() {
    let Args { mib, .. } = Args::parse();
    let keys = (mib << 20) / VALUE_BYTES as u64;
    let count = keys / 100;
    let (dir, clock) = (tempfile::tempdir().unwrap(), SystemClock::new());
    let path = dir.path().join("range");
    let range = changed(&path, keys, keys / 3..keys / 3 + count);
    let store_mib = range.first.bytes as f64 / 1024.0 / 1024.0;
    println!("store_mib\t{store_mib:.0}");
    println!("range_bytes_percent\t{:.3}\t1.3", percent(&range.second, &range.first));
    range.db.flush().unwrap();
    let flushed = range.set.create(&range.db).unwrap();
    println!("range_flushed_percent\t{:.3}", percent(&flushed, &range.first));
    drop(range);
    fs::remove_dir_all(&path).unwrap();

    let path = dir.path().join("random");
    // A prime, so that the keys are spread.
    let random = changed(&path, keys, (0..count).map(|number| number * 0x9e37_79b9 % keys));
    println!("random_bytes_percent\t{:.3}\t1.3", percent(&random.second, &random.first));
    let Changed { db, set, first, seconds: created, .. } = random;
    db.compact().unwrap();
    db.wait_for_background().unwrap();
    let compacted = set.create(&db).unwrap();
    println!("random_compacted_percent\t{:.3}", percent(&compacted, &first));

    let mut times: Vec<_> = (0..5)
        .map(|round| {
            let start = clock.now();
            db.checkpoint(dir.path().join(format!("copy{round}"))).unwrap();
            (clock.now() - start).as_secs_f64() * 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("checkpoint_ms\t{:.1}\t50", times[2]);

    let restored = dir.path().join("restored");
    let start = clock.now();
    set.restore(compacted.number, &restored).unwrap();
    let seconds = (clock.now() - start).as_secs_f64();
    println!("bytes_lost\t{}\t0", lost_bytes(&path.join("db"), &restored));
    println!("entries_lost\t{}\t0", lost_entries(&db, &restored));
    println!("create_mib_per_second\t{:.0}", store_mib / created);
    println!("restore_mib_per_second\t{:.0}", store_mib / seconds);
}

/// Returns the number of entries that the store in `copy` lacks or has otherwise.
fn lost_entries(db: &Db, copy: &Path) -> u64 {
    let copy = Db::open(copy).unwrap();
    let (mut entries, mut copied, mut lost) = (db.iter(), copy.iter(), 0);
    loop {
        match (entries.next(), copied.next()) {
            (None, None) => return lost,
            (entry, copy) => {
                lost += u64::from(entry.map(Result::unwrap) != copy.map(Result::unwrap));
            }
        }
    }
}
