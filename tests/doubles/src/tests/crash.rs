//! Data that a crash keeps and loses, case by case.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::Path,
    sync::Arc,
};

use sievedb::fs::{AppendFile, Fs};

use crate::{Loss, MemoryFs};

fn run(script: &str) -> MemoryFs {
    run_on(MemoryFs::new(), script)
}

/// Runs a script: calls separated by `;`, with files named as created.
pub(super) fn run_on(fs: MemoryFs, script: &str) -> MemoryFs {
    let mut files: BTreeMap<&str, Arc<dyn AppendFile>> = BTreeMap::new();
    for call in script.split("; ") {
        match call.split(' ').collect::<Vec<_>>()[..] {
            ["mkdir", path] => fs.create_dir(Path::new(path)).unwrap(),
            ["create", path] => drop(files.insert(path, fs.create(Path::new(path)).unwrap())),
            ["append", path, bytes] => files[path].append(bytes.as_bytes()).unwrap(),
            ["reserve", path, file_bytes] => {
                files[path].reserve(file_bytes.parse().unwrap()).unwrap();
            }
            ["sync", path] => files[path].sync_data().unwrap(),
            ["rename", from, to] => fs.rename(Path::new(from), Path::new(to)).unwrap(),
            ["link", from, to] => fs.link(Path::new(from), Path::new(to)).unwrap(),
            ["unlink", path] => fs.unlink(Path::new(path)).unwrap(),
            ["syncdir"] => fs.sync_dir(Path::new("")).unwrap(),
            ["syncdir", path] => fs.sync_dir(Path::new(path)).unwrap(),
            ["settle"] => fs.settle(),
            _ => panic!("unknown call {call:?}"),
        }
    }
    fs
}

/// Returns `path=bytes` for each file, with zeros as dots.
pub(super) fn show(fs: &MemoryFs) -> String {
    let mut shown = String::new();
    for (path, bytes) in fs.contents() {
        let bytes = String::from_utf8(bytes.to_vec()).unwrap().replace('\0', ".");
        write!(shown, "{path}={bytes} ").unwrap();
    }
    shown.trim_end().to_owned()
}

