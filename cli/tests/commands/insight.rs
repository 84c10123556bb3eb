//! Commands that inspect a store: `explain`, `stats`, `dump`.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use serde_json::{Value, json};
use sievedb::{Compression, Fifo, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Options};

use super::{failure, flush, output, sieve, text};

#[test]
fn explain_prints_each_step() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    assert!(failure(&["explain", store, "a"]).contains("there is no store"));
    output(&["put", store, "c", "3"]);
    flush(&path);
    output(&["put", store, "a", "12"]);
    flush(&path);
    output(&["rm", store, "c"]);
    let cases: [(&str, &str, &[&str]); 3] = [
        (
            "present",
            "a",
            &["level 0, run ", "filter: ", "data block at byte", "a value of 2 bytes"],
        ),
        ("removed", "c", &["found a tombstone with sequence 4", "absent, removed: "]),
        ("absent", "b", &["key \"b\" of keyspace \"default\"", "absent: 0 table filters"]),
    ];
    for (name, key, parts) in cases {
        let walk = output(&["explain", store, key]);
        for part in parts {
            assert!(walk.contains(part), "{name}: {part}: {walk}");
        }
    }
    let in_hex = output(&["explain", store, "--hex", "61"]);
    assert!(in_hex.contains("key \"a\""), "{in_hex}");
    assert!(failure(&["explain", store, "a", "--keyspace", "other"]).contains("no keyspace"));
}

#[test]
fn stats_watch_reads_an_open_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    assert!(failure(&["stats", store, "--watch"]).contains("there is no store"));
    output(&["put", store, "a", "1"]);
    let failed = failure(&["stats", store, "--watch"]);
    assert!(failed.contains("the option stats_file_interval"), "{failed}");
    assert!(failed.contains("unless the store is encrypted"), "{failed}");

    let plain = sievedb::Db::open(&path).unwrap();
    assert!(failure(&["stats", store]).contains("the option stats_file_interval"), "it is locked");
    drop(plain);
    let options = Options::new().stats_file_interval(Duration::from_millis(20));
    let db = options.open(&path).unwrap();
    db.flush().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                db.contains_key("aa").unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // Prints totals first, then the changes of one interval.
        let watched = sieve(&["stats", store, "--watch=1", "--count", "2"]);
        let now = sieve(&["stats", store]);
        let json: Value = serde_json::from_str(&output(&["stats", store, "--json"])).unwrap();
        for field in ["keyspaces", "quarantined", "opening"] {
            assert!(json[field].is_null(), "{field} is not in the file: {json}");
        }
        assert!(json["writes"].is_object() && json["read_only"].is_null(), "{json}");
        stop.store(true, Relaxed);
        let (out, err) =
            (String::from_utf8_lossy(&watched.stdout), String::from_utf8_lossy(&watched.stderr));
        let (first, second) = out.split_once("\nin the last ").expect("two looks");
        assert!(first.starts_with("since the store was opened:\ntime: "), "{out}{err}");
        for part in ["writes: ", "background: ", "physical reads of table files"] {
            assert!(first.contains(part), "{part}: {out}");
        }
        let (seconds, second) = second.split_once(" s:\n").expect("a time");
        let seconds: f64 = seconds.parse().unwrap();
        let lookups = second.split_once("lookups: ").expect("they are counted").1;
        let lookups: u64 = lookups.split(',').next().unwrap().parse().unwrap();
        let most = (1_000.0 * seconds) as u64 + 100;
        assert!((1..=most).contains(&lookups), "one per millisecond: {out}");
        assert!(now.status.success(), "by the file: {now:?}");
        let now = String::from_utf8_lossy(&now.stdout);
        assert!(
            now.starts_with("the store is open in another process: statistics of its file STATS"),
            "{now}"
        );
    });
    drop(db);
    // Without `--count` it exits because the store is closed.
    let last = output(&["stats", "--watch=1", store]);
    // The directory after `--watch` is not parsed as seconds.
    assert_eq!(
        output(&["stats", "--watch", store, "--count", "1"]),
        last.split("\n\n").next().unwrap().to_owned() + "\n"
    );
    assert!(last.contains("lookups: "), "a closed store prints its last statistics: {last}");
    assert!(last.ends_with("\nthe store is closed\n"), "{last}");
}

