//! The binary `sieve`, from the outside: each command is a process of its own.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use serde_json::Value;
use sievedb::{Compression, FilterPolicy, KeyspaceOptions, Options, PrefixExtractor};

/// Runs `sieve` with `args`.
fn sieve(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sieve")).args(args).output().expect("the binary was built")
}

/// What `sieve` prints when all goes well.
fn output(args: &[&str]) -> String {
    let output = sieve(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("the output is text")
}

/// The errors that `sieve` prints when it fails.
fn failure(args: &[&str]) -> String {
    let output = sieve(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert_eq!(output.stdout, b"", "{args:?}");
    String::from_utf8(output.stderr).expect("the errors are text")
}

/// Says nothing, and ends with the code of "no".
fn says_no(args: &[&str]) {
    let output = sieve(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()), "{args:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

#[test]
fn what_one_process_writes_the_next_one_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = text(&path);
    for (key, value) in [("b", "2"), ("a", "1"), (r"c\x00\n", r"\xff\\"), ("d", "")] {
        output(&["put", store, key, value]);
    }
    output(&["put", store, "a", "elsewhere", "--keyspace", "other"]);
    output(&["put", store, "b", "two"]);
    output(&["rm", store, "d"]);
    output(&["rm", store, "never there"]);

    let cases: [(&str, &[&str], &str); 11] = [
        ("a value", &["get", store, "a"], "1\n"),
        ("the newer value", &["get", store, "b"], "two\n"),
        ("another keyspace", &["get", store, "a", "--keyspace", "other"], "elsewhere\n"),
        ("any bytes", &["get", store, r"c\x00\x0a"], "\\xff\\\\\n"),
        ("a raw value", &["get", store, "a", "--raw"], "1"),
        ("all", &["scan", store], "a\t1\nb\ttwo\nc\\x00\\n\t\\xff\\\\\n"),
        ("backwards", &["scan", store, "--reverse", "--keys-only"], "c\\x00\\n\nb\na\n"),
        ("bounds", &["scan", store, "--from", "a", "--to", "b"], "a\t1\n"),
        ("a prefix", &["scan", store, "--prefix", "b"], "b\ttwo\n"),
        ("one", &["scan", store, "--limit", "1", "--reverse", "--keys-only"], "c\\x00\\n\n"),
        ("crossed bounds", &["scan", store, "--from", "b", "--to", "a"], ""),
    ];
    for (name, args, want) in cases {
        assert_eq!(output(args), want, "{name}");
    }

    let in_hex = ["scan", store, "--hex", "--from", "6200", "--keys-only"];
    assert_eq!(output(&in_hex), "63000a\n");
    output(&["put", store, "--hex", "c3a4", "ff"]);
    assert_eq!(output(&["scan", store, "--prefix", "ä"]), "ä\t\\xff\n");

    says_no(&["get", store, "d"]);
    let stats: Value = serde_json::from_str(&output(&["stats", store, "--json"])).unwrap();
    assert_eq!(stats["keyspaces"][0]["name"], "default");
    assert_eq!(stats["keyspaces"][1]["name"], "other");
    assert!(output(&["stats", store]).contains("keyspace \"other\""));
}

#[test]
fn text_that_stands_for_no_bytes_is_an_error_of_usage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let cases: [&[&str]; 4] = [
        &["put", text(&path), r"\q", ""],
        &["put", text(&path), "a", "abc", "--hex"],
        &["get", text(&path), "zz", "--hex"],
        &["get", text(&path), "61", "--hex", "--raw"],
    ];
    for args in cases {
        assert_eq!(sieve(args).status.code(), Some(2), "{args:?}");
    }
    assert!(!path.exists());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    output(&["put", text(&path), "a", &"v".repeat(100_000)]);
    let mut scan = Command::new(env!("CARGO_BIN_EXE_sieve"))
        .args(["scan", text(&path)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(scan.stdout.take());
    let end = scan.wait_with_output().unwrap();
    assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "damages a file behind the engine's back")]
fn an_error_is_told_with_its_causes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    output(&["put", text(&path), "a", "1"]);
    std::fs::write(path.join("CURRENT"), "damaged").unwrap();
    let error = failure(&["get", text(&path), "a"]);
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines[0].starts_with("sieve: ") && lines[0].contains("CURRENT"), "{error}");
    assert!(lines.len() > 1 && lines[1].starts_with("  because: "), "{error}");
}

