//! Damage to tables: every byte, every length, swapped blocks.

use std::collections::BTreeSet;

use bytes::Bytes;
use sievedb::{Error, ReadMode};

use super::{
    cases::Cases,
    reading::Verdict,
    sample::{Sample, disk, open},
    script::{End, sample, sibling},
};

/// Numbers of cases by when the damage was detected.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) refused: usize,
    errors: usize,
    harmless: usize,
    /// Starts of blocks that a read reported as damaged.
    block_starts: BTreeSet<u64>,
}

impl Tally {
    /// Runs a case with other bytes in the file `name`: all results must be correct.
    pub(super) fn run(&mut self, cases: &mut Cases, sample: &Sample, damage: Damage<'_>) {
        let Damage { name, bytes, mode, what } = damage;
        cases.run(&format!("{name}: {what}, {mode:?}"), || {
            let files = sample.with(name, bytes);
            let verdict = Verdict::of(sample, &files, mode, &[sample.last_state()])?;
            verdict.check_errors(sample, &[name])?;
            match verdict {
                Verdict::Refused(_) => self.refused += 1,
                Verdict::Read { errors, .. } if errors.is_empty() => self.harmless += 1,
                Verdict::Read { errors, .. } => {
                    self.errors += 1;
                    let starts = errors.iter().filter_map(|error| match error {
                        Error::Corrupt { offset, .. } => Some(offset),
                        _ => None,
                    });
                    self.block_starts.extend(starts);
                }
            }
            Ok(())
        });
    }
}

/// Other bytes of a file.
pub(super) struct Damage<'a> {
    pub(super) name: &'a str,
    pub(super) bytes: Bytes,
    pub(super) mode: ReadMode,
    pub(super) what: String,
}

/// Returns `bytes` with the bits `flip` of one byte flipped.
pub(super) fn flipped(bytes: &[u8], at: usize, flip: u8) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= flip;
    bytes.into()
}

#[test]
fn flipped_byte_of_a_table_is_an_error_or_harmless() {
    let sample = sample(End::Closed);
    let (mut cases, mut tally, mut total) = (Cases::new(), Tally::default(), 0);
    for name in sample.names("", ".sst") {
        let good = &sample.files[&name];
        total += good.len();
        for at in 0..good.len() {
            for (mode, flip) in [(ReadMode::Pread, 1 << (at % 8)), (ReadMode::Map, 0xff)] {
                let what = format!("byte {at} ^ {flip:#04x}");
                let bytes = flipped(good, at, flip);
                tally.run(&mut cases, &sample, Damage { name: &name, bytes, mode, what });
            }
        }
    }
    println!("tables, bytes: {} cases, {tally:?}", cases.count());
    // Data blocks are checked when they are read, the rest at open. Only filters may be lost, and
    // only padding before them is unchecked.
    assert!(tally.refused > 1000 && tally.errors > 1000 && tally.harmless > 100, "{tally:?}");
    let tables = sample.names("", ".sst").len();
    assert!(
        tally.harmless <= 2 * tables * (192 + 63 + 78 + 63),
        "damage is passed over: {tally:?}"
    );
    cases.finish(2 * total);
}

#[test]
fn table_of_wrong_length_is_refused() {
    let sample = sample(End::Closed);
    let (mut cases, mut tally, mut total) = (Cases::new(), Tally::default(), 0);
    for name in sample.names("", ".sst") {
        let good = &sample.files[&name];
        total += good.len() + 3;
        for bytes in 0..good.len() {
            let mode = [ReadMode::Pread, ReadMode::Map, ReadMode::Direct][bytes % 3];
            let (bytes, what) = (good.slice(..bytes), format!("cut to {bytes}"));
            tally.run(&mut cases, &sample, Damage { name: &name, bytes, mode, what });
        }
        for more in [1, 64, 4096] {
            let bytes = [good, &vec![0; more][..]].concat().into();
            let (mode, what) = (ReadMode::Pread, format!("{more} bytes longer"));
            tally.run(&mut cases, &sample, Damage { name: &name, bytes, mode, what });
        }
    }
    println!("tables, lengths: {} cases, {tally:?}", cases.count());
    assert_eq!(tally.refused, cases.count(), "{tally:?}");
    cases.finish(total);
}