#[test]
fn crash_keeps_synced_and_may_lose_unsynced() {
    use Loss::{Alone, Everything, Nothing};
    const NEW: &str = "create a; append a one";
    const OLD: &str = "create a; append a one; sync a; syncdir; ";
    const SWAP: &str = "create b; append b old; sync b; syncdir; \
                        create t; append t new; rename t b";
    #[rustfmt::skip]
    let cases: &[(&str, &str, &str, Loss, &str)] = &[
        ("a kill takes nothing",         NEW, "", Nothing, "a=one"),
        ("a cut takes all",              NEW, "", Everything, ""),
        ("the entry alone is lost",      NEW, "", Alone(0), ""),
        ("the data alone is lost",       NEW, "", Alone(1), "a="),
        ("data synced, entry not",       NEW, "; sync a", Everything, ""),
        ("entry synced, data not",       NEW, "; syncdir", Everything, "a="),
        ("both synced",                  OLD, "append a two", Everything, "a=one"),
        ("sync before the append",       "create a; sync a; append a one; syncdir", "", Everything, "a="),
        ("directory synced before",         "syncdir; create a; append a one; sync a", "", Everything, ""),
        ("each file for itself",         OLD, "create b; append b x; sync b; append a y; syncdir", Everything, "a=one b=x"),

        ("a hole at the start",          NEW, "; append a two; append a three", Alone(1), "a=...twothree"),
        ("a hole in the middle",         NEW, "; append a two; append a three", Alone(2), "a=one...three"),
        ("a short end",                  NEW, "; append a two; append a three", Alone(3), "a=onetwo"),
        ("a hole behind synced bytes",   OLD, "append a two; append a three", Alone(0), "a=one...three"),

        ("reserved",                     NEW, "; reserve a 5", Nothing, "a=one.."),
        ("reserved, append lost",        NEW, "; reserve a 5", Alone(1), "a=....."),
        ("reservation lost",             NEW, "; reserve a 5", Alone(2), "a=one"),
        ("reservation synced",           OLD, "reserve a 5; sync a", Everything, "a=one.."),
        ("filled",                       OLD, "reserve a 5; sync a; append a two", Nothing, "a=onetwo"),
        ("filled, append lost",          OLD, "reserve a 9; sync a; append a two; append a x", Alone(0), "a=one...x.."),
        ("filled in part, all lost",     OLD, "reserve a 9; sync a; append a two; append a x", Everything, "a=one......"),
        ("less than there is",           OLD, "reserve a 2", Nothing, "a=one"),
        ("more and less",                OLD, "reserve a 6; reserve a 5; sync a; reserve a 8", Everything, "a=one..."),
        ("reserved and settled",         OLD, "reserve a 5; settle; append a t; append a w", Everything, "a=one.."),
        ("settled and filled",           OLD, "reserve a 5; settle; append a t; append a w", Alone(0), "a=one.w"),

        ("rename kept",                  SWAP, "", Nothing, "b=new"),
        ("rename lost",                  SWAP, "", Alone(2), "b=old t=new"),
        ("rename kept, data lost",       SWAP, "", Alone(1), "b="),
        ("rename kept, create lost",     SWAP, "", Alone(0), "b=new"),
        ("rename kept, data synced",     SWAP, "; sync t; syncdir", Everything, "b=new"),
        ("all of a swap lost",           SWAP, "; sync t", Everything, "b=old"),
        ("old name lost again",          SWAP, "; unlink b", Alone(2), "t=new"),

        ("unlink lost",                  OLD, "unlink a", Everything, "a=one"),
        ("unlink kept",                  OLD, "unlink a", Nothing, ""),
        ("unlink synced",                OLD, "unlink a; syncdir", Everything, ""),
        ("name used anew",               OLD, "unlink a; create a; append a two; sync a", Nothing, "a=two"),
        ("anew, unlink lost",            OLD, "unlink a; create a; append a two; sync a", Alone(0), "a=two"),
        ("anew, create lost",            OLD, "unlink a; create a; append a two; sync a", Alone(1), ""),
        ("anew, all lost",               OLD, "unlink a; create a; append a two; sync a", Everything, "a=one"),

        ("link kept",                    OLD, "link a b; append a two", Nothing, "a=onetwo b=onetwo"),
        ("link lost",                    OLD, "link a b; append a two", Everything, "a=one"),
        ("link lost, first name gone",   OLD, "link a b; unlink a", Alone(0), ""),
        ("link kept, first name back",   OLD, "link a b; unlink a", Alone(1), "a=one b=one"),

        ("directory lost with its files",   "mkdir x; create x/a; append x/a one; sync x/a; syncdir x", "", Everything, ""),
        ("directory kept by its parent",    "mkdir x; create x/a; append x/a one; sync x/a; syncdir x", "; syncdir", Everything, "x/a=one"),
        ("parent does not keep files",   "mkdir x; create x/a; syncdir", "", Everything, ""),
        ("outer directory lost",            "mkdir x/y; syncdir x; create x/y/a; syncdir x/y", "", Everything, ""),
        ("outer directory lost alone",      "mkdir x/y; create x/y/a; create b", "", Alone(0), "b="),

        ("settled is durable",           NEW, "; settle; append a two", Everything, "a=one"),
        ("settled, then more",           NEW, "; settle; append a two; append a three", Alone(0), "a=one...three"),
        ("settled without a name",       OLD, "link a b; append a x; unlink a; unlink b; settle; append a y; sync a", Nothing, ""),
    ];
    for (name, start, rest, loss, want) in cases {
        let fs = run(format!("{start}{rest}").trim_end_matches("; "));
        let at = fs.operations();
        let crashed = fs.crash(at, loss);
        assert_eq!(show(&crashed), *want, "{name}: {}", fs.trace(at, loss));
        assert_eq!((crashed.operations(), crashed.unsynced(0)), (0, 0), "{name}");
        let again = crashed.crash(0, &Everything);
        assert_eq!(show(&again), *want, "{name}: what a crash left is durable");
    }
}

#[test]
fn crash_at_each_operation_applies_only_earlier_ones() {
    let fs = run("create a; append a one; sync a; syncdir; append a two; rename a b; syncdir");
    let wants = [
        (0, "", ""),
        (1, "a=", ""),
        (2, "a=one", ""),
        (3, "a=one", ""),
        (4, "a=one", "a=one"),
        (5, "a=onetwo", "a=one"),
        (6, "b=onetwo", "a=one"),
        (7, "b=onetwo", "b=one"),
    ];
    assert_eq!(fs.operations() + 1, wants.len());
    for (at, nothing, everything) in wants {
        assert_eq!(show(&fs.crash(at, &Loss::Nothing)), nothing, "at {at}");
        assert_eq!(show(&fs.crash(at, &Loss::Everything)), everything, "at {at}");
    }
    let unsynced: Vec<_> = (0..=7).map(|at| fs.unsynced(at)).collect();
    assert_eq!(unsynced, [0, 1, 2, 1, 0, 1, 2, 1]);
}