#[test]
fn reading_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = text(&path);
    for args in [&["get", store, "a"][..], &["scan", store], &["rm", store, "a"], &["stats", store]]
    {
        assert!(failure(args).contains("there is no store"), "{args:?}");
    }
    assert!(!path.exists());
    let empty = tempfile::tempdir().unwrap();
    let error = failure(&["rm", text(empty.path()), "a"]);
    assert!(error.contains("there is no store") && error.contains(text(empty.path())), "{error}");
    assert_eq!(empty.path().read_dir().unwrap().count(), 0, "it has made something");
    output(&["put", store, "a", "1"]);
    let error = failure(&["get", store, "a", "--keyspace", "other"]);
    assert!(error.contains("no keyspace \"other\""), "{error}");
}

/// Names of the files of a store that hold data and filters.
fn table_files(store: &Path) -> Vec<String> {
    let entries = store.read_dir().expect("the store is there");
    let paths = entries.map(|entry| entry.expect("the folder is listed").path());
    let names = paths.filter_map(|path| Some(text(&path).rsplit_once('/')?.1.to_owned()));
    let mut names: Vec<_> =
        names.filter(|name| name.ends_with(".sst") || name.ends_with(".filter")).collect();
    names.sort();
    names
}

#[test]
fn a_store_of_a_service_is_looked_into_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = text(&path);
    let options = KeyspaceOptions::new()
        .prefix_extractor(PrefixExtractor::Separator(b':'))
        .range_filter_bits_per_key(12.0)
        .filter_policy(FilterPolicy::default().bits_per_key(7.0))
        .compression(Compression::None);
    let open = || {
        let options = Options::new().keyspace(options.clone()).background_rewrites(false);
        options.open(&path).unwrap()
    };
    let db = open();
    // More runs of level 0 than a compaction waits for.
    for round in 0..8 {
        for number in 0..50 {
            db.insert(format!("user{number}:{round}"), "value").unwrap();
        }
        db.flush().unwrap();
    }
    drop(db);
    let files = table_files(&path);
    assert_eq!(files.len(), 8, "{files:?}");
    assert_eq!(output(&["get", store, "user7:3"]), "value\n");
    assert_eq!(output(&["scan", store, "--prefix", "user7:"]).lines().count(), 8);
    output(&["explain", store, "user7:3"]);
    let stats = output(&["stats", store]);
    let words = "no compression, Auto filters of 7 bits a key, prefixes by \"separator:0x3a\", \
                 range filters of 12 bits a key";
    assert!(stats.contains(words), "{stats}");
    assert!(stats.lines().any(|line| line == format!("  {options}")), "{stats}");
    assert_eq!(table_files(&path), files);
    let manifest = path.read_dir().unwrap().map(|it| it.unwrap().path());
    let manifest = manifest.filter(|path| text(path).contains("MANIFEST-")).max().unwrap();
    let dump = output(&["dump", text(&manifest)]);
    assert!(dump.contains(&format!("1 \"default\": {options}")), "{dump}");

    output(&["put", store, "user7:8", "more"]);
    output(&["rm", store, "user7:3"]);
    let db = Options::new().create_if_missing(false).open(&path).unwrap();
    assert_eq!(db.options(), options);
    assert_eq!(db.prefix("user7:").count(), 8);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a folder of somebody else")]
fn no_store_is_made_among_files_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let letter = folder.path().join("letter.txt");
    std::fs::write(&letter, "dear").unwrap();
    let error = failure(&["put", text(folder.path()), "a", "1"]);
    assert!(error.contains("\"letter.txt\"") && error.contains("empty folder"), "{error}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 1, "it has made something");
    std::fs::remove_file(&letter).unwrap();
    output(&["put", text(folder.path()), "a", "1"]);
    // In a store of ours they do no harm.
    std::fs::write(&letter, "dear").unwrap();
    assert_eq!(output(&["get", text(folder.path()), "a"]), "1\n");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "damages a file behind the engine's back")]
