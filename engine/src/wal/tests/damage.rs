//! Logs with changed bytes.

use std::sync::Arc;

use super::*;
use crate::{
    Error,
    fs::{FaultFs, Loss, Times},
    tests::{EIO, corrupt_at, file_bytes, with_file},
};

/// Creates a log of one segment with batches 1 to 4. Returns the ends of the start record and of
/// each batch.
pub(super) fn one_segment(last_mark: impl Fn(u64) -> Position) -> (Arc<MemoryFs>, Vec<u64>) {
    let fs = new_fs();
    let mut writer = create(&*fs, 3, None, NO_MARK);
    let mut ends = vec![writer.offset()];
    ends.extend(append(&mut writer, 1..=3, NO_MARK));
    ends.extend(append(&mut writer, 4..=4, last_mark(ends[3])));
    (fs, ends)
}

/// Returns the number of batches that end at or before `bytes`.
pub(super) fn whole(ends: &[u64], bytes: u64) -> u64 {
    ends[1..].iter().filter(|&&end| end <= bytes).count() as u64
}

#[test]
fn a_log_cut_at_any_length_gives_the_batches_before_the_cut() {
    let (fs, ends) = one_segment(|_| NO_MARK);
    for cut in 0..=ends[4] {
        let torn = with_file(&fs, &path(3), |bytes| bytes.truncate(cut as usize));
        let result = sequences(&torn, &[3], NO_MARK);
        if cut < ends[0] {
            // The beginning was durable before the manifest named the segment.
            corrupt_at(&result.unwrap_err(), "000003.log");
            continue;
        }
        let last = whole(&ends, cut);
        let (got, replayed) = result.unwrap();
        assert_eq!(got, up_to(last), "cut at {cut}");
        assert_eq!(replayed.end, Some(at(3, ends[last as usize])), "cut at {cut}");
        assert_eq!(replayed.torn.is_some(), !ends.contains(&cut), "cut at {cut}");
        // The manifest's mark determines the durable length.
        for vouched in [&ends[..], &[cut, cut + 1]].concat() {
            let result = sequences(&torn, &[3], at(3, vouched));
            if vouched > ends[last as usize] {
                let offset = corrupt_at(&result.unwrap_err(), "000003.log");
                assert_eq!(offset, ends[last as usize], "cut at {cut}, vouched to {vouched}");
            } else {
                assert_eq!(result.unwrap().0, up_to(last), "cut at {cut}, vouched to {vouched}");
            }
        }
    }
}

#[test]
fn a_flipped_byte_ends_the_log_before_it_if_nothing_vouches() {
    let (fs, ends) = one_segment(|_| NO_MARK);
    for flipped in 0..ends[4] {
        for mask in [1, 0x80, 0xff] {
            let bad = with_file(&fs, &path(3), |bytes| bytes[flipped as usize] ^= mask);
            let result = sequences(&bad, &[3], NO_MARK);
            if flipped < ends[0] {
                corrupt_at(&result.unwrap_err(), "000003.log");
                continue;
            }
            let last = whole(&ends, flipped);
            let (got, replayed) = result.unwrap();
            assert_eq!(got, up_to(last), "flipped {flipped}");
            let torn = replayed.torn.expect("a flipped byte is seen");
            assert_eq!(torn.position, at(3, ends[last as usize]), "flipped {flipped}");
        }
    }
}

