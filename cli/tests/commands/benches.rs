//! `sieve bench`.

use serde_json::Value;

use super::{exits_with_1_silently, failure, output, sieve, text};

#[test]
fn bench_misses_promises_hold() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "misses", "--keys-count", "30000", "--lookups", "5000", "--json"];
    let run = sieve(&[&args[..], &["--report", text(dir.path())]].concat());
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
        assert_eq!(case["key_kind"], "absent keys");
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
    let page = std::fs::read_to_string(dir.path().join("misses.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 4, "{page}");
    // The page is self-contained: its only address is the SVG namespace.
    assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
}

/// A store that another run filled is named, instead of a wrong result.
#[test]
fn reads_refuse_the_store_of_another_run() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "reads", "--lookups", "10", "--rounds", "1", "--read-mode", "pread"];
    let run = |last: &[&str]| {
        let end = sieve(&[&args[..], &["--dir", text(dir.path())], last].concat());
        (end.status.code(), String::from_utf8_lossy(&end.stderr).into_owned())
    };
    assert_eq!(run(&["--keys-count", "20000"]).0, Some(0));
    for other in [&["--keys-count", "10000"][..], &["--keys-count", "20000", "--seed", "2"]] {
        let (code, errors) = run(other);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains("already exists, perhaps from an earlier run"), "{errors}");
    }
    assert_eq!(run(&["--keys-count", "20000"]).0, Some(0));
}

#[cfg(unix)]
#[test]
fn interrupt_removes_the_temporary_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut sieve = std::process::Command::new(env!("CARGO_BIN_EXE_sieve"))
        .args(["bench", "open", "--tables", "100000"])
        .env("TMPDIR", dir.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let has_store = || {
        let mut entries = dir.path().read_dir().unwrap();
        entries.any(|entry| entry.unwrap().path().join("open/CURRENT").exists())
    };
    while !has_store() {
        assert_eq!(sieve.try_wait().unwrap(), None, "it takes hours");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let sent = std::process::Command::new("kill").args(["-INT", &sieve.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let end = sieve.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&end.stderr);
    assert_eq!(end.status.code(), Some(130), "{errors}");
    assert!(errors.contains("the temporary directory was removed"), "{errors}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn broken_promise_fails_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("stores");
    let args = ["bench", "misses", "--keys-count", "1000", "--lookups", "100", "--rounds", "1"];
    let args = [&args[..], &["--miss-cpu-ns-max", "0.1", "--dir", text(&kept)]].concat();
    let output = sieve(&args);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(out.contains("WRONG: uniform Bloom, all in cache, absent keys: "), "{out}{err}");
    assert!(out.contains("WRONG: Auto, all in cache, absent keys: "), "{out}{err}");
    // One fault for each kind of filters.
    assert!(out.contains("WRONG: uniform Ribbon, all in cache, absent keys: "), "{out}{err}");
    assert!(err.contains("3 results are wrong"), "{out}{err}");
    assert!(out.ends_with("3 results wrong, listed above.\n"), "{out}");
    assert!(out.contains(" 1 thread: "), "{out}");
    // The stores are kept, and a second run does not overwrite them.
    exits_with_1_silently(&["get", text(&kept.join("off")), "a"]);
    assert!(failure(&args).contains("perhaps from an earlier run"));
}

#[test]
fn missing_key_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    let error = failure(&["bench", "misses", "--keys", text(&keys)]);
    assert!(error.contains("cannot read"), "{error}");
}

#[test]
fn bench_open_reports_parts() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "open", "--tables", "12", "--keys-per-table", "200", "--rounds", "2"];
    let args = [&args[..], &["--log-entries", "10", "--json", "--dir", text(dir.path())]];
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
fn bench_reads_reports_each_mode() {
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
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not one of pread, map, direct"));
}
