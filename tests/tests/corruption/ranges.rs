//! Damage to range tombstones of tables, and to the options of keyspaces that arrived with them:
//! default TTL and compaction filter.

use std::{ops::Range, sync::Arc};

use sievedb::{Db, ReadMode};
use sievedb_format::{Encode as _, range_tombstone::RangeTombstone};
use sievedb_tests::settings::from_env;

use super::{
    cases::Cases,
    forge::{Part, footer_part, log_parts},
    forged::{self, check_error},
    reading::read_all,
    sample::{Sample, disk, open},
    script::{End, range_deletes},
    tables::{self, Damage, flipped},
};

/// Kind of the block of range tombstones in the footer.
const RANGE_TOMBSTONES: u8 = 6;

/// Returns the tables with range tombstones, and the place of the block.
fn blocks(sample: &Sample) -> Vec<(String, Part)> {
    let part =
        |name: String| Some((name.clone(), footer_part(&sample.files[&name], RANGE_TOMBSTONES)?));
    let found: Vec<_> = sample.names("", ".sst").into_iter().filter_map(part).collect();
    assert_eq!(found.len(), 2, "tables with range tombstones");
    found
}

#[test]
fn damaged_block_of_range_tombstones_is_an_error() {
    let sample = range_deletes(End::Closed);
    let (mut cases, mut tally) = (Cases::new(), tables::Tally::default());
    let mut total = 0;
    for (name, part) in blocks(&sample) {
        let good = &sample.files[&name];
        for at in part.place() {
            for (mode, flip) in [(ReadMode::Pread, 1 << (at % 8)), (ReadMode::Map, 0xff)] {
                let (bytes, what) = (flipped(good, at, flip), format!("byte {at} ^ {flip:#04x}"));
                tally.run(&mut cases, &sample, Damage { name: &name, bytes, mode, what });
                total += 1;
            }
            // The block is truncated, and what lies behind it moves up.
            let bytes = [&good[..at], &good[part.place().end..]].concat().into();
            let (mode, what) = (ReadMode::Pread, format!("truncated to {at}"));
            tally.run(&mut cases, &sample, Damage { name: &name, bytes, mode, what });
            total += 1;
        }
    }
    println!("range tombstones, bytes: {} cases, {tally:?}", cases.count());
    assert_eq!(tally.refused, total, "they are read when the store is opened");
    cases.finish(140);
}

#[test]
fn forged_range_tombstones_neither_panic_nor_allocate_much() {
    let sample = range_deletes(End::Closed);
    let (mut cases, mut tally) = (Cases::new(), forged::Tally::default());
    for (name, part) in blocks(&sample) {
        tally.forge(&mut cases, &sample, &name, &[part]);
    }
    println!("range tombstones, forged: {} cases, {tally:?}", cases.count());
    assert!(tally.refused > 100 && tally.opened > 50, "{tally:?}");
    cases.finish(190);
}

/// Sealed manifests, and with `SIEVE_LONG=1` logs, whose bytes were changed: options with a default
/// TTL and a compaction filter, range deletes, values that expire.
#[test]
fn forged_options_and_range_deletes_neither_panic_nor_allocate_much() {
    let sample = range_deletes(End::PowerCut);
    let (mut cases, mut tally) = (Cases::new(), forged::Tally::default());
    let mut names = sample.names("MANIFEST-", "");
    if from_env("SIEVE_LONG", 0) > 0 {
        names.extend(sample.names("", ".log"));
    }
    for name in names {
        let parts = log_parts(&sample.files[&name]);
        tally.forge(&mut cases, &sample, &name, &parts);
    }
    println!("options and range deletes, forged: {} cases, {tally:?}", cases.count());
    assert!(tally.refused > 500 && tally.opened > 50, "{tally:?}");
    cases.finish(1500);
}

/// A range tombstone to encode: start, end, sequence number.
type Raw<'a> = (&'a [u8], &'a [u8], u64);
type Owned = (Vec<u8>, Vec<u8>, u64);