#[test]
fn a_flipped_byte_below_a_mark_is_damage() {
    // The mark of the last record, of the manifest, of a later segment and of a record in it.
    let (in_record, ends) = one_segment(|offset| at(3, offset));
    let (in_manifest, _) = one_segment(|_| NO_MARK);
    let in_start = one_segment(|_| NO_MARK).0;
    create(&*in_start, 5, Some(at(3, ends[4])), at(5, 0));
    let in_next = one_segment(|_| NO_MARK).0;
    let mut writer = create(&*in_next, 5, Some(at(3, ends[4])), NO_MARK);
    append(&mut writer, 5..=5, NO_MARK);
    append(&mut writer, 6..=6, at(3, ends[4]));
    let cases = [
        ("record", in_record, NO_MARK, ends[3]),
        ("manifest", in_manifest.clone(), at(3, ends[4]), ends[4]),
        ("newer mark in the manifest", in_manifest, at(3, ends[2]), ends[2]),
        ("start of the next segment", in_start, NO_MARK, ends[4]),
        ("record in the next segment", in_next, NO_MARK, ends[4]),
    ];
    for (name, fs, mark, vouched) in cases {
        for flipped in 0..ends[4] {
            let bad = with_file(&fs, &path(3), |bytes| bytes[flipped as usize] ^= 0x10);
            let result = sequences(&bad, &[3], mark);
            let last = whole(&ends, flipped);
            let end = ends[last as usize];
            if flipped < ends[0] {
                corrupt_at(&result.unwrap_err(), "000003.log");
            } else if end < vouched {
                let offset = corrupt_at(&result.unwrap_err(), "000003.log");
                assert_eq!(offset, end, "{name}: flipped {flipped}");
            } else {
                assert_eq!(result.unwrap().0, up_to(last), "{name}: flipped {flipped}");
            }
        }
    }
}

#[test]
fn every_byte_of_a_later_segment_counts() {
    let (fs, ends) = one_segment(|_| NO_MARK);
    let mut writer = create(&*fs, 5, Some(at(3, ends[4])), at(5, 0));
    let begun = writer.offset();
    append(&mut writer, 5..=6, NO_MARK);
    let end = writer.offset();
    for named in [&[3][..], &[3, 5]] {
        for flipped in 0..end {
            let bad = with_file(&fs, &path(5), |bytes| bytes[flipped as usize] ^= 2);
            match sequences(&bad, named, NO_MARK) {
                Err(error) => {
                    corrupt_at(&error, "000005.log");
                    assert!(flipped < begun, "flipped {flipped}: {error:?}");
                }
                Ok((got, _)) => {
                    assert!(flipped >= begun, "flipped {flipped}");
                    assert_eq!(got, up_to(if flipped < end - (end - begun) / 2 { 4 } else { 5 }));
                }
            }
        }
    }
}

#[test]
fn swapped_records_end_the_log() {
    let (fs, ends) = one_segment(|_| NO_MARK);
    let swapped = with_file(&fs, &path(3), |bytes| {
        let [a, b, c] = [ends[1], ends[2], ends[3]].map(|end| end as usize);
        assert_eq!(b - a, c - b, "records of the same length");
        let (left, right) = bytes[a..c].split_at_mut(b - a);
        left.swap_with_slice(right);
    });
    let (got, replayed) = sequences(&swapped, &[3], NO_MARK).unwrap();
    assert_eq!(got, up_to(1));
    assert!(replayed.torn.is_some());
    let error = sequences(&swapped, &[3], at(3, ends[2])).unwrap_err();
    assert_eq!(corrupt_at(&error, "000003.log"), ends[1]);
}

#[test]
fn swapped_and_foreign_segments_are_refused() {
    let (fs, ends) = one_segment(|_| NO_MARK);
    let mut writer = create(&*fs, 5, Some(at(3, ends[4])), NO_MARK);
    append(&mut writer, 5..=5, NO_MARK);
    let swapped = Arc::new(fs.crash(fs.operations(), &Loss::Nothing));
    swapped.replace(path(3), fs.read(path(5)).unwrap()).unwrap();
    swapped.replace(path(5), fs.read(path(3)).unwrap()).unwrap();
    for named in [&[3][..], &[3, 5], &[5]] {
        assert!(sequences(&swapped, named, NO_MARK).is_err(), "{named:?}");
    }
    let foreign = new_fs();
    let mut other = segment(7, Some(at(5, writer.offset())), NO_MARK);
    other.store_id = 1;
    other.create(&*foreign, FOLDER.as_ref()).unwrap();
    let with = Arc::new(fs.crash(fs.operations(), &Loss::Nothing));
    with.replace(path(7), foreign.read(path(7)).unwrap()).unwrap();
    corrupt_at(&sequences(&with, &[3, 5], NO_MARK).unwrap_err(), "000007.log");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let (fs, ends) = one_segment(|_| NO_MARK);
    let mut writer = create(&*fs, 5, Some(at(3, ends[4])), NO_MARK);
    append(&mut writer, 5..=5, NO_MARK);
    // Damages the file, so that the scan for marks reads too.
    let fs = with_file(&fs, &path(3), |bytes| bytes[ends[1] as usize] ^= 1);
    let counter = Arc::new(FaultFs::new(fs.clone()));
    assert_eq!(sequences(&counter, &[3], NO_MARK).unwrap().0, up_to(1));
    for call in 0..counter.calls() {
        let faulty = Arc::new(FaultFs::new(fs.clone()));
        // A permanent error: a smaller read is tried after the first.
        faulty.fail_at(call, EIO, Times::ForGood);
        let result = sequences(&faulty, &[3], NO_MARK);
        assert!(matches!(result, Err(Error::Io { .. })), "call {call}: {result:?}");
    }
}

