//! Calls fail exactly when injected.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use sievedb::fs::Fs;

use crate::{Call, Failure, Fault, FaultFs, InjectedPanic, Loss, MemoryFs, Times};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn new() -> (Arc<MemoryFs>, FaultFs) {
    let memory = Arc::new(MemoryFs::new());
    (memory.clone(), FaultFs::new(memory))
}

/// Makes each call of the traits once, until one fails.
fn every_call(fs: &FaultFs) -> io::Result<()> {
    let [a, b, c] = ["x/a", "x/b", "x/c"].map(Path::new);
    let dir = Path::new("x");
    fs.create_dir(dir)?;
    fs.list(dir)?;
    fs.exists(a)?;
    let file = fs.create(a)?;
    file.append(b"one")?;
    file.sync_data()?;
    fs.sync_dir(dir)?;
    fs.open_append(a)?;
    let reader = fs.open(a)?;
    reader.len()?;
    reader.read_at(&mut [0], 0)?;
    reader.map()?;
    fs.link(a, b)?;
    fs.rename(a, c)?;
    fs.unlink(b)?;
    fs.lock(b)?;
    file.reserve(9)?;
    Ok(())
}

const CALLS: [Call; 17] = [
    Call::CreateDir,
    Call::List,
    Call::Exists,
    Call::Create,
    Call::Append,
    Call::SyncData,
    Call::SyncDir,
    Call::OpenAppend,
    Call::Open,
    Call::Len,
    Call::ReadAt,
    Call::Map,
    Call::Link,
    Call::Rename,
    Call::Unlink,
    Call::Lock,
    Call::Reserve,
];

#[test]
fn each_call_can_fail_without_effect() {
    let (_, fs) = new();
    every_call(&fs).unwrap();
    assert_eq!((fs.calls(), fs.failures(), fs.first_failure()), (CALLS.len(), 0, None));
    for (number, call) in CALLS.into_iter().enumerate() {
        for error in [EIO, ENOSPC] {
            // The operations before the failing call, without it.
            let (memory, fs) = new();
            fs.fail_at(number, error, Times::ForGood);
            let found = every_call(&fs).unwrap_err();
            assert_eq!(found.raw_os_error(), Some(error), "{call:?}");
            let failure = fs.first_failure().unwrap();
            assert_eq!((failure.number, failure.call), (number, call));

            let (whole, other) = new();
            every_call(&other).unwrap();
            let (journal, whole) = (memory.journal(), whole.journal());
            assert_eq!(journal, whole[..journal.len()], "{call:?}");
            let changing = CALLS[..number].iter().filter(|call| changes(**call)).count();
            assert_eq!(journal.len(), changing, "{call:?}");
        }
    }
}

fn changes(call: Call) -> bool {
    use Call::{Exists, Len, List, Map, Open, OpenAppend, ReadAt};
    !matches!(call, List | Exists | Open | OpenAppend | Len | ReadAt | Map)
}

#[test]
fn faults_are_one_time_or_permanent() {
    let cases = [
        ("once", Times::Once, 2, [true, true, false, true, true]),
        ("for good", Times::ForGood, 2, [true, true, false, false, false]),
        ("at once", Times::Once, 0, [false, true, true, true, true]),
        ("too late", Times::Once, 5, [true; 5]),
    ];
    for (name, times, call, want) in cases {
        let (_, fs) = new();
        fs.fail_at(call, EIO, times);
        assert_eq!([(); 5].map(|()| fs.list(Path::new("")).is_ok()), want, "{name}");
        fs.heal();
        assert!(fs.list(Path::new("")).is_ok(), "{name}: healed");
    }
}

#[test]
fn faults_match_calls_and_names() {
    let (_, fs) = new();
    let files = ["a.log", "a.sst"].map(|path| fs.create(Path::new(path)).unwrap());
    fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&Call::GROWING).suffix(".log").after(1));
    let results = [0, 1, 0, 1, 0].map(|file| files[file].append(b"x").is_ok());
    assert_eq!(results, [true, true, false, true, false]);
    files[0].sync_data().unwrap();
    let moved = fs.rename(Path::new("a.sst"), Path::new("b.log"));
    assert_eq!(moved.unwrap_err().kind(), io::ErrorKind::StorageFull, "the new name counts");
    assert_eq!(fs.failures(), 3);
    let first = Failure {
        number: 4,
        call: Call::Append,
        path: "a.log".into(),
        raw_os_error: Some(ENOSPC),
        carried_out: false,
    };
    assert_eq!(fs.first_failure(), Some(first.clone()));
    assert_eq!(first.to_string(), "call 4 failed: Append a.log (os error 28)");
}

