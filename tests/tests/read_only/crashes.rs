//! After any crash, a read-only open shows the same as a writable one.

use std::sync::Arc;

use sievedb::{Db, Error, Options, clock::ManualClock};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    case::{Case, Cut},
    check::guarded,
    enumerate::{on_two_threads, record, verdict},
    history::Universe,
    model::Model,
    observe::observe,
    rng::mix,
    settings::{STORE_DIR, bounded_options, from_env, seed},
    workload::{WORKLOADS, Workload},
};

/// Minimum number of compared states.
const STATES_MIN: usize = 1_000;

/// A read-only open of each state shows the same, and changes nothing.
///
/// One loss for each operation, chosen by the seed; with `SIEVE_LONG=1` several of each kind.
#[test]
fn read_only_open_after_a_crash_equals_recovery() {
    let seed = seed("crashes and read-only", 1);
    let is_long = from_env("SIEVE_LONG", 0) == 1;
    let results = on_two_threads(WORKLOADS, |workload| {
        guarded(|| compare_all(workload, seed, is_long))
            .map_err(|text| format!("workload {}: {text}", workload.name))
    });
    let states = verdict("crashes and read-only", "states", results);
    assert!(states >= STATES_MIN, "only {states} states");
}

fn compare_all(workload: &Workload, seed: u64, is_long: bool) -> Result<usize, String> {
    let opening = move |disk: Arc<MemoryFs>| bounded_options(disk, seed);
    let recorder = record(workload, &opening).map_err(|violation| violation.to_string())?;
    let original = recorder.disk();
    let keys = recorder.history().keys();
    let mut states = 0;
    for at in 0..=original.operations() {
        let lot = mix(seed ^ mix(at as u64));
        let losses = [
            Loss::Nothing,
            Loss::Everything,
            Loss::Random { seed: lot, torn: true },
            Loss::Random { seed: mix(lot), torn: false },
        ];
        let chosen = if is_long { &losses[..] } else { &losses[lot as usize % 4..][..1] };
        for &loss in chosen {
            states += 1;
            let disk = Arc::new(original.crash(at, &loss));
            compare(&disk, &opening(Arc::clone(&disk)), keys).map_err(|text| {
                let cut = Cut { at, loss };
                let case = Case { workload: workload.name.to_owned(), cut, second: None };
                format!("{case}: {text}\n{}", original.trace(at, &loss))
            })?;
        }
    }
    Ok(states)
}

/// Compares the contents of the store on `disk` in a read-only open, in a follower and in a
/// writable open.
fn compare(disk: &MemoryFs, options: &Options, keys: &Universe) -> Result<(), String> {
    let before = disk.contents();
    let read = |db: &Db| observe(db, keys).map_err(|error| error.to_string());
    let show = |options: Options| match options.open(STORE_DIR) {
        Ok(db) => read(&db),
        // The creation was interrupted: a writable open creates the store.
        Err(Error::NoStore { .. }) => Ok(Model::default()),
        Err(error) => Err(format!("it cannot be read: {error:?}")),
    };
    let seen = show(options.clone().read_only(true))?;
    // A clock of its own: it waits for a writer that is about to create the store.
    let followed = show(options.clone().follow(true).clock(Arc::new(ManualClock::new())))?;
    if disk.operations() > 0 || disk.contents() != before {
        return Err(format!("it has changed: {:?}", disk.journal()));
    }
    let opened = options.clone().open(STORE_DIR);
    let wanted = read(&opened.map_err(|error| format!("it cannot be opened: {error:?}"))?)?;
    if seen != wanted {
        return Err(format!("read-only it shows\n{}", seen.difference(&wanted, 12)));
    }
    if followed != wanted {
        return Err(format!("a follower shows\n{}", followed.difference(&wanted, 12)));
    }
    Ok(())
}
