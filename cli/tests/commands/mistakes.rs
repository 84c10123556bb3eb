//! Common mistakes are refused without harm, with a message that contains advice.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
};

use super::{failure, output, sieve, sieve_reading, text, too_large_value};

/// Runs an import. Returns its standard output, standard error and exit code.
fn import(args: &[&str], input: &[u8]) -> (String, String, Option<i32>) {
    let end = sieve_reading(&[&["import"], args].concat(), input);
    let [out, err] = [end.stdout, end.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (out, err, end.status.code())
}

#[test]
fn n16_import_of_keys_keeps_present_values() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    import(&[store], b"a\t1\nb\t2\n");
    let (out, err, code) = import(&[store, "--keys-only"], b"a\nb\nc\n");
    assert_eq!(
        (out.as_str(), code),
        ("imported: 1 entry; 2 present keys kept\n", Some(0)),
        "{err}"
    );
    assert_eq!(output(&["scan", store]), "a\t1\nb\t2\nc\t\n");
    // An entry with a value replaces the present value.
    assert_eq!(import(&[store], b"a\t9\n").0, "imported: 1 entry\n");
    assert_eq!(output(&["get", store, "a"]), "9\n");
}

#[test]
fn n16_blank_line_is_not_an_entry() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    for flags in [&[][..], &["--keys-only"], &["--keys-only", "--hex"]] {
        let (_, err, code) = import(&[&[store], flags].concat(), b"\n");
        assert_eq!(code, Some(2), "{flags:?}");
        assert!(err.contains("line 1 is not an entry: "), "{err}");
    }
    let (_, err, _) = import(&[store, "--keys-only"], b"a\nb\n\nc\n");
    assert!(err.contains("line 3 is not an entry: the line is blank"), "{err}");
    assert_eq!(output(&["scan", store, "--keys-only"]), "a\nb\n", "the lines before it are stored");
    // Runs the command that the message suggests.
    output(&["put", store, "", ""]);
    assert_eq!(output(&["scan", store, "--keys-only"]), "\na\nb\n");
}

#[test]
fn n15_repair_never_writes_into_the_damaged_store() {
    let dir = tempfile::tempdir().unwrap();
    let outer = dir.path().join("outer");
    let store = outer.join("store");
    output(&["put", text(&store), "a", "1"]);
    let link = dir.path().join("link");
    symlink(&store, &link).unwrap();
    let up = dir.path().join("none/../link/./sub");
    let before = files(&outer);
    for (source, dest) in [
        (&store, &store.join("sub")),
        (&store, &store),
        (&store, &outer),
        (&link, &store.join("sub/sub")),
        (&store, &link.join("sub")),
        (&store, &up),
        (&link, &outer),
    ] {
        let errors = failure(&["repair", text(source), "--into", text(dest)]);
        let is_refused = errors.contains("must not contain one another")
            || dest == &outer && errors.contains("contains \"store\"");
        assert!(is_refused, "{errors}");
    }
    assert_eq!(files(&outer), before);
    // A directory whose name starts with that of the store is allowed.
    let beside = outer.join("store-2");
    output(&["repair", text(&store), "--into", text(&beside)]);
    assert_eq!(output(&["get", text(&beside), "a"]), "1\n");
}

#[test]
fn store_is_not_created_among_directories() {
    let dir = tempfile::tempdir().unwrap();
    let (source, set) = (dir.path().join("source"), dir.path().join("set"));
    output(&["put", text(&source), "a", "1"]);
    output(&["backup", "create", text(&source), text(&set)]);
    for (name, is_refused) in [(&b"home"[..], true), (b"\xff", true), (b"lost+found", false)] {
        let store = dir.path().join(format!("store{}", name.len()));
        let foreign = store.join(OsStr::from_bytes(name));
        #[expect(clippy::disallowed_methods, reason = "makes a directory that is not a store")]
        std::fs::create_dir_all(&foreign).unwrap();
        let put = ["put", text(&store), "a", "1"];
        if is_refused {
            let errors = failure(&put);
            assert!(errors.contains("not a store: "), "{errors}");
            let (source, set) = (text(&source), text(&set));
            for command in [
                &["checkpoint", source, text(&store)][..],
                &["repair", source, "--into", text(&store)],
                &["backup", "restore", set, text(&store)],
                &["backup", "replica", set, text(&store)],
            ] {
                let errors = failure(command);
                assert!(errors.contains("not a store: "), "{command:?}: {errors}");
            }
            assert_eq!(store.read_dir().unwrap().count(), 1, "{errors}");
        } else {
            output(&put);
        }
    }
}

/// Returns the paths of all files in `dir`, recursively.
fn files(dir: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        names.push(text(&path).to_owned());
        if path.is_dir() {
            names.extend(files(&path));
        }
    }
    names.sort();
    names
}

#[test]
fn n16_dump_of_a_directory_suggests_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    output(&["put", store, "a", "1"]);
    let errors = failure(&["dump", store]);
    assert!(errors.contains(&format!("{store} is a directory\n")), "{errors}");
    assert!(errors.contains(&format!("name a file in it, such as {store}/CURRENT")), "{errors}");
    output(&["dump", &format!("{store}/CURRENT")]);
}

/// Messages of the engine name its API, which a user of the command line does not have.
#[test]
fn n16_messages_and_help_do_not_name_the_api() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    output(&["put", store, "a", "1"]);
    let db = sievedb::Db::open(&path).unwrap();
    let mut errors = vec![failure(&["verify", store]), failure(&["stats", store])];
    drop(db);
    errors.push(failure(&["get", store, "a", "--keyspace", "none"]));
    errors.push(failure(&["drop", store, "none"]));
    errors.push(failure(&["drop", store, "default"]));
    errors.push(failure(&["put", store, &"k".repeat(70_000), "1"]));
    for error in errors {
        assert!(!error.contains("::") && !error.contains("Options"), "{error}");
    }
    for command in ["put", "get", "import", "stats", "verify", "compact", "repair", "dump"] {
        let help = output(&[command, "--help"]);
        assert!(
            !help.contains("::") && !help.contains("folder") && !help.contains("Folder"),
            "{help}"
        );
    }
}

#[test]
fn n16_put_raises_the_budget_for_a_large_value() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    let value = too_large_value();
    let end = sieve_reading(&["put", store, "a", "-"], &value);
    assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
    assert!(sieve(&["get", store, "a", "--raw"]).stdout == value);
}