/// Returns the ranges of the data blocks of a table: the offsets in errors after damage to their
/// first byte.
fn data_blocks(sample: &Sample, name: &str) -> Vec<std::ops::Range<usize>> {
    let good = &sample.files[name];
    let (mut cases, mut tally) = (Cases::new(), Tally::default());
    for at in (0..good.len()).step_by(8) {
        let (bytes, mode) = (flipped(good, at, 0xff), ReadMode::Pread);
        tally.run(&mut cases, sample, Damage { name, bytes, mode, what: String::new() });
    }
    cases.finish(1);
    let starts: Vec<_> = tally.block_starts.iter().map(|&start| start as usize).collect();
    starts.array_windows().map(|&[start, end]| start..end).collect()
}

#[test]
fn copied_block_is_an_error() {
    let (sample, sibling) = (sample(End::Closed), sibling(End::Closed));
    let mut blocks = Vec::new();
    for name in sample.names("", ".sst") {
        let places = data_blocks(&sample, &name);
        blocks.extend(places.into_iter().map(|place| (name.clone(), place)));
    }
    let (mut cases, mut tally) = (Cases::new(), Tally::default());
    for (to, place) in &blocks {
        for (from, other) in blocks.iter().filter(|(_, other)| other.len() == place.len()) {
            for (store, source) in [("this", &sample), ("another", &sibling)] {
                let moved = &source.files[from][other.clone()];
                if *moved == sample.files[to][place.clone()] {
                    continue;
                }
                let mut bytes = sample.files[to].to_vec();
                bytes[place.clone()].copy_from_slice(moved);
                let what = format!("{place:?} from {other:?} of {from} of {store} store");
                let (bytes, mode) = (bytes.into(), ReadMode::Pread);
                tally.run(&mut cases, &sample, Damage { name: to, bytes, mode, what });
            }
        }
    }
    println!("tables, blocks moved: {} cases, {tally:?}", cases.count());
    assert_eq!(tally.errors, cases.count(), "{tally:?}");
    cases.finish(40);
}

#[test]
fn swapped_blocks_are_an_error() {
    let sample = sample(End::Closed);
    let (mut cases, mut tally) = (Cases::new(), Tally::default());
    for name in sample.names("", ".sst") {
        let blocks = data_blocks(&sample, &name);
        let pairs = blocks.iter().flat_map(|a| blocks.iter().map(move |b| (a, b)));
        for (a, b) in pairs.filter(|(a, b)| a.start < b.start && a.len() == b.len()) {
            let mut bytes = sample.files[&name].to_vec();
            let moved = bytes[b.clone()].to_vec();
            bytes.copy_within(a.clone(), b.start);
            bytes[a.clone()].copy_from_slice(&moved);
            let (bytes, mode, what) = (bytes.into(), ReadMode::Pread, format!("{a:?} and {b:?}"));
            tally.run(&mut cases, &sample, Damage { name: &name, bytes, mode, what });
        }
    }
    println!("tables, blocks swapped: {} cases, {tally:?}", cases.count());
    assert_eq!(tally.errors, cases.count(), "{tally:?}");
    cases.finish(6);
}

#[test]
fn compaction_of_damaged_tables_loses_nothing() {
    let sample = sample(End::Closed);
    let (mut cases, mut refused, mut done) = (Cases::new(), 0, 0);
    for name in sample.names("", ".sst") {
        let good = &sample.files[&name];
        for at in (0..good.len()).step_by(5) {
            cases.run(&format!("{name}: byte {at}, compacted"), || {
                let files = sample.with(&name, flipped(good, at, 0xff));
                let fs = disk(&files);
                let Ok(db) = open(fs.clone(), ReadMode::Pread) else { return Ok(()) };
                let compacted = db.compact();
                drop(db);
                let last = [sample.last_state()];
                match compacted {
                    Ok(()) => done += 1,
                    Err(Error::Corrupt { .. } | Error::ReadOnly { .. }) => refused += 1,
                    Err(error) => return Err(format!("the wrong error: {error:?}")),
                }
                let found =
                    Verdict::of(&sample, &super::sample::files(&fs), ReadMode::Pread, &last)?;
                found.check_errors(&sample, &[&name])?;
                match (compacted, found) {
                    // The damage to the filter is removed with its table.
                    (Ok(()), Verdict::Read { errors, .. }) if errors.is_empty() => Ok(()),
                    (Err(_), Verdict::Read { errors, .. }) if !errors.is_empty() => Ok(()),
                    _ => Err("damage has come or gone".to_owned()),
                }
            });
        }
    }
    println!("tables, compacted: {} cases, {refused} refused, {done} done", cases.count());
    assert!(refused > 500 && done > 50, "{refused} refused, {done} done");
    cases.finish(1500);
}