/// Also if the store has been open for longer than at the last look.
#[test]
#[expect(clippy::disallowed_methods, reason = "replaces the file as another open would")]
fn stats_watch_reports_that_the_store_was_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    // Writes the file at the open only.
    let db = Options::new().stats_file_interval(Duration::from_secs(100_000)).open(&path).unwrap();
    let file = path.join("STATS");
    let first = std::fs::read_to_string(&file).unwrap();
    let edited = first.lines().map(|line| match line.split_once(' ') {
        Some(("open_us", _)) => "open_us 1000000000\n".to_owned(),
        Some(("opened_ms", ms)) => format!("opened_ms {}\n", ms.parse::<u64>().unwrap() + 1),
        _ => format!("{line}\n"),
    });
    let second: String = edited.collect();
    let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"))
        .args(["stats", text(&path), "--watch=1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(sieve.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "since the store was opened:");
    // As an open does.
    std::fs::remove_file(&file).unwrap();
    assert!(lines.any(|line| line == "no new statistics were written"));
    std::fs::write(path.join("STATS.new"), second).unwrap();
    std::fs::rename(path.join("STATS.new"), &file).unwrap();
    let changed = lines.find(|line| !line.is_empty() && line != "no new statistics were written");
    assert_eq!(changed.unwrap(), "the store was reopened:");
    sieve.kill().unwrap();
    sieve.wait().unwrap();
    drop(db);
}

#[test]
fn stats_reports_levels_and_totals() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    // The last entry is only in the log.
    for key in ["a", "b", "c"] {
        output(&["put", store, key, "1"]);
        flush(&path);
    }
    output(&["put", store, "d", "1"]);
    let stats: Value = serde_json::from_str(&output(&["stats", store, "--json"])).unwrap();
    let (level, total) = (&stats["levels"][0], &stats["total"]);
    assert_eq!(
        (&level["tables"], &stats["levels"][1]["tables"]),
        (&3.into(), &0.into()),
        "{stats}"
    );
    assert_eq!(level, total, "there is one level: {stats}");
    let bytes = total["filter_bytes"].as_u64().unwrap();
    assert!(bytes > 0 && total["filter_bytes"] == total["filter_bytes_whole"], "{stats}");
    for number in ["filter_probes", "filter_negatives", "false_positives", "reads_saved"] {
        assert_eq!(total[number], 0, "{number}: {stats}");
    }
    for part in ["lookups", "table_reads", "memory", "moves", "background", "open_for"] {
        assert!(stats[part].is_object(), "{part}: {stats}");
    }
    assert_eq!(stats["lookups"]["lookups"], 0, "{stats}");
    assert!(stats["memory"]["budget_bytes"].is_u64(), "{stats}");
    assert!(stats["memory"]["budget_source"].is_string(), "{stats}");
    let text = output(&["stats", store]);
    assert!(text.contains("\nmemory: budget ") && text.contains(" (default, "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("total")), "{text}");
    assert!(text.contains("keyspace \"default\": 3 runs, 3 tables, "), "{text}");
    assert!(text.contains(" KiB") && !text.contains(" bytes"), "{text}");
}

#[test]
fn options_are_serialised_by_name() {
    let zstd = Compression::Zstd { level: 9, dictionary_bytes: 4096 };
    let policy = FilterPolicy::new(FilterPolicyKind::Bloom).memory_bytes_max(1 << 20);
    let options = KeyspaceOptions::new().filter_policy(policy).bottommost_compression(zstd);
    let json = serde_json::to_value(options).unwrap();
    let want = json!({"kind": "Bloom", "bits_per_key": 10.0, "memory_bytes_max": 1 << 20});
    assert_eq!(json["filter_policy"], want);
    assert_eq!(json["compression"], json!({"kind": "Lz4"}));
    let want = json!({"kind": "Zstd", "level": 9, "dictionary_bytes": 4096});
    assert_eq!(json["bottommost_compression"], want);
    assert!(json["prefix_extractor"].is_null(), "{json}");
    let fifo = Fifo::new(1 << 20).age_max(Duration::from_millis(1500));
    let json = serde_json::to_value(KeyspaceOptions::new().compaction_style(fifo)).unwrap();
    let age = json!({"secs": 1, "nanos": 500_000_000});
    let want = json!({"kind": "Fifo", "bytes_max": 1 << 20, "age_max": age});
    assert_eq!(json["compaction_style"], want);
}

#[test]
fn dump_reads_every_kind_of_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    output(&["put", text(&path), "a", "1"]);
    let mut names: Vec<String> = path
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "LOCK")
        .collect();
    names.sort();
    assert!(names.iter().any(|name| name == "CURRENT"), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("MANIFEST-")), "{names:?}");
    for name in names {
        let dump = output(&["dump", text(&path.join(&name))]);
        assert!(dump.starts_with("00000000-"), "{name}: {dump}");
    }
    assert!(failure(&["dump", text(&path.join("nothing"))]).contains("nothing"));
}

#[test]
fn reports_end_with_one_newline() {
    let dir = tempfile::tempdir().unwrap();
    let (path, salvaged) = (dir.path().join("store"), dir.path().join("salvaged"));
    let store = text(&path);
    for key in ["a", "b"] {
        output(&["put", store, key, "1"]);
    }
    let commands: [&[&str]; 4] = [
        &["stats", store],
        &["explain", store, "a"],
        &["verify", store],
        &["repair", store, "--into", text(&salvaged)],
    ];
    for args in commands {
        let report = output(args);
        assert!(report.ends_with('\n') && !report.contains("\n\n"), "{args:?}: {report}");
    }
}