fn encoded(count: u64, list: &[Raw<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(count);
    for (start, end, sequence) in list {
        out.put_prefixed(start);
        out.put_prefixed(end);
        out.put_varint(*sequence);
    }
    out
}

/// Replaces the content of the block by `content` of the same length, and seals it.
fn with_content(good: &[u8], place: &Range<usize>, content: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    let part = footer_part(&bytes, RANGE_TOMBSTONES).expect("it was there");
    assert_eq!(part.place(), *place);
    assert_eq!(content.len() + 5, place.len(), "a block of the same length");
    bytes[place.start..place.start + content.len()].copy_from_slice(content);
    part.seal(&mut bytes);
    bytes
}

#[test]
fn lists_of_range_tombstones_that_no_writer_makes_are_refused() {
    let sample = range_deletes(End::Closed);
    let mut cases = Cases::new();
    for (name, part) in blocks(&sample) {
        let (good, place) = (&sample.files[&name], part.place());
        let list = stored(&sample, &name);
        let [one, two, ..] = &list[..] else { panic!("two range tombstones: {list:?}") };
        let raw = |it: &'_ RangeTombstone| (it.start.to_vec(), it.end.to_vec(), it.sequence);
        let (one, two) = (raw(one), raw(two));
        let all: Vec<_> = list.iter().map(raw).collect();
        let with = |change: &dyn Fn(&mut Vec<Owned>)| {
            let mut list = all.clone();
            change(&mut list);
            let list: Vec<Raw<'_>> = list.iter().map(|(a, b, c)| (&**a, &**b, *c)).collect();
            encoded(list.len() as u64, &list)
        };
        let lists = [
            ("as they are", with(&|_| {}), true),
            ("unsorted", with(&|list| list.swap(0, 1)), false),
            ("twice the same", with(&|list| list[1] = one.clone()), false),
            ("end equals start", with(&|list| list[0].1 = list[0].0.clone()), false),
            (
                "end below start",
                with(&|list| {
                    let (start, end, _) = &mut list[0];
                    std::mem::swap(start, end);
                }),
                false,
            ),
            ("sequence number 0", with(&|list| list[1].2 = 0), false),
            ("sequence number beyond the table's", with(&|list| list[1].2 += 40), false),
            ("sequence number below the table's", with(&|list| list[0].2 = 1), false),
            (
                "a count too large",
                {
                    let mut bytes = with(&|_| {});
                    bytes[0] += 1;
                    bytes
                },
                false,
            ),
            (
                "a count too small",
                {
                    let mut bytes = with(&|_| {});
                    bytes[0] -= 1;
                    bytes
                },
                false,
            ),
            (
                "a count of 0",
                {
                    let mut bytes = with(&|_| {});
                    bytes[0] = 0;
                    bytes
                },
                false,
            ),
            (
                "a huge count",
                {
                    let mut bytes = with(&|_| {});
                    bytes[..9].fill(0xff);
                    bytes[9] = 1;
                    bytes
                },
                false,
            ),
        ];
        assert!(one.0.len() == two.0.len() && one.1.len() == one.0.len(), "of equal lengths");
        for (what, content, is_good) in lists {
            cases.run(&format!("{name}: {what}"), || {
                let bytes = with_content(good, &place, &content);
                let fs = disk(&sample.with(&name, bytes));
                match open(Arc::clone(&fs), ReadMode::Pread) {
                    Ok(db) if is_good => {
                        read_all(&sample, &db).map(drop).map_err(|it| it.to_string())
                    }
                    Ok(_) => Err("it was opened".to_owned()),
                    Err(error) if is_good => Err(error.to_string()),
                    Err(error) => check_error(&error),
                }
            });
        }
    }
    cases.finish(24);
}

/// Returns the range tombstones of a table.
fn stored(sample: &Sample, name: &str) -> Vec<RangeTombstone> {
    let part = footer_part(&sample.files[name], RANGE_TOMBSTONES).expect("the table has some");
    let place = part.place();
    let content = &sample.files[name][place.start..place.end - 5];
    let list = sievedb_format::range_tombstone::RangeTombstones::decode(content);
    list.expect("a good table").iter().cloned().collect()
}

/// The sample has what the tests above damage.
#[test]
fn sample_of_range_deletes_has_every_feature() {
    for end in [End::PowerCut, End::Closed] {
        let sample = range_deletes(end);
        let db: Db = open(disk(&sample.files), ReadMode::Pread).unwrap();
        let users = db.open_keyspace("users").unwrap();
        assert!(users.options().get_default_ttl().is_some());
        assert_eq!(users.options().get_compaction_filter_name(), Some("remove gone"));
        blocks(&sample);
    }
}
