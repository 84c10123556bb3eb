//! Time and memory of a store with many keyspaces. Prints name, value and bound, with tabs between.
//!
//! `cargo run --release -p sievedb-benches --example many_keyspaces -- [KEYSPACES]`
//!
//! Every keyspace has an entry in a table. Figures are medians of several processes.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(clippy::unwrap_used, reason = "a benchmark ends by a panic")]

use std::{env, fs, path::Path, process::Command};

use sievedb::Db;
use sievedb_workload::clock::now;

const KEYSPACES: usize = 1000;
const PROCESSES: usize = 5;

/// Returns the resident bytes of this process without those that files back, such as its code.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}

fn create(path: &Path, keyspaces: usize) {
    let db = Db::open(path).unwrap();
    for number in 0..keyspaces {
        let keyspace = db.keyspace(&format!("keyspace-{number}")).unwrap();
        keyspace.insert("key", "value").unwrap();
    }
    db.flush().unwrap();
}

/// Opens the store, and prints the milliseconds and the additional bytes.
fn open(path: &Path) {
    let before = resident_bytes();
    let start = now();
    let db = Db::open(path).unwrap();
    let elapsed = now() - start;
    db.wait_for_background().unwrap();
    println!("{} {}", elapsed.as_secs_f64() * 1e3, resident_bytes() - before);
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [command, path] = &arguments[..] {
        assert_eq!(command, "open");
        return open(Path::new(path));
    }
    let keyspaces = arguments.first().map_or(KEYSPACES, |number| number.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), keyspaces);
    let figures: Vec<Vec<f64>> = (0..PROCESSES)
        .map(|_| {
            let path = env::current_exe().unwrap();
            let output = Command::new(path).arg("open").arg(dir.path()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            text.split_whitespace().map(|figure| figure.parse().unwrap()).collect()
        })
        .collect();
    let open_ms = median(figures.iter().map(|process| process[0]));
    println!("{keyspaces} keyspaces: open, ms\t{open_ms:.1}\t100");
    let idle_mib = median(figures.iter().map(|process| process[1])) / f64::from(1 << 20);
    println!(
        "{keyspaces} keyspaces: resident memory when idle, without code, MiB\t{idle_mib:.2}\t8"
    );
}
