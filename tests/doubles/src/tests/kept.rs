//! Data that a disk in a file keeps and loses when it is opened again.

#![expect(clippy::disallowed_methods, reason = "the disk is in a file of the machine")]

use std::fs;

use super::crash::{run_on, show};
use crate::{Loss, MemoryFs};

#[test]
fn reopening_keeps_synced_and_loses_unsynced() {
    const OLD: &str = "create a; append a one; sync a; syncdir; ";
    const SWAP: &str = "create b; append b old; sync b; syncdir; \
                        create t; append t new; rename t b";
    #[rustfmt::skip]
    let cases: &[(&str, &str, &str, &str)] = &[
        ("nothing synced",         "create a; append a one", "", ""),
        ("data synced, entry not", "create a; append a one; sync a", "", ""),
        ("entry synced, data not", "create a; append a one; syncdir", "", "a="),
        ("unsynced append",        OLD, "append a two", "a=one"),
        ("synced append",          OLD, "append a two; sync a; append a x", "a=onetwo"),
        ("unsynced reservation",   OLD, "reserve a 5", "a=one"),
        ("synced reservation",     OLD, "reserve a 5; sync a; append a two", "a=one.."),
        ("filled reservation",     OLD, "reserve a 9; sync a; append a two; sync a", "a=onetwo..."),
        ("unsynced entry",         OLD, "create b; append b x; sync b", "a=one"),
        ("unsynced rename",        SWAP, "; sync t", "b=old"),
        ("synced rename",          SWAP, "; sync t; syncdir", "b=new"),
        ("rename without data",    SWAP, "; syncdir", "b="),
        ("unsynced unlink",        OLD, "unlink a", "a=one"),
        ("synced unlink",          OLD, "unlink a; syncdir", ""),
        ("append after an unlink", OLD, "unlink a; append a two; sync a", "a=onetwo"),
        ("unsynced link",          OLD, "link a b", "a=one"),
        ("synced link",            OLD, "link a b; append a two; syncdir; sync a", "a=onetwo b=onetwo"),
        ("directory not synced",   "mkdir x; create x/a; append x/a one; sync x/a; syncdir x", "", ""),
        ("directory synced",       "mkdir x; create x/a; append x/a one; sync x/a; syncdir x", "; syncdir", "x/a=one"),
        ("entry in another directory", OLD, "mkdir x; syncdir; link a x/b; syncdir x", "a=one x/b=one"),
    ];
    for (name, start, rest, want) in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let fs = run_on(
            MemoryFs::kept_in(&path).unwrap(),
            format!("{start}{rest}").trim_end_matches("; "),
        );
        let crashed = fs.crash(fs.operations(), &Loss::Everything);
        drop(fs);
        let fs = MemoryFs::kept_in(&path).unwrap();
        assert_eq!((&*show(&fs), &*show(&crashed)), (*want, *want), "{name}");
        assert_eq!(fs.operations(), 0, "{name}");
        let again = MemoryFs::kept_in(&path).unwrap();
        assert_eq!(show(&again), *want, "{name}: it is durable");
    }
}

#[test]
fn reopened_disk_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let fs = || MemoryFs::kept_in(&path).unwrap();
    run_on(
        fs(),
        "create a; append a one; sync a; link a b; syncdir; mkdir x; create x/lost; syncdir x",
    );
    run_on(fs(), "create c; append c two; sync c; mkdir x; create x/c; syncdir x; syncdir");
    assert_eq!(show(&fs()), "a=one b=one c=two x/c=");
    run_on(fs(), "unlink a; unlink c; syncdir");
    assert_eq!(show(&fs()), "b=one x/c=");
}

/// A kill may tear the write of a record.
#[test]
fn torn_sync_is_lost_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let fs = MemoryFs::kept_in(&path).unwrap();
    run_on(
        fs,
        "create a; append a one; sync a; create b; syncdir; append a two; append a x; sync a",
    );
    let whole = fs::read(&path).unwrap();
    let mut shown = Vec::new();
    for bytes in 0..=whole.len() {
        fs::write(&path, &whole[..bytes]).unwrap();
        shown.push(show(&MemoryFs::kept_in(&path).unwrap()));
    }
    shown.dedup();
    assert_eq!(shown, ["", "a=one b=", "a=onetwox b="]);
}
