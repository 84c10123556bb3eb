//! Written records are read back; other bytes are not.

use std::{
    io,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use sievedb_format::{Corruption, FileHeader, FileKind, checksum::crc32};

use super::record::FRAGMENT_BYTES_MAX;
use super::{
    Next, Payload, PendingRecord, Position, Reader, RecordType, Start, Writer,
    reader::scan::Scan,
    record::{RECORD_HEADER_BYTES, RecordHeader, record_bytes},
    transform::Transform,
    writer::RESERVED_BYTES,
};
use crate::{
    Error,
    fs::{Call, Fault, FaultFs, Fs, MemoryFs, Operation, ReadFile, Times},
    tests::{EIO, ENOSPC, Random, corrupt_at, pending, with_file},
};

mod sparse;

const NAME: &str = "000007.log";
const ID: u64 = 7;
const HEADER: FileHeader = FileHeader::of_records(FileKind::Log, 1, ID, 0x5ec7_e700_5ec7_e700);
const NO_MARK: Position = Position { file_id: 0, offset: 0 };
const START: Start = Start { manifest: Position { file_id: 1, offset: 99 }, previous: None };

fn create(fs: &dyn Fs) -> Writer {
    Writer::create(fs, PathBuf::from(NAME), &HEADER, &START, &[], NO_MARK).unwrap()
}

fn open(fs: &dyn Fs) -> Result<Reader, Error> {
    let mut reader = Reader::new(fs.open(NAME.as_ref()).unwrap(), PathBuf::from(NAME), ID)?;
    // Without a header no record passes.
    let _ = reader.read_header()?;
    Ok(reader)
}

/// Sequence and payload of each full record.
type Records = Vec<(u64, Bytes)>;

/// Returns all records, and the reason why they end.
fn read(fs: &dyn Fs) -> Result<(Records, Option<Corruption>), Error> {
    let mut reader = open(fs)?;
    reader.check_header(&HEADER)?;
    let mut records = Vec::new();
    loop {
        match reader.next()? {
            Next::Record(record) if record.record_type == RecordType::Full => {
                records.push((record.sequence, record.payload));
            }
            Next::Record(_) => {}
            Next::End(reason) => return Ok((records, reason)),
        }
    }
}

fn payload(random: &mut Random, bytes: usize) -> Bytes {
    (0..bytes).map(|_| random.next() as u8).collect()
}

#[test]
fn records_return_and_a_group_is_one_append() {
    let fs = MemoryFs::new();
    let mut writer = create(&fs);
    let before = fs.operations();
    writer.append(&[pending(1, "one"), pending(2, ""), pending(3, vec![7; 100])], NO_MARK).unwrap();
    assert_eq!(fs.operations(), before + 1);
    writer.append(&[], NO_MARK).unwrap();
    writer.append(&[pending(9, "nine")], Position { file_id: ID, offset: 104 }).unwrap();
    assert_eq!(writer.offset(), crate::tests::file_bytes(&fs, NAME));
    let want = vec![
        (1, Bytes::from("one")),
        (2, Bytes::new()),
        (3, Bytes::from(vec![7; 100])),
        (9, Bytes::from("nine")),
    ];
    assert_eq!(read(&fs).unwrap(), (want.clone(), None));
    writer.seal(NO_MARK).unwrap();
    assert!(writer.append(&[pending(10, "late")], NO_MARK).is_err());
    assert_eq!(read(&fs).unwrap(), (want.clone(), None));
    let trailing = with_file(&fs, NAME, |bytes| bytes.extend([1; 200]));
    assert_eq!(read(&*trailing).unwrap(), (want, None), "nothing follows a seal");
}

#[test]
fn long_payloads_return() {
    let mut random = Random::new(1);
    const MAX: usize = FRAGMENT_BYTES_MAX;
    // Payloads of odd lengths precede them, so that records begin anywhere in the windows.
    for bytes in [MAX - 1, MAX, MAX + 1, 2 * MAX - 8, 2 * MAX - 7, 3 << 20, 9 << 20] {
        let fs = MemoryFs::new();
        let mut writer = create(&fs);
        let (small, long) = (payload(&mut random, 12_345), payload(&mut random, bytes));
        let group = [pending(1, small.clone()), pending(2, long.clone()), pending(3, "last")];
        let log_bytes: u64 = group.iter().map(|record| record.payload.log_bytes()).sum();
        let before = writer.offset();
        writer.append(&group, NO_MARK).unwrap();
        assert_eq!(writer.offset() - before, log_bytes, "{bytes}");
        let (got, reason) = read(&fs).unwrap();
        assert!(got == [(1, small), (2, long), (3, "last".into())], "{bytes}");
        assert_eq!(reason, None, "{bytes}");
    }
}

#[test]
fn compressed_payloads_return_where_they_are_shorter() {
    let fs = MemoryFs::new();
    let mut writer = create(&fs);
    let mut random = Random::new(5);
    let text: Bytes = (0..4 << 20).map(|at| (at / 100 % 251) as u8).collect();
    // Half of the payload compresses, so that fragments remain.
    let mixed: Bytes = [payload(&mut random, 2 << 20), text.slice(..2 << 20)].concat().into();
    let noise = payload(&mut random, 5000);
    let payloads = [text.clone(), noise.clone(), mixed.clone(), text.slice(..100)];
    let mut bytes = Vec::new();
    for (sequence, payload) in (1..).zip(&payloads) {
        let before = writer.offset();
        let payload = Payload::compressed(payload.clone());
        writer.append(&[PendingRecord { sequence, payload }], NO_MARK).unwrap();
        bytes.push(writer.offset() - before);
    }
    assert!(bytes[0] < 100 << 10, "{bytes:?}");
    assert_eq!(bytes[1], record_bytes(noise.len()) as u64, "noise is stored as it is");
    assert!((2 << 20..5 << 19).contains(&bytes[2]), "{bytes:?}");
    assert_eq!(bytes[3], record_bytes(100) as u64, "short ones are stored as they are");
    let want = Vec::from_iter((1..).zip(payloads));
    assert_eq!(read(&fs).unwrap(), (want, None));
}

#[test]
fn a_torn_fragment_takes_its_whole_payload() {
    let fs = MemoryFs::new();
    let mut writer = create(&fs);
    writer.append(&[pending(1, "one")], NO_MARK).unwrap();
    let start = writer.offset() as usize;
    writer.append(&[pending(2, vec![5; 3 << 20])], NO_MARK).unwrap();
    let fragment = record_bytes(FRAGMENT_BYTES_MAX);
    let end = writer.offset() as usize;
    for cut in [1, 40, fragment, fragment + 1, 2 * fragment, 3 * fragment, end - start - 1] {
        let torn = with_file(&fs, NAME, |bytes| bytes.truncate(start + cut));
        let (got, reason) = read(&*torn).unwrap();
        assert_eq!(got, [(1, Bytes::from("one"))], "cut at {cut}");
        assert!(matches!(reason, Some(Corruption::Truncated { .. })), "cut at {cut}: {reason:?}");
    }
}

#[test]
fn a_failed_append_leaves_the_logical_end() {
    for written_bytes in [0, 1, 39, 40, 48, 96, 10_000] {
        let memory = Arc::new(MemoryFs::new());
        let fs = FaultFs::new(memory.clone());
        let mut writer = create(&fs);
        writer.append(&[pending(1, "one")], NO_MARK).unwrap();
        let end = writer.offset();
        let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]);
        fs.inject(fault.written_bytes(written_bytes));
        let group = [pending(2, "two"), pending(3, "three")];
        let error = writer.append(&group, NO_MARK).unwrap_err();
        assert!(error.is_no_space());
        assert_eq!(writer.offset(), end, "{written_bytes} bytes written");
        // The file may end in part of a record, so nothing can follow, even with room.
        assert!(writer.append(&group, NO_MARK).unwrap_err().is_no_space());
        assert!(writer.seal(NO_MARK).is_err());
        let mut reader = open(&*memory).unwrap();
        reader.set_limit(end);
        while let Next::Record(record) = reader.next().unwrap() {
            assert!(record.sequence <= 1, "{written_bytes} bytes written");
        }
        assert_eq!(reader.offset(), end);
    }
}

