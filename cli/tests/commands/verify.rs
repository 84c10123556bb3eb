//! `sieve verify`.

use sievedb::{Compression, KeyspaceOptions, Options};

use super::{failure, flush, output, sieve, sieve_into_closed_pipe, text};

#[test]
#[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a file")]
fn verify_lists_every_problem() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    assert!(failure(&["verify", store]).contains("there is no store"));
    for number in 0..2 {
        output(&["put", store, &format!("key{number}"), "value"]);
        flush(&path);
    }
    output(&["put", store, "key2", "value"]);
    let report = output(&["verify", store]);
    assert!(report.contains("0 problems"), "{report}");
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
        assert_eq!(named.count(), 1, "the footer of {}: {out}", table.display());
    }
    assert!(out.contains("; keyspace \"default\", keys from \"key0\" to \"key0\""), "{out}");
    assert!(err.contains("the store has 2 problems"), "{err}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a store")]
fn store_without_current_is_not_an_empty_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    output(&["put", text(&path), "a", "1"]);
    std::fs::remove_file(path.join("CURRENT")).unwrap();
    let found = sieve(&["verify", text(&path)]);
    let out = String::from_utf8_lossy(&found.stdout);
    assert_eq!(found.status.code(), Some(1), "{out}");
    assert!(out.contains("CURRENT is missing") && !out.contains("byte 0"), "{out}");
    let error = failure(&["get", text(&path), "a"]);
    assert!(error.contains("CURRENT cannot be used\n"), "{error}");
    let letters = dir.path().join("letters");
    std::fs::create_dir(&letters).unwrap();
    std::fs::write(letters.join("letter.txt"), "dear").unwrap();
    assert!(failure(&["verify", text(&letters)]).contains("there is no store"));
    assert_eq!(letters.read_dir().unwrap().count(), 1, "a file was created");
    let letter = letters.join("letter.txt");
    for args in [&["verify", text(&letter)][..], &["put", text(&letter), "a", "b"]] {
        assert!(failure(args).contains("not a directory"), "{args:?}");
    }
}

/// The report is longer than the buffer of standard output.
#[test]
#[expect(clippy::disallowed_methods, reason = "damages a file behind the engine's back")]
fn a_closed_pipe_does_not_hide_problems() {
    let dir = tempfile::tempdir().unwrap();
    let [store, new] = ["store", "new"].map(|name| dir.path().join(name));
    let keyspace = KeyspaceOptions::new().compression(Compression::None);
    let db = Options::new().worker_threads(0).keyspace(keyspace).open(&store).unwrap();
    for key in 0..10_000 {
        db.insert(format!("{key:05}"), [b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    drop(db);
    let mut files = store.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let table = files.find(|path| path.extension().is_some_and(|it| it == "sst")).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[..1_000_000].iter_mut().skip(2_000).step_by(5_000).for_each(|byte| *byte ^= 1);
    std::fs::write(&table, bytes).unwrap();

    let report = sieve(&["verify", text(&store)]).stdout;
    assert!(report.len() > 10_000, "{}", String::from_utf8_lossy(&report));
    let repair = ["repair", text(&store), "--into", text(&new)];
    for args in [&["verify", text(&store)][..], &repair] {
        let (code, errors) = sieve_into_closed_pipe(args, 0);
        assert_eq!(code, Some(1), "{args:?}: {errors}");
    }
}
