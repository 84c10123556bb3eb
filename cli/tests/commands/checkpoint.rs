//! `sieve checkpoint`.

use super::{failure, flush, output, text};

#[test]
fn checkpoint_is_a_store_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let [from, to] = [text(&store), text(&copy)];
    assert!(failure(&["checkpoint", from, to]).contains("there is no store"));
    output(&["put", from, "flushed", "1"]);
    flush(&store);
    output(&["put", from, "logged", "2"]);
    let report = output(&["checkpoint", from, to]);
    assert!(report.starts_with("1 file linked, 1 copied ("), "{report}");
    output(&["rm", from, "flushed"]);
    output(&["compact", from]);
    output(&["put", to, "new", "3"]);
    assert_eq!(output(&["scan", to]), "flushed\t1\nlogged\t2\nnew\t3\n");
    assert_eq!(output(&["scan", from]), "logged\t2\n");
    output(&["verify", to]);
    assert!(failure(&["checkpoint", from, to]).contains("is not empty"));
    let inside = store.join("copy");
    assert!(failure(&["checkpoint", from, text(&inside)]).contains("must not contain"));
}
