//! A damaged filter may match: every key stays readable, and the damage is counted and reported.

use std::sync::{Arc, Mutex};

use sievedb::{
    Error, Event, EventListener, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Options,
    clock::ManualClock,
};
use sievedb_doubles::MemoryFs;

use super::{
    cases::Cases,
    sample::{Files, STORE_DIR, Sample, disk, files},
    script::one_table,
    tables::flipped,
};

/// Length of a filter line, in bytes.
const LINE_BYTES: usize = 64;
const BITS_PER_KEY: usize = 10;

/// Records the reported filters.
#[derive(Debug, Default)]
struct Reports(Mutex<Vec<(String, u64)>>);

impl EventListener for Reports {
    fn on_event(&self, event: &Event) {
        if let Event::FilterUnusable { keyspace, table_id, reason, .. } = event {
            assert!(!reason.is_empty());
            self.0.lock().unwrap().push((keyspace.clone(), *table_id));
        }
    }
}

/// Reads a store whose table may have a damaged filter. Returns whether it has one.
///
/// # Errors
///
/// A wrong result or counter.
fn check_reads(sample: &Sample, files: &Files) -> Result<bool, String> {
    let reports = Arc::new(Reports::default());
    let options = Options::new().fs(disk(files)).clock(Arc::new(ManualClock::new()));
    // The point filter only: the others would be in memory too.
    let options = options.keyspace(KeyspaceOptions::new());
    let options = options.worker_threads(0).listener(reports.clone());
    let db = match options.open(STORE_DIR) {
        Ok(db) => db,
        // Damage to a required part instead of the filter.
        Err(Error::Corrupt { .. }) => return Ok(false),
        Err(error) => return Err(format!("{error:?}")),
    };
    let reports = std::mem::take(&mut *reports.0.lock().unwrap());
    let is_unusable = db.stats().tables_with_unusable_filters == 1;
    if reports.len() != usize::from(is_unusable) {
        return Err(format!(
            "reports {reports:?}, counts {}",
            db.stats().tables_with_unusable_filters
        ));
    }
    if !is_unusable {
        return Ok(false);
    }
    let [want, _] = sample.history.last().expect("the first state is empty");
    for (key, value) in want {
        if !db.may_contain(key) {
            return Err(format!("{key:?} is ruled out"));
        }
        let found = db.get(key).map_err(|error| format!("{key:?}: {error:?}"))?;
        if found.as_deref() != Some(value) {
            return Err(format!("{key:?} is {found:?}"));
        }
    }
    for key in ["k00x", "k30x"] {
        if !matches!(db.contains_key(key), Ok(false)) || !db.may_contain(key) {
            return Err(format!("{key:?} should be absent, and may match in filters"));
        }
    }
    // `may_contain` is not counted.
    let lookups = want.len() as u64 + 2;
    let (levels, memory) = (db.stats().levels, db.stats().memory);
    let counted: u64 = levels.iter().map(|level| level.filter_unusable).sum();
    if counted != lookups || memory.filter_bytes != 0 {
        return Err(format!("{counted} of {lookups} lookups were counted; {memory:?}"));
    }
    let found = db.get_many(want.keys()).map_err(|error| format!("{error:?}"))?;
    if !found.iter().zip(want).all(|(found, (_, value))| found.as_deref() == Some(&**value)) {
        return Err(format!("many keys at once: {found:?}"));
    }
    let table_id = sample.names("", ".sst")[0].split('.').next().map(str::parse);
    if Ok(reports[0].1) != table_id.expect("a name has a first part") || reports[0].0 != "default" {
        return Err(format!("{reports:?} reports another table"));
    }
    Ok(true)
}

#[test]
fn damaged_filter_hides_no_key_and_is_reported() {
    let sample = one_table();
    let name = sample.names("", ".sst").pop().expect("a table");
    let good = &sample.files[&name];
    assert_eq!(check_reads(&sample, &sample.files), Ok(false), "an undamaged filter");
    for flip in [0x01, 0x80, 0xff] {
        let (mut cases, mut unusable) = (Cases::new(), Vec::new());
        for at in 0..good.len() {
            cases.run(&format!("{name}: byte {at} ^ {flip:#04x}"), || {
                let files = sample.with(&name, flipped(good, at, flip));
                if check_reads(&sample, &files)? {
                    unusable.push(at);
                }
                Ok(())
            });
        }
        println!("filters: {} cases, {} of them in a filter", cases.count(), unusable.len());
        cases.finish(good.len());
        // In the filter block, a flipped byte affects the filter only. The test finds the block
        // without the engine, so that an unchecked filter is noticed.
        let keys = sample.history.last().expect("the first state is empty")[0].len();
        let lines = (keys * BITS_PER_KEY).div_ceil(LINE_BYTES * 8);
        let (start, end) = (unusable[0], unusable[unusable.len() - 1] + 1);
        let trailer_bytes = usize::from(good[end - 5]);
        let place: Vec<_> = (start..start + lines * LINE_BYTES + trailer_bytes).collect();
        assert_eq!(start % LINE_BYTES, 0);
        assert_eq!(unusable, place, "each byte of the lines and the trailer is checked");
    }
}

/// For a range filter: scans read more blocks and count it.
#[test]
fn damaged_range_filter_hides_no_key_and_is_reported() {
    const KEYS: u32 = 200;
    let open = |fs: Arc<MemoryFs>| {
        let keyspace = KeyspaceOptions::new()
            .filter_policy(FilterPolicy::new(FilterPolicyKind::None))
            .range_filter_bits_per_key(16.0);
        let options = Options::new().fs(fs).clock(Arc::new(ManualClock::new()));
        options.worker_threads(0).keyspace(keyspace).open(STORE_DIR)
    };
    let key = |number: u32| number.to_be_bytes();
    let fs = Arc::new(MemoryFs::new());
    let db = open(Arc::clone(&fs)).unwrap();
    (0..KEYS).for_each(|number| db.insert(key(5 * number), "value").unwrap());
    db.compact().unwrap();
    drop(db);
    let good = files(&fs);
    let name = good.keys().find(|name| name.ends_with(".sst")).expect("a table").clone();
    let mut unusable = 0;
    for at in 0..good[&name].len() {
        let mut damaged = good.clone();
        damaged.insert(name.clone(), flipped(&good[&name], at, 0x10));
        // Damage to other parts is covered by other tests.
        let Ok(db) = open(disk(&damaged)) else { continue };
        if db.stats().tables_with_unusable_filters == 0 {
            continue;
        }
        unusable += 1;
        for number in (0..KEYS).map(|number| 5 * number) {
            assert!(db.range(key(number)..=key(number + 3)).next().is_some(), "byte {at}");
            assert!(db.range(key(number + 1)..key(number + 4)).next().is_none(), "byte {at}");
        }
        let stats = db.stats();
        let counted: u64 = stats.levels.iter().map(|level| level.range_unusable).sum();
        assert!(
            counted >= u64::from(KEYS) && stats.memory.filter_bytes == 0,
            "byte {at}: {counted}"
        );
    }
    // Two bytes per key, plus the trailer.
    assert!((400..480).contains(&unusable), "{unusable}");
}
