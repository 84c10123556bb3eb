//! Files that were changed together with their checksums, so that decoders see every field with all
//! kinds of values. The results may be wrong, but a read must not panic, hang or allocate much.

use bytes::Bytes;
use sievedb::{Error, ReadMode};
use sievedb_tests::settings::from_env;

use super::{
    cases::Cases,
    forge::{Part, log_parts, table_parts},
    reading::read_all,
    sample::{STORE_DIR, Sample, disk, open},
    script::{End, rebuilt_filters, sample},
};

/// Numbers of forgeries by result.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) refused: usize,
    pub(super) opened: usize,
}

impl Tally {
    /// Runs a case with other bytes in the file `name`: opens the store, reads, merges, reopens.
    fn run(&mut self, cases: &mut Cases, sample: &Sample, name: &str, what: &str, bytes: Bytes) {
        cases.run(&format!("{name}: {what}"), || {
            let fs = disk(&sample.with(name, bytes));
            let db = match open(fs.clone(), ReadMode::Pread) {
                Ok(db) => db,
                Err(error) => {
                    self.refused += 1;
                    return check_error(&error);
                }
            };
            self.opened += 1;
            read_all(sample, &db).map(drop).or_else(|error| check_error(&error))?;
            db.compact().or_else(|error| check_error(&error))?;
            db.insert("written later", "").or_else(|error| check_error(&error))?;
            drop(db);
            match open(fs, ReadMode::Pread) {
                Ok(db) => read_all(sample, &db).map(drop).or_else(|error| check_error(&error)),
                Err(error) => check_error(&error),
            }
        });
    }

    /// Changes each part at each byte, and updates its checksum: short parts in four ways, long
    /// ones in two, or with `SIEVE_LONG=1` in four.
    pub(super) fn forge(&mut self, cases: &mut Cases, sample: &Sample, name: &str, parts: &[Part]) {
        let good = &sample.files[name];
        let is_long = from_env("SIEVE_LONG", 0) == 1;
        for part in parts {
            let end = part.place().end;
            let in_all_ways = is_long || part.place().len() <= LONG_PART_BYTES;
            for at in part.place() {
                // The largest byte, a flipped bit and, where they fit, the largest 64-bit varint
                // and the largest sequence number.
                let flipped = [good[at] ^ 1 << (at % 8)];
                let ways: [&[u8]; 4] = [&[0xff], &VARINT_MAX, &flipped, &SEQUENCE_MAX];
                let chosen = if in_all_ways { &ways } else { &ways[at % 2 * 2..][..2] };
                for forged in chosen {
                    let forged = &forged[..forged.len().min(end - at)];
                    let mut bytes = good.to_vec();
                    bytes[at..at + forged.len()].copy_from_slice(forged);
                    part.seal(&mut bytes);
                    let what = format!("{part:?} at {at} = {forged:02x?}");
                    self.run(cases, sample, name, &what, bytes.into());
                }
            }
        }
    }
}

const LONG_PART_BYTES: usize = 64;
const VARINT_MAX: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
const SEQUENCE_MAX: [u8; 8] = ((1_u64 << 56) - 1).to_le_bytes();

pub(super) fn check_error(error: &Error) -> Result<(), String> {
    let cause = match error {
        Error::ReadOnly { cause } => cause,
        error => error,
    };
    match cause {
        // A forged record may have the last sequence number.
        Error::SequenceNumbersExhausted => Ok(()),
        // Forged options may require a compression that this build lacks.
        Error::Corrupt { path, .. }
        | Error::Io { path, .. }
        | Error::NeedsFeature { path, .. }
        | Error::NewerRelease { path, .. }
            if path.starts_with(STORE_DIR) =>
        {
            Ok(())
        }
        _ => Err(format!("the wrong error: {error:?}")),
    }
}

#[test]
fn forged_logs_neither_panic_nor_allocate_much() {
    let sample = sample(End::PowerCut);
    let (mut cases, mut tally) = (Cases::new(), Tally::default());
    for name in sample.names("", ".log") {
        tally.forge(&mut cases, &sample, &name, &log_parts(&sample.files[&name]));
    }
    println!("logs, forged: {} cases, {tally:?}", cases.count());
    assert!(tally.refused > 500 && tally.opened > 500, "{tally:?}");
    cases.finish(8000);
}

#[test]
fn forged_manifests_neither_panic_nor_allocate_much() {
    let samples = [
        ("power cut", sample(End::PowerCut)),
        ("closed", sample(End::Closed)),
        ("rebuilt filters", rebuilt_filters(End::PowerCut)),
    ];
    for (title, sample) in samples {
        let (mut cases, mut tally) = (Cases::new(), Tally::default());
        let name = sample.names("MANIFEST-", "").pop().expect("a manifest");
        tally.forge(&mut cases, &sample, &name, &log_parts(&sample.files[&name]));
        println!("manifest, forged, {title}: {} cases, {tally:?}", cases.count());
        assert!(tally.refused > 500 && tally.opened > 50, "{tally:?}");
        cases.finish(2000);
    }
}

#[test]
fn forged_tables_neither_panic_nor_allocate_much() {
    let sample = sample(End::Closed);
    let (mut cases, mut tally) = (Cases::new(), Tally::default());
    for name in sample.names("", ".sst") {
        tally.forge(&mut cases, &sample, &name, &table_parts(&sample.files[&name]));
    }
    println!("tables, forged: {} cases, {tally:?}", cases.count());
    assert!(tally.refused > 500 && tally.opened > 500, "{tally:?}");
    cases.finish(8000);
}