#[test]
fn two_faults_occur_in_order() {
    let (_, fs) = new();
    fs.fail_at(0, EIO, Times::Once);
    fs.fail_at(0, ENOSPC, Times::Once);
    let errors = [(); 3].map(|()| fs.list(Path::new("")).err().and_then(|e| e.raw_os_error()));
    assert_eq!(errors, [Some(EIO), Some(ENOSPC), None]);
}

#[test]
fn failed_append_may_write_a_prefix() {
    for (written, want) in [(0, ""), (2, "on"), (9, "one")] {
        let (memory, fs) = new();
        let file = fs.create(Path::new("a")).unwrap();
        fs.inject(Fault::new(ENOSPC, Times::Once).written_bytes(written));
        file.append(b"one").unwrap_err();
        assert_eq!(memory.read("a").unwrap(), want, "{written} bytes");
    }
}

/// A call that fails with effect leaves the same state as a successful one.
#[test]
fn each_call_can_fail_with_effect() {
    for (number, call) in CALLS.into_iter().enumerate() {
        for panics in [false, true] {
            let (memory, fs) = new();
            let fault =
                if panics { Fault::panic(Times::Once) } else { Fault::new(EIO, Times::Once) };
            fs.inject(fault.after(number).carried_out());
            let ended = catch_unwind(AssertUnwindSafe(|| every_call(&fs)));
            match ended {
                Ok(result) => {
                    assert!(!panics, "{call:?}");
                    assert_eq!(result.unwrap_err().raw_os_error(), Some(EIO), "{call:?}");
                }
                Err(payload) => assert!(panics && payload.is::<InjectedPanic>(), "{call:?}"),
            }
            let failure = fs.first_failure().unwrap();
            assert_eq!((failure.number, failure.carried_out), (number, true));
            assert_eq!(failure.raw_os_error, (!panics).then_some(EIO));
            let changing = CALLS[..=number].iter().filter(|call| changes(**call)).count();
            assert_eq!(memory.journal().len(), changing, "{call:?}");
        }
    }
}

#[test]
fn sync_after_a_sync_failed_with_effect_is_durable() {
    let (memory, fs) = new();
    let file = fs.create(Path::new("a")).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    file.append(b"one").unwrap();
    fs.inject(Fault::new(EIO, Times::Once).calls(&Call::SYNCS).carried_out());
    file.sync_data().unwrap_err();
    file.append(b"two").unwrap();
    file.sync_data().unwrap();
    let crashed = memory.crash(memory.operations(), &Loss::Everything);
    assert_eq!(crashed.read("a").unwrap(), "onetwo");
}

#[test]
fn sync_after_a_failed_sync_loses_data() {
    let (memory, fs) = new();
    let file = fs.create(Path::new("a")).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    file.append(b"one").unwrap();
    fs.inject(Fault::new(EIO, Times::Once).calls(&Call::SYNCS));
    file.sync_data().unwrap_err();
    file.append(b"t").unwrap();
    file.sync_data().unwrap();
    let again = fs.open_append(Path::new("a")).unwrap();
    again.append(b"wo").unwrap();
    again.sync_data().unwrap();
    assert_eq!(memory.read("a").unwrap(), "onetwo", "readers see it all");
    let crashed = memory.crash(memory.operations(), &Loss::Everything);
    assert_eq!(crashed.read("a").unwrap(), "", "{:?}", memory.journal());
}

#[test]
fn failed_directory_sync_can_be_retried() {
    let (memory, fs) = new();
    fs.create(Path::new("a")).unwrap();
    fs.inject(Fault::new(EIO, Times::Once).calls(&[Call::SyncDir]));
    fs.sync_dir(Path::new("")).unwrap_err();
    assert_eq!(memory.unsynced(memory.operations()), 1);
    fs.sync_dir(Path::new("")).unwrap();
    assert_eq!(memory.unsynced(memory.operations()), 0);
}