fn verify_lists_every_problem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = text(&path);
    assert!(failure(&["verify", store]).contains("there is no store"));
    for number in 0..3 {
        output(&["put", store, &format!("key{number}"), "value"]);
    }
    let report = output(&["verify", store]);
    assert!(report.contains("0 problems"), "{report}");
    // Each of the processes but the first found the log of the one before, and made a table of it.
    let mut tables: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    tables.retain(|path| path.extension().is_some_and(|extension| extension == "sst"));
    assert_eq!(tables.len(), 2, "{tables:?}");
    for table in &tables {
        let mut bytes = std::fs::read(table).unwrap();
        let end = bytes.len();
        bytes[end - 1] ^= 1;
        std::fs::write(table, bytes).unwrap();
    }
    let found = sieve(&["verify", store]);
    assert_eq!(found.status.code(), Some(1));
    let (out, err) =
        (String::from_utf8_lossy(&found.stdout), String::from_utf8_lossy(&found.stderr));
    for table in &tables {
        let named = out.lines().filter(|line| line.contains(text(table)));
        assert_eq!(named.count(), 2, "whole file and footer of {}: {out}", table.display());
    }
    assert!(err.contains("the store has 4 problems"), "{err}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "damages a store behind the engine's back")]
fn a_store_without_its_current_is_no_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    output(&["put", text(&path), "a", "1"]);
    std::fs::remove_file(path.join("CURRENT")).unwrap();
    let found = sieve(&["verify", text(&path)]);
    let out = String::from_utf8_lossy(&found.stdout);
    assert_eq!(found.status.code(), Some(1), "{out}");
    assert!(out.contains("CURRENT is missing"), "{out}");
    let letters = folder.path().join("letters");
    std::fs::create_dir(&letters).unwrap();
    std::fs::write(letters.join("letter.txt"), "dear").unwrap();
    assert!(failure(&["verify", text(&letters)]).contains("there is no store"));
    assert_eq!(letters.read_dir().unwrap().count(), 1, "it has made something");
    let letter = letters.join("letter.txt");
    for args in [&["verify", text(&letter)][..], &["put", text(&letter), "a", "b"]] {
        assert!(failure(args).contains("is no folder"), "{args:?}");
    }
}

#[test]
fn a_lookup_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = text(&path);
    assert!(failure(&["explain", store, "a"]).contains("there is no store"));
    output(&["put", store, "c", "3"]);
    output(&["put", store, "a", "12"]);
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
fn a_store_that_is_open_elsewhere_can_be_watched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = text(&path);
    assert!(failure(&["stats", store, "--watch"]).contains("there is no store"));
    output(&["put", store, "a", "1"]);
    assert!(failure(&["stats", store, "--watch"]).contains("Options::stats_file_interval"));

    let plain = sievedb::Db::open(&path).unwrap();
    assert!(failure(&["stats", store]).contains("sieve: "), "it is locked");
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
        // The first look is at the figures so far, each other one at what came since.
        let watched = sieve(&["stats", store, "--watch=1", "--count", "2"]);
        let now = sieve(&["stats", store]);
        stop.store(true, Relaxed);
        let (out, err) =
            (String::from_utf8_lossy(&watched.stdout), String::from_utf8_lossy(&watched.stderr));
        let (first, second) = out.split_once("\nin the last ").expect("two looks");
        assert!(first.starts_with("since the store was opened:\ntime: "), "{out}{err}");
        for part in ["writes: ", "background: ", "physical reads of table files"] {
            assert!(first.contains(part), "{part}: {out}");
        }
        let lookups = second.split_once("lookups: ").expect("they are counted").1;
        let lookups: u64 = lookups.split(',').next().unwrap().parse().unwrap();
        assert!((1..=1_100).contains(&lookups), "in about a second: {out}");
        assert!(now.status.success(), "by the file: {now:?}");
        let now = String::from_utf8_lossy(&now.stdout);
        assert!(
            now.starts_with("The store is open: these are the figures of its file STATS"),
            "{now}"
        );
    });
    drop(db);
    // Without a count: it ends by itself.
    let last = output(&["stats", "--watch=1", store]);
    // The folder is not taken for the seconds.
    assert_eq!(
        output(&["stats", "--watch", store, "--count", "1"]),
        last.split("\n\n").next().unwrap().to_owned() + "\n"
    );
    assert!(last.contains("lookups: "), "a closed store shows its last figures: {last}");
    assert!(last.ends_with("\nthe store is closed\n"), "{last}");
}

#[test]
fn statistics_name_levels_and_totals() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = text(&path);
    for key in ["a", "b", "c"] {
        output(&["put", store, key, "1"]);
    }
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
    for part in ["lookups", "table_reads", "memory", "background", "open_for"] {
        assert!(stats[part].is_object(), "{part}: {stats}");
    }
    assert_eq!(stats["lookups"]["lookups"], 0, "{stats}");
    let text = output(&["stats", store]);
    assert!(text.lines().any(|line| line.starts_with("total")), "{text}");
    assert!(text.contains("keyspace \"default\": 3 runs, 3 tables, "), "{text}");
    assert!(text.contains(" KiB") && !text.contains(" bytes"), "{text}");
}

