//! Space of expired entries, which returns without a call of the user. Prints name, tab and value,
//! and the bound of the ratio.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example expiry -- [--keys KEYS]
//! ```
//!
//! A store gets KEYS keys, 200,000 unless set, of which 90 % expire. Half of the keys are inserted
//! in ascending order, as sessions by their start, and all of them expire. The others are in random
//! order, and 80 % of them expire. Then the clock passes the expiry, and background work runs until
//! nothing is due.
//!
//! | name                     | value                                                       |
//! |--------------------------|-------------------------------------------------------------|
//! | `entries`                | entries in tables before the expiry                         |
//! | `entries_after`          | entries in tables after it; the living ones are a tenth     |
//! | `bytes_before`           | length of the tables before the expiry, in bytes            |
//! | `bytes_after`            | length of the tables after it, in bytes                     |
//! | `bytes_ideal`            | length of the tables of a store of the living entries only  |
//! | `bytes_ratio`            | `bytes_after` divided by `bytes_ideal`; bound: 1.1          |
//! | `tables_before`          | tables before the expiry                                    |
//! | `tables_unlinked_unread` | tables that were unlinked without a read                    |
//! | `bytes_read`             | bytes of tables that compactions read for it                |
//! | `bytes_written`          | bytes of tables that compactions wrote for it               |
//! | `cpu_seconds`            | CPU time of all threads for it, in seconds                  |

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(clippy::unwrap_used, reason = "a benchmark ends by a panic")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use clap::Parser;
use sievedb::{
    Db, Options, Stats,
    clock::{Clock, SystemClock},
};
use sievedb_benches::value;
use sievedb_workload::clock::process_cpu_time;
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Parser)]
struct Args {
    /// Number of keys.
    #[arg(long, default_value_t = 200_000)]
    keys: u64,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The clock of the machine, set forward by some days.
#[derive(Debug, Default)]
struct ForwardClock {
    clock: SystemClock,
    days: AtomicU64,
}

impl Clock for ForwardClock {
    fn now(&self) -> Duration {
        self.clock.now() + DAY * u32::try_from(self.days.load(SeqCst)).unwrap()
    }

    fn unix_time(&self) -> Duration {
        self.clock.unix_time()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

fn open(clock: &Arc<ForwardClock>) -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().clock(Arc::clone(clock) as _).open(dir.path()).unwrap();
    (dir, db)
}

/// Inserts the keys, or only those that do not expire.
fn fill(db: &Db, keys: u64, only_living: bool) {
    let half = keys / 2;
    for number in 0..keys {
        let is_ordered = number < half;
        let expires = is_ordered || !number.is_multiple_of(5);
        if expires && only_living {
            continue;
        }
        let order = if is_ordered { number } else { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
        let mut key = [u8::from(!is_ordered); 9];
        key[1..].copy_from_slice(&order.to_be_bytes());
        let value = value(number);
        if expires {
            db.insert_with_ttl(key, value, DAY).unwrap();
        } else {
            db.insert(key, value).unwrap();
        }
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
}

fn sum(stats: &Stats, of: impl Fn(&sievedb::stats::LevelStats) -> u64) -> u64 {
    stats.levels.iter().map(of).sum()
}

fn main() {
    let Args { keys, .. } = Args::parse();
    let clock = Arc::new(ForwardClock::default());
    let (_ideal_dir, ideal) = open(&clock);
    fill(&ideal, keys, true);
    let bytes_ideal = sum(&ideal.stats(), |level| level.bytes);
    let living = ideal.len().unwrap();
    drop(ideal);

    let (_dir, db) = open(&clock);
    fill(&db, keys, false);
    let before = db.stats();
    let cpu = process_cpu_time();
    clock.days.store(2, SeqCst);
    db.wait_for_background().unwrap();
    let cpu = process_cpu_time() - cpu;
    let after = db.stats();
    assert_eq!(db.len().unwrap(), living, "the living entries are left");

    let bytes_after = sum(&after, |level| level.bytes);
    println!("entries\t{}", sum(&before, |level| level.entries));
    println!("entries_after\t{}", sum(&after, |level| level.entries));
    println!("bytes_before\t{}", sum(&before, |level| level.bytes));
    println!("bytes_after\t{bytes_after}");
    println!("bytes_ideal\t{bytes_ideal}");
    println!(
        "bytes after expiry, over those of a store of the rest\t{:.3}\t1.1",
        bytes_after as f64 / bytes_ideal as f64
    );
    println!("tables_before\t{}", sum(&before, |level| level.tables));
    let (then, now) = (&before.background, &after.background);
    println!(
        "tables_unlinked_unread\t{}",
        now.tables_unlinked_unread - then.tables_unlinked_unread
    );
    println!("bytes_read\t{}", now.compaction_bytes_read - then.compaction_bytes_read);
    println!("bytes_written\t{}", now.compaction_bytes_written - then.compaction_bytes_written);
    println!("cpu_seconds\t{:.2}", cpu.as_secs_f64());
}
