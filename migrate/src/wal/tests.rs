//! Logs and batches of any bytes lead to an error or to records, never to a panic.

#![expect(clippy::disallowed_methods, reason = "prepares files for the reader")]

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::{LogReader, Replay, batch::Batch};
use crate::{checksum::masked_crc32c, file::File, manifest::Manifest};

/// Returns a fragment with a valid checksum. `log` is set for recyclable fragments.
fn fragment(kind: u8, log: Option<u32>, bytes: &[u8]) -> Vec<u8> {
    let log = log.map(u32::to_le_bytes).map_or(Vec::new(), Vec::from);
    let covered = [&[kind], &log[..], bytes].concat();
    let mut fragment = masked_crc32c(&[&covered]).to_le_bytes().to_vec();
    fragment.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    fragment.extend_from_slice(&covered);
    fragment
}

/// Returns the records of a log, the offset of an incomplete one, or the text of the error.
fn read(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, Option<u64>), String> {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("000007.log");
    std::fs::write(&path, bytes).unwrap();
    let mut reader = LogReader::new(File::open(path).unwrap(), 7);
    let mut records = Vec::new();
    while let Some(record) = reader.next().map_err(|error| error.to_string())? {
        records.push(record.bytes);
    }
    Ok((records, reader.torn()))
}

#[test]
fn fragments_become_records() {
    let log = [
        fragment(1, None, b"one"),
        fragment(2, None, b"t"),
        fragment(3, None, b"w"),
        fragment(4, None, b"o"),
        fragment(200, None, b"ignorable"),
        fragment(1, None, b""),
    ];
    let all = log.concat();
    let want = vec![b"one".to_vec(), b"two".to_vec(), Vec::new()];
    assert_eq!(read(&all), Ok((want, None)));
    // The last record is incomplete from its first fragment on.
    let cut = log[..3].concat();
    assert_eq!(read(&cut), Ok((vec![b"one".to_vec()], Some(log[0].len() as u64))));
    assert_eq!(read(&all[..4]), Ok((vec![], Some(0))));
}

#[test]
fn recycled_log_ends_before_records_of_the_earlier_log() {
    let log = [fragment(5, Some(7), b"new"), fragment(5, Some(3), b"old")].concat();
    assert_eq!(read(&log), Ok((vec![b"new".to_vec()], None)));
    let mut garbage = fragment(5, Some(7), b"new");
    garbage.extend_from_slice(&[0xab; 40]);
    assert_eq!(read(&garbage).unwrap().0, vec![b"new".to_vec()]);
}

/// Returns the record of a batch with this sequence number and count.
fn batch(sequence: u64, count: u32, operations: &[u8]) -> Vec<u8> {
    [&sequence.to_le_bytes()[..], &count.to_le_bytes(), operations].concat()
}

/// Replays logs 7 and 8. Log 7 ends with an incomplete record.
fn replay(seventh: &[u8], eighth: &[u8]) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let manifest = Manifest::default();
    let mut replay = Replay::new(&manifest);
    let torn = [fragment(1, None, seventh), vec![1, 2, 3]].concat();
    for (number, log) in [(7, torn), (8, fragment(1, None, eighth))] {
        let path = directory.path().join(format!("{number:06}.log"));
        std::fs::write(&path, log).unwrap();
        replay.log(&path, number).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[test]
fn no_batch_may_be_missing_behind_an_incomplete_record() {
    let put = b"\x01\x01k\x01v";
    assert_eq!(replay(&batch(5, 1, put), &batch(6, 1, put)), Ok(()));
    let refused = replay(&batch(5, 1, put), &batch(7, 1, put)).unwrap_err();
    assert!(refused.contains("a later log has newer data"), "{refused}");
    // The writes of a transaction take no sequence numbers before its commit.
    let prepare = [b"\x09", &put[..], b"\x0a\x01t"].concat();
    assert_eq!(replay(&batch(5, 1, &prepare), &batch(5, 1, put)), Ok(()));
    assert_eq!(replay(&batch(5, 1, &prepare), &batch(5, 0, b"\x0b\x01t")), Ok(()));
}

#[test]
fn a_record_may_end_close_to_the_end_of_a_block() {
    for (kind, log, header) in [(1, None, 7), (5, Some(7), 11)] {
        for left in 0..header {
            let first = vec![b'a'; (32 << 10) - header - left];
            let padding = vec![0; left];
            let second = fragment(kind, log, b"second");
            let all = [fragment(kind, log, &first), padding, second].concat();
            assert_eq!(read(&all), Ok((vec![first, b"second".to_vec()], None)), "{left} left");
        }
    }
}

#[test]
fn wrong_sequences_of_fragments_are_refused() {
    let refused = |fragments: &[Vec<u8>]| read(&fragments.concat()).unwrap_err();
    assert!(refused(&[fragment(3, None, b"a")]).contains("a record has no start"));
    let twice = [fragment(2, None, b"a"), fragment(1, None, b"b")];
    assert!(refused(&twice).contains("a record starts within another"));
    assert!(refused(&[fragment(10, None, b"a")]).contains("user-defined timestamps"));
    assert!(refused(&[fragment(42, None, b"a")]).contains("log record of type 42"));
    let compressed = [fragment(9, None, &[4, 0, 0, 0]), fragment(1, None, b"a")];
    assert!(refused(&compressed).contains("log compressed by Lz4"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_fragments(
        fragments in prop::collection::vec(
            (0_u8..12, prop::option::of(0_u32..9), prop::collection::vec(any::<u8>(), 0..40)),
            0..8,
        ),
        cut in 0_usize..20,
    ) {
        let fragments = fragments.iter().map(|(kind, log, bytes)| fragment(*kind, *log, bytes));
        let mut log = fragments.collect::<Vec<_>>().concat();
        log.truncate(log.len().saturating_sub(cut));
        if let Ok((records, torn)) = read(&log) {
            prop_assert!(records.len() <= 8);
            prop_assert!(torn.is_none_or(|at| at <= log.len() as u64));
        }
    }

    #[test]
    fn any_batch(bytes in prop::collection::vec(0_u8..32, 0..60)) {
        if let Ok(batch) = Batch::decode(&bytes, Path::new("log"), 0) {
            let _ = batch.operations();
        }
    }
}