#[test]
fn a_file_is_reserved_in_steps_up_to_its_bound() {
    let memory = Arc::new(MemoryFs::new());
    let fs = FaultFs::new(memory.clone());
    let reservations = || {
        let reserved = memory.journal().into_iter().filter_map(|operation| match operation {
            Operation::Reserve { file_bytes, .. } => Some(file_bytes as u64),
            _ => None,
        });
        reserved.collect::<Vec<_>>()
    };
    let mut writer = create(&fs);
    let bound = 2 * RESERVED_BYTES + 100_000;
    let mut wants = vec![];
    let mut sequence = 1;
    while writer.offset() < bound {
        if writer.offset() >= wants.last().copied().unwrap_or(0) {
            wants.push((writer.offset() + RESERVED_BYTES).min(bound));
        }
        writer.reserve(bound);
        let file_bytes = crate::tests::file_bytes(&fs, NAME);
        assert!(file_bytes > writer.offset() && file_bytes <= bound, "{file_bytes}");
        writer.append(&[pending(sequence, vec![7; 10_000])], NO_MARK).unwrap();
        sequence += 1;
    }
    assert_eq!(reservations(), wants);
    assert_eq!(wants.len(), 3);
    writer.reserve(bound);
    writer.reserve(bound / 2);
    assert_eq!(reservations().len(), 3, "it is as long as it may be");
    assert_eq!(read(&fs).unwrap().0.len() as u64, sequence - 1);

    let mut refused =
        Writer::create(&fs, "000008.log".into(), &HEADER, &START, &[], NO_MARK).unwrap();
    fs.inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Reserve]));
    let calls = fs.calls();
    refused.reserve(bound);
    refused.reserve(bound);
    assert_eq!((fs.failures(), fs.calls()), (1, calls + 1), "refused, and not tried at each sync");
    refused.append(&[pending(1, "one")], NO_MARK).unwrap();
    assert_eq!(refused.offset(), crate::tests::file_bytes(&fs, "000008.log"));
    refused.seal(NO_MARK).unwrap();
    refused.reserve(u64::MAX);
    assert_eq!(reservations().len(), 3, "nothing follows a seal");
}