#[test]
fn calls_without_effect_are_not_operations() {
    let fs = run("create a; syncdir; syncdir; sync a; append a one; sync a; sync a; link a b");
    let before = fs.operations();
    fs.rename(Path::new("a"), Path::new("b")).unwrap();
    fs.create(Path::new("a")).unwrap_err();
    fs.create_dir(Path::new("")).unwrap();
    fs.open(Path::new("a")).unwrap();
    assert_eq!((before, fs.operations()), (5, 5), "{:?}", fs.journal());
}

#[test]
fn handles_and_locks_end_with_the_crash() {
    let fs = MemoryFs::new();
    let lock = fs.lock(Path::new("LOCK")).unwrap();
    let file = fs.create(Path::new("a")).unwrap();
    let crashed = fs.copy();
    file.append(b"one").unwrap();
    assert_eq!((show(&fs), show(&crashed)), ("LOCK= a=one".into(), "LOCK= a=".into()));
    crashed.lock(Path::new("LOCK")).unwrap();
    drop(lock);
}

#[test]
fn replaced_bytes_are_durable() {
    let fs = run("create a; append a one");
    let open = fs.open(Path::new("a")).unwrap();
    fs.replace("a", "bad").unwrap();
    fs.replace("b", "new").unwrap();
    assert_eq!(fs.read("a").unwrap(), "bad");
    assert_eq!(open.map().unwrap(), "one");
    assert_eq!(show(&fs.crash(fs.operations(), &Loss::Everything)), "a=bad b=new");
    assert!(fs.replace("x/a", "").is_err());
    assert!(fs.read("c").is_err());
}

#[test]
fn torn_appends_keep_a_prefix_or_sectors() {
    const OLD: usize = 300;
    const NEW: usize = 1500;
    let fs = MemoryFs::new();
    let file = fs.create(Path::new("a")).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    file.append(&[1; OLD]).unwrap();
    file.sync_data().unwrap();
    file.append(&[2; NEW]).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        for torn in [false, true] {
            let loss = Loss::Random { seed, torn };
            let bytes = fs.crash(fs.operations(), &loss).read("a").unwrap();
            assert_eq!(bytes[..OLD], [1; OLD], "seed {seed}: synced bytes stay");
            let new = &bytes[OLD..];
            let written = new.iter().take_while(|byte| **byte == 2).count();
            let outcome = match new.len() {
                0 => "lost",
                NEW if written == NEW => "whole",
                NEW if new.iter().all(|byte| *byte == 0) => "zeros",
                // Ambiguous at the end of a sector.
                len if written == len && !bytes.len().is_multiple_of(512) => "prefix",
                _ => {
                    let sectors = bytes.chunks(512).enumerate();
                    for (number, sector) in sectors {
                        // The first sector starts with synced bytes.
                        let new = if number == 0 { &sector[OLD..] } else { sector };
                        assert!(new.iter().all(|byte| *byte == new[0]), "seed {seed}");
                    }
                    "sectors"
                }
            };
            seen.insert((torn, outcome));
        }
    }
    let all = ["lost", "prefix", "sectors", "whole", "zeros"].map(|outcome| (true, outcome));
    let wants = [(false, "lost"), (false, "whole")].into_iter().chain(all);
    assert_eq!(seen, wants.collect());
}

#[test]
fn trace_lists_lost_operations() {
    let fs = run("mkdir x; syncdir; create x/t; append x/t one; rename x/t x/a; syncdir x; \
                  append x/t two; unlink x/a");
    let want = "\
crash after 7 operations, Alone(1)
    0  create_dir x
    1  sync_dir \"\"
    2  create x/t
    3  append x/t 0..3  kept
    4  rename x/t -> x/a
    5  sync_dir \"x\"
    6  append x/t 3..6  LOST
";
    assert_eq!(fs.trace(7, &Loss::Alone(1)), want);
    let last = fs.journal().pop().unwrap();
    assert_eq!(last.to_string(), "unlink x/a");
}

#[test]
#[should_panic(expected = "only 1 operations are unsynced after 1")]
fn loss_of_a_missing_operation_is_refused() {
    let _ = run("create a").crash(1, &Loss::Alone(1));
}

#[test]
fn random_numbers_depend_on_the_seed_and_continue_after_a_crash() {
    let numbers = |fs: &MemoryFs| [(); 3].map(|()| fs.random_u64().unwrap());
    let fs = MemoryFs::with_seed(7);
    let first = numbers(&fs);
    assert_eq!(first, numbers(&MemoryFs::with_seed(7)));
    assert_eq!(numbers(&MemoryFs::new()), numbers(&MemoryFs::with_seed(0)));
    let after_crash = numbers(&fs.crash(fs.operations(), &Loss::Nothing));
    let others = [after_crash, numbers(&MemoryFs::new())];
    assert!(others.as_flattened().iter().all(|number| !first.contains(number)), "{others:?}");
}