#[test]
fn every_kind_of_file_is_dumped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
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
fn filters_spare_what_they_promise() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["bench", "misses", "--keys-count", "30000", "--lookups", "5000", "--json"];
    let run = sieve(&[&args[..], &["--report", text(folder.path())]].concat());
    let (report, err) =
        (String::from_utf8(run.stdout).unwrap(), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && err.contains("wrote ") && err.contains("misses.html"), "{err}");
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["faults"], Value::Array(Vec::new()));
    for store in report["stores"].as_array().unwrap() {
        let number = |field: &str| store[field].as_u64().unwrap();
        assert!(number("sorted_runs") >= 3, "{store}");
        assert!(number("cache_bytes") * 10 <= number("table_bytes"), "{store}");
        assert_eq!(store["levels"][0]["level"], 0, "{store}");
    }
    assert_eq!(report["cases"].as_array().unwrap().len(), 20);
    let requests = |case: usize| {
        let case = &report["cases"][case];
        assert_eq!(case["asked"], "absent keys");
        case["data_block_requests_per_lookup"].as_f64().unwrap()
    };
    assert!(requests(0) >= 1.0, "filters off: {}", requests(0));
    assert!(requests(1) <= 0.04, "uniform Bloom: {}", requests(1));
    assert!(requests(2) <= 0.01, "uniform Ribbon: {}", requests(2));
    assert!(requests(3) <= 0.006, "Auto: {}", requests(3));
    let sweep = report["sweep"].as_array().unwrap();
    let percents: Vec<_> = sweep.iter().map(|step| step["percent"].as_u64().unwrap()).collect();
    assert_eq!(percents, [100, 50, 25, 10]);
    assert!(!report["threads"].as_array().unwrap().is_empty());
    let page = std::fs::read_to_string(folder.path().join("misses.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 4, "{page}");
    // Nothing is fetched from elsewhere: the only address is the name of the format.
    assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
}

#[test]
fn a_broken_promise_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("stores");
    let args = ["bench", "misses", "--keys-count", "1000", "--lookups", "100", "--rounds", "1"];
    let args = [&args[..], &["--miss-cpu-ns-max", "0.1", "--dir", text(&kept)]].concat();
    let output = sieve(&args);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(out.contains("WRONG: uniform Bloom, all in cache, absent keys: "), "{out}{err}");
    assert!(out.contains("WRONG: Auto, all in cache, absent keys: "), "{out}{err}");
    // One for each kind of filters.
    assert!(out.contains("WRONG: uniform Ribbon, all in cache, absent keys: "), "{out}{err}");
    assert!(err.contains("3 results are wrong"), "{out}{err}");
    assert!(out.ends_with("3 results (WRONG, above): not all that is promised holds.\n"), "{out}");
    assert!(out.contains(" 1 thread: "), "{out}");
    // The stores are kept, and not overwritten.
    says_no(&["get", text(&kept.join("off")), "a"]);
    assert!(failure(&args).contains("kept by an earlier run"));
}

#[test]
fn a_file_of_keys_must_have_enough_lines() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let error = failure(&["bench", "misses", "--keys", text(&keys)]);
    assert!(error.contains("cannot read"), "{error}");
}

#[test]
fn openings_are_measured_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["bench", "open", "--tables", "12", "--keys-per-table", "200", "--rounds", "2"];
    let args = [&args[..], &["--log-entries", "10", "--json", "--dir", text(folder.path())]];
    for kind in ["filled", "found"] {
        let report: Value = serde_json::from_str(&output(&args.concat())).unwrap();
        assert!(report["tables"].as_u64().unwrap() >= 12, "{kind}: {report}");
        let cases = report["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 2, "{kind}");
        for case in cases {
            let ms = |part: &str| case[part].as_f64().unwrap();
            let parts = ["log_ms", "replayed_ms", "tables_ms", "filters_ms", "manifest_ms"];
            let sum: f64 = parts.into_iter().map(ms).sum();
            assert!(ms("replayed_ms") > 0.0 && sum <= ms("open_ms"), "{kind}: {case}");
        }
    }
}

#[test]
fn read_modes_are_measured() {
    let args = ["bench", "reads", "--keys-count", "10000", "--lookups", "100", "--rounds", "1"];
    let modes = ["--read-mode", "pread,map"];
    for kind in [&[][..], &["--uncompressed"]] {
        let table = output(&[&args[..], &modes, kind].concat());
        assert!(table.contains(" pread |") && table.contains(" map |"), "{table}");
        let report = output(&[&args[..], &modes, kind, &["--json"]].concat());
        let report: Value = serde_json::from_str(&report).unwrap();
        for mode in report["modes"].as_array().unwrap() {
            assert!(mode[1]["warm_scan_ns"].as_f64().unwrap() > 0.0, "{report}");
        }
    }
    let refused = sieve(&["bench", "reads", "--read-mode", "mmap"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("none of pread, map, direct"));
}