#[test]
fn a_failed_read_is_an_error_and_no_end() {
    let memory = Arc::new(MemoryFs::new());
    let mut writer = create(&*memory);
    for sequence in 1..=4 {
        writer.append(&[pending(sequence, vec![1; 900 << 10])], NO_MARK).unwrap();
    }
    let counter = FaultFs::new(memory.clone());
    read(&counter).unwrap();
    assert!(counter.calls() > 5);
    for call in 1..counter.calls() {
        let fs = FaultFs::new(memory.clone());
        // A permanent error: a smaller read is tried after the first.
        fs.fail_at(call, EIO, Times::ForGood);
        let result = read(&fs).map(|(records, reason)| (records.len(), reason));
        assert!(matches!(result, Err(Error::Io { .. })), "call {call}: {result:?}");
    }
}

/// Returns a file that holds `records` after a start record, each with valid checksums.
fn forged(records: &[(RecordType, u64, &[u8])]) -> Arc<MemoryFs> {
    let fs = MemoryFs::new();
    create(&fs);
    with_file(&fs, NAME, |bytes| {
        for &(record_type, sequence, payload) in records {
            let header = RecordHeader {
                transform: Transform::None,
                record_type,
                payload_bytes: payload.len() as u32,
                payload_checksum: crc32(&[payload]),
                sequence,
                mark: NO_MARK,
            };
            let place = Position { file_id: ID, offset: bytes.len() as u64 };
            bytes.extend(header.encode(place, HEADER.secret));
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
    })
}

#[test]
fn records_in_an_impossible_order_are_damage_everywhere() {
    use RecordType::{First, Full, Last, Middle, Start};
    let first = |total: u64, part: &[u8]| [&total.to_le_bytes(), part].concat();
    let (ten, two, none) = (first(10, b"abcde"), first(2, b"abcde"), first(5, b"abcde"));
    type Forged<'a> = &'a [(RecordType, u64, &'a [u8])];
    let cases: [(&str, Forged<'_>); 11] = [
        ("a second start", &[(Start, 0, &[3, 2, 1, 1])]),
        ("a middle", &[(Middle, 1, b"abc")]),
        ("a last", &[(Last, 1, b"abc")]),
        ("first, first", &[(First, 1, &ten), (First, 1, &ten)]),
        ("first, full", &[(First, 1, &ten), (Full, 1, b"abcde")]),
        ("another sequence", &[(First, 1, &ten), (Last, 2, b"abcde")]),
        ("too short", &[(First, 1, &ten), (Last, 1, b"abcd")]),
        ("too long", &[(First, 1, &ten), (Last, 1, b"abcdef")]),
        ("complete before the last", &[(First, 1, &ten), (Middle, 1, b"abcde")]),
        ("more than all in the first", &[(First, 1, &two)]),
        ("all in the first", &[(First, 1, &none)]),
    ];
    for (name, records) in cases {
        let result = read(&*forged(records));
        assert!(matches!(result, Err(Error::Corrupt { .. })), "{name}: {result:?}");
    }
    let short: Forged<'_> = &[(First, 1, b"abc")];
    assert!(read(&*forged(short)).is_err());
}

#[test]
fn a_total_length_is_believed_only_as_far_as_the_file_reaches() {
    let total = u64::MAX.to_le_bytes();
    let fs = forged(&[(RecordType::First, 1, &total)]);
    let (records, reason) = read(&*fs).unwrap();
    assert!(records.is_empty());
    let what = "fragmented payload";
    assert_eq!(reason, Some(Corruption::Truncated { what, need: u64::MAX, have: 48 }));
}

#[test]
fn a_record_of_another_release_is_no_torn_tail() {
    let fs = MemoryFs::new();
    let mut writer = create(&fs);
    let offset = writer.offset();
    writer.append(&[pending(1, "one")], NO_MARK).unwrap();
    let place = Position { file_id: ID, offset };
    let newer = with_file(&fs, NAME, |bytes| {
        let at = offset as usize;
        bytes[at + 5] = 1;
        let covered = [
            &HEADER.secret.to_le_bytes()[..],
            &place.file_id.to_le_bytes(),
            &place.offset.to_le_bytes(),
            &bytes[at + 4..at + RECORD_HEADER_BYTES],
        ];
        let checksum = crc32(&covered);
        bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    });
    assert_eq!(corrupt_at(&read(&*newer).unwrap_err(), NAME), offset);
}

#[test]
fn a_scan_finds_marks_behind_garbage_and_none_inside_payloads() {
    let fs = MemoryFs::new();
    let mut writer = create(&fs);
    let bad = writer.offset();
    let at = |offset| Position { file_id: ID, offset };
    writer.append(&[pending(1, vec![1; 5000])], at(1)).unwrap();
    // A user may store bytes that look like a record of this position.
    let place = at(writer.offset() + RECORD_HEADER_BYTES as u64);
    let (record_type, mark) = (RecordType::Full, at(1 << 40));
    let fake = RecordHeader {
        record_type,
        transform: Transform::None,
        payload_bytes: 0,
        payload_checksum: 0,
        sequence: 2,
        mark,
    };
    writer.append(&[pending(2, fake.encode(place, HEADER.secret).to_vec())], at(2)).unwrap();
    writer.append(&[pending(3, "three")], at(bad)).unwrap();
    let damaged = with_file(&fs, NAME, |bytes| bytes[bad as usize + 9] ^= 1);
    let mut reader = open(&*damaged).unwrap();
    while let Next::Record(_) = reader.next().unwrap() {}
    assert_eq!(reader.offset(), bad);
    let end = writer.offset();
    assert_eq!(reader.scan().unwrap(), Scan { newest_mark: at(bad), records: 2, end });
}

#[test]
fn the_memory_of_a_reader_is_bounded() {
    let fs = MemoryFs::new();
    let mut writer = create(&fs);
    let group: Vec<PendingRecord> = (1..64).map(|n| pending(n, vec![n as u8; 100_000])).collect();
    writer.append(&group, NO_MARK).unwrap();
    let mut reader = open(&fs).unwrap();
    while let Next::Record(_) = reader.next().unwrap() {
        assert!(reader.window_bytes() <= record_bytes(FRAGMENT_BYTES_MAX));
    }
}

#[test]
fn formats_a_stored_value_cannot_forge_a_record_or_a_mark() {
    // The forger knows file id and offset, but not the secret. The control case uses the right
    // secret.
    let found = |secret: u64| {
        let fs = MemoryFs::new();
        let header = FileHeader { secret, ..HEADER };
        let path = PathBuf::from(NAME);
        let mut writer = Writer::create(&fs, path, &header, &START, &[], NO_MARK).unwrap();
        let bad = writer.offset();
        let place = Position { file_id: ID, offset: bad + RECORD_HEADER_BYTES as u64 };
        let mark = Position { file_id: ID, offset: 1 << 40 };
        let payload = b"forged";
        let (record_type, payload_checksum) = (RecordType::Full, crc32(&[payload]));
        let payload_bytes = payload.len() as u32;
        let fake = RecordHeader {
            record_type,
            transform: Transform::None,
            payload_bytes,
            payload_checksum,
            sequence: 2,
            mark,
        };
        let value = [&fake.encode(place, 0)[..], payload, &[0; 2]].concat();
        writer.append(&[pending(1, value)], NO_MARK).unwrap();
        let damaged = with_file(&fs, NAME, |bytes| bytes[bad as usize + 9] ^= 1);
        let mut reader = open(&*damaged).unwrap();
        reader.check_header(&header).unwrap();
        while let Next::Record(_) = reader.next().unwrap() {}
        assert_eq!(reader.offset(), bad);
        (reader.scan().unwrap().newest_mark == mark, reader.raw_record(place.offset).is_ok())
    };
    assert_eq!(found(0), (true, true), "the control");
    assert_eq!(found(HEADER.secret), (false, false));
}

#[test]
fn formats_a_record_of_another_file_with_the_same_number_does_not_pass() {
    let fs = MemoryFs::new();
    let mut writer = create(&fs);
    writer.append(&[pending(1, "one")], NO_MARK).unwrap();
    let other = FileHeader { secret: HEADER.secret + 1, ..HEADER };
    let copied = with_file(&fs, NAME, |bytes| bytes[..64].copy_from_slice(&other.encode()));
    let (records, reason) = read(&*copied).unwrap();
    assert!(records.is_empty() && reason.is_some(), "{reason:?}");
}

/// A file with one unreadable sector.
#[derive(Debug)]
struct BadSector {
    inner: Arc<dyn ReadFile>,
    sector: Range<u64>,
    reads: AtomicUsize,
}

impl ReadFile for BadSector {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Relaxed);
        let end = offset + buf.len() as u64;
        if offset < self.sector.end && self.sector.start < end {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.inner.read_at(buf, offset)
    }

    fn map(&self) -> io::Result<Bytes> {
        self.inner.map()
    }
}

#[test]
fn n8_records_before_a_bad_sector_are_read() {
    const RECORDS: u64 = 2_000;
    let fs = MemoryFs::new();
    let mut writer = create(&fs);
    let ends: Vec<u64> = (1..=RECORDS)
        .map(|sequence| {
            writer.append(&[pending(sequence, vec![7; 500])], NO_MARK).unwrap();
            writer.offset()
        })
        .collect();
    let file_bytes = ends[ends.len() - 1];
    for place in [700, 70_000, 600_000, file_bytes - 600] {
        let sector = place / 512 * 512..place / 512 * 512 + 512;
        let inner = fs.open(NAME.as_ref()).unwrap();
        let file = BadSector { inner, sector: sector.clone(), reads: AtomicUsize::new(0) };
        let file = Arc::new(file);
        let mut reader = Reader::new(Arc::clone(&file) as _, PathBuf::from(NAME), ID).unwrap();
        reader.check_header(&HEADER).unwrap();
        let mut found = 0;
        let error = loop {
            match reader.next() {
                Ok(Next::Record(record)) => {
                    found += u64::from(record.record_type == RecordType::Full);
                }
                Ok(Next::End(reason)) => panic!("taken for the end of the log: {reason:?}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        let whole = ends.iter().filter(|&&end| end <= sector.start).count() as u64;
        assert_eq!(found, whole, "bad sector at {place}");
        // Reading headers one by one would take twice as many reads.
        let reads = file.reads.load(Relaxed);
        assert!(reads < 100, "{reads} reads before the sector at {place}");
    }
}
