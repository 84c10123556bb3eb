//! `--key-file` and `sieve reencrypt`.

use super::{failure, output, text};

#[test]
#[expect(clippy::disallowed_methods, reason = "a key file is no file of a store")]
fn commands_open_encrypted_stores_with_a_key_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (store, set, new) = (path("store"), path("set"), path("new"));
    let [store, set, new] = [text(&store), text(&set), text(&new)];
    let (old, both) = (path("old"), path("both"));
    let line = |id: u8| format!("{id} {}\n", format!("{id:02x}").repeat(32));
    std::fs::write(&old, line(1)).unwrap();
    std::fs::write(&both, line(1) + &line(2)).unwrap();
    let [old, both] = [text(&old), text(&both)];
    output(&["--key-file", old, "put", store, "key", "value"]);
    assert!(failure(&["get", store, "key"]).contains("pass its keys with --key-file"));
    assert_eq!(output(&["get", store, "key", "--key-file", both]), "value\n");
    let done = output(&["reencrypt", store, "--key-file", both]);
    assert!(done.ends_with("keys in use: 2\n"), "{done}");
    assert!(failure(&["get", store, "key", "--key-file", old]).contains("needs the root key 2"));
    output(&["verify", store, "--key-file", both]);
    output(&["backup", "create", store, set, "--key-file", both]);
    output(&["backup", "restore", set, new, "--key-file", both]);
    assert_eq!(output(&["scan", new, "--key-file", both]), "key\tvalue\n");
    let current = format!("{store}/CURRENT");
    assert!(output(&["dump", &current, "--key-file", both]).contains("manifest_bytes"));
    std::fs::write(path("bad"), "1 00\n").unwrap();
    let bad = path("bad");
    assert!(failure(&["get", store, "key", "--key-file", text(&bad)]).contains("is not a key"));
}
