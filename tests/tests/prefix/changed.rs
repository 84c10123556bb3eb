//! Filters of another extractor are not probed, nor are damaged ones.

use std::sync::{Arc, Mutex};

use sievedb::{Db, Event, EventListener, PrefixExtractor, PrefixFunction};
use sievedb_doubles::MemoryFs;

use super::{STORE_DIR, TwoParts, collect, keyspace, open, options, sum};

fn key(number: u32) -> String {
    format!("{:04}/{:02}/{number:06}", number % 97, number % 13)
}

/// Checks that every key up to `keys` is found by each of its prefixes.
fn check(db: &sievedb::Keyspace, keys: u32, name: &str) {
    for number in (0..keys).step_by(7) {
        let key = key(number);
        for bytes in [1, 3, 4, 5, 6, 8, 9, 14] {
            let found = db.prefix(&key[..bytes]).any(|entry| entry.unwrap().0 == key);
            assert!(found, "{name}: {bytes} bytes do not find {key}");
        }
        assert_eq!(collect(db.range(&*key..=&*key)).len(), 1, "{name}: {key}");
    }
}

/// Fifty of them fill a table.
fn write(db: &sievedb::Keyspace, keys: std::ops::Range<u32>) {
    for number in keys {
        db.insert(key(number), [7; 40]).unwrap();
    }
    db.flush().unwrap();
}

/// Fixed 4, fixed 6, none, separator, a function, fixed 4 again: tables of all of them coexist.
#[test]
fn changed_extractor_loses_no_key() {
    use PrefixExtractor::{Custom, FixedLength, Separator};
    let fs = Arc::new(MemoryFs::new());
    let extractors = [
        Some(FixedLength(4)),
        Some(FixedLength(6)),
        None,
        Some(Separator(b'/')),
        Some(Custom(Arc::new(TwoParts))),
        Some(FixedLength(4)),
    ];
    let (mut keys, mut had_filters) = (0, false);
    for extractor in extractors {
        let name = extractor.as_ref().map_or("none".to_owned(), PrefixExtractor::name);
        let has_filters = extractor.is_some();
        let db = open(&fs, extractor);
        check(db.default_keyspace(), keys, &name);
        let unusable = sum(&db, |level| level.prefix_unusable);
        // Until the job has rebuilt them; without an extractor it drops them.
        assert_eq!(unusable > 0, has_filters && had_filters, "{name}: {unusable} not probed");
        had_filters = has_filters;
        assert_eq!(db.stats().tables_with_unusable_filters, 0, "{name}: they are not damaged");
        write(db.default_keyspace(), keys..keys + 50);
        keys += 50;
        check(db.default_keyspace(), keys, &name);
    }
    let db = open(&fs, Some(Separator(b'/')));
    db.compact().unwrap();
    let before = sum(&db, |level| level.prefix_unusable);
    check(db.default_keyspace(), keys, "compacted");
    assert_eq!(
        sum(&db, |level| level.prefix_unusable),
        before,
        "a rewritten table has the new one"
    );
    assert!(sum(&db, |level| level.prefix_probes) > 0);
}

/// A function must keep the prefixes of its name; one with another name may differ.
#[derive(Debug)]
struct Renamed;

impl PrefixFunction for Renamed {
    fn name(&self) -> &str {
        "renamed"
    }

    fn prefix_length(&self, key: &[u8]) -> Option<usize> {
        (key.len() > 2).then_some(2)
    }

    fn determines_prefix(&self, start: &[u8]) -> bool {
        start.len() > 2
    }
}

#[test]
fn missing_prefix_function_may_match_and_is_counted() {
    let fs = Arc::new(MemoryFs::new());
    let mut keys = 0;
    let mut round = |functions: &[Arc<dyn PrefixFunction>], is_missing: bool| {
        let with = functions.iter().cloned();
        let db = with.fold(options(&fs), |options, function| options.prefix_function(function));
        let db = db.open(STORE_DIR).unwrap();
        let extractor = PrefixExtractor::Custom(Arc::new(TwoParts));
        // An existing keyspace keeps its options; only the options of the open register the
        // function.
        let users = db.keyspace_with("users", &keyspace(Some(extractor))).unwrap();
        check(&users, keys, "after opening");
        write(&users, keys..keys + 300);
        keys += 300;
        users.compact().unwrap();
        write(&users, keys..keys + 50);
        keys += 50;
        check(&users, keys, "after writing");
        let [asked, unusable] =
            [sum(&db, |level| level.prefix_probes), sum(&db, |level| level.prefix_unusable)];
        assert_eq!((asked == 0, unusable > 0), (is_missing, is_missing), "{asked}, {unusable}");
    };
    round(&[Arc::new(TwoParts)], false);
    round(&[Arc::new(Renamed)], true);
    // Tables written meanwhile have no prefix filter.
    round(&[Arc::new(Renamed), Arc::new(TwoParts)], false);
}

/// Counts the reported filters.
#[derive(Debug, Default)]
struct Reports(Mutex<usize>);

impl EventListener for Reports {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::FilterUnusable { .. }) {
            *self.0.lock().unwrap() += 1;
        }
    }
}

/// Returns the range of the prefix filter of a table, from its footer.
fn prefix_filter(table: &[u8]) -> std::ops::Range<usize> {
    let number = |at: usize| u64::from_le_bytes(table[at..at + 8].try_into().unwrap()) as usize;
    let tail = table.len() - 64;
    let list = number(tail)..tail;
    let entry = list.step_by(18).find(|&at| table[at] == 4).expect("it has one");
    number(entry + 2)..number(entry + 2) + number(entry + 10)
}

#[test]
fn damaged_prefix_filter_may_match() {
    let fs = Arc::new(MemoryFs::new());
    let extractor = PrefixExtractor::FixedLength(4);
    let db = open(&fs, Some(extractor.clone()));
    write(db.default_keyspace(), 0..50);
    assert_eq!(db.stats().keyspaces[0].tables, 1);
    drop(db);
    let contents = fs.contents();
    let path = contents.keys().find(|path| path.ends_with(".sst")).expect("there is a table");
    let whole = contents[path].to_vec();
    let filter = prefix_filter(&whole);
    for at in filter {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs.replace(&**path, bytes).unwrap();
        let reports = Arc::new(Reports::default());
        let options = options(&fs).keyspace(keyspace(Some(extractor.clone())));
        let db: Db = options.listener(reports.clone()).open(STORE_DIR).unwrap();
        assert_eq!(
            (db.stats().tables_with_unusable_filters, *reports.0.lock().unwrap()),
            (1, 1),
            "byte {at}"
        );
        if at % 8 == 0 {
            check(db.default_keyspace(), 50, "damaged");
        }
        assert_eq!(db.prefix("0010/99").count(), 0);
        assert!(sum(&db, |level| level.prefix_unusable) > 0, "byte {at}");
        assert_eq!(sum(&db, |level| level.prefix_probes), 0, "byte {at}");
        // Lookups use the point filter.
        assert_eq!(sum(&db, |level| level.filter_unusable), 0, "byte {at}");
    }
}