#[test]
fn sequence_numbers_that_overlap_are_damage() {
    let mut two = BatchEncoder::new();
    two.remove(1, b"a");
    two.remove(1, b"b");
    let two = two.finish();
    let none = BatchEncoder::new().finish();
    let max = sievedb_format::SEQUENCE_MAX;
    let cases: [(&str, Vec<PendingRecord>); 5] = [
        ("again", vec![put(5, b""), put(5, b"")]),
        ("within the batch before", vec![pending(5, two.clone()), put(6, b"")]),
        ("zero", vec![put(0, b"")]),
        ("beyond the last", vec![pending(max, two)]),
        ("an empty batch", vec![pending(7, none)]),
    ];
    for (name, records) in cases {
        let fs = new_fs();
        create(&*fs, 3, None, NO_MARK).append(&records, NO_MARK).unwrap();
        assert!(matches!(sequences(&fs, &[3], NO_MARK), Err(Error::Corrupt { .. })), "{name}");
    }
    let fs = new_fs();
    let last = [put(max - 1, b""), put(max, b"")];
    create(&*fs, 3, None, NO_MARK).append(&last, NO_MARK).unwrap();
    assert_eq!(sequences(&fs, &[3], NO_MARK).unwrap().1.last_sequence, max);
}

#[test]
fn a_batch_that_no_release_wrote_is_damage() {
    let fs = new_fs();
    let mut writer = create(&*fs, 3, None, NO_MARK);
    let offset = writer.offset();
    writer.append(&[pending(1, vec![1, 9, 9])], NO_MARK).unwrap();
    let error = sequences(&fs, &[3], NO_MARK).unwrap_err();
    assert_eq!(corrupt_at(&error, "000003.log"), offset);
}

#[test]
fn a_batch_of_three_mebibytes_returns_or_is_torn_as_a_whole() {
    let fs = new_fs();
    let mut writer = create(&*fs, 3, None, NO_MARK);
    let value: Vec<u8> = (0..3 << 20).map(|n: u32| (n >> 3) as u8).collect();
    append(&mut writer, 1..=1, NO_MARK);
    let start = writer.offset();
    writer.append(&[put(2, &value)], NO_MARK).unwrap();
    writer.append(&[put(3, b"last")], NO_MARK).unwrap();
    let (batches, _) = collect(&fs, &[3], NO_MARK).unwrap();
    assert_eq!(batches.len(), 3);
    assert!(batches[1].1.ends_with(&value));
    let bytes = file_bytes(&*fs, &path(3));
    for flipped in (start..bytes).step_by(77_777) {
        let bad = with_file(&fs, &path(3), |bytes| bytes[flipped as usize] ^= 4);
        let (got, replayed) = sequences(&bad, &[3], NO_MARK).unwrap();
        assert_eq!(got, up_to(1), "flipped {flipped}");
        assert_eq!(replayed.torn.unwrap().position, at(3, start), "flipped {flipped}");
        // A mark within a batch vouches for all of it.
        assert!(sequences(&bad, &[3], at(3, start + 8)).is_err(), "flipped {flipped}");
    }
}
