//! Which segments count.

use super::*;
use crate::{
    Error,
    fs::{Call, Fault, FaultFs, Loss, Times},
    tests::{ENOSPC, corrupt_at, with_file},
};
use sievedb_format::Corruption;

/// Segments 3, 5 and 8 with two batches each. 3 is sealed.
fn three_segments() -> (Arc<MemoryFs>, [Position; 3]) {
    let fs = new_fs();
    let mut first = create(&*fs, 3, None, NO_MARK);
    append(&mut first, 1..=2, NO_MARK);
    first.seal(NO_MARK).unwrap();
    let mut second = create(&*fs, 5, Some(first.position()), NO_MARK);
    append(&mut second, 3..=4, NO_MARK);
    let mut third = create(&*fs, 8, Some(second.position()), NO_MARK);
    append(&mut third, 5..=6, NO_MARK);
    (fs, [first.position(), second.position(), third.position()])
}

#[test]
fn the_chain_goes_on_from_the_newest_named_segment() {
    let (fs, ends) = three_segments();
    for named in [&[3][..], &[3, 5], &[3, 5, 8]] {
        let (got, replayed) = sequences(&*fs, named, NO_MARK).unwrap();
        assert_eq!(got, up_to(6), "{named:?}");
        assert_eq!(ids(&replayed), [3, 5, 8]);
        assert_eq!((replayed.end, replayed.torn), (Some(ends[2]), None));
        assert_eq!((replayed.last_sequence, replayed.sealed), (6, false));
        assert_eq!(replayed.manifest, at(1, 500));
        assert!(replayed.orphans.is_empty());
    }
    let (got, replayed) = sequences(&*fs, &[5], NO_MARK).unwrap();
    assert_eq!((got, ids(&replayed)), (vec![3, 4, 5, 6], vec![5, 8]));
}

#[test]
fn ids_ascend_beyond_six_digits() {
    let names = ["000009.log", "1000000.log", "999999.log", "000007.sst", "LOCK", "9.log"];
    assert_eq!(segment_ids(&names.map(String::from)), [9, 999_999, 1_000_000]);
}

#[test]
fn a_store_without_logs_has_nothing_to_replay() {
    let (got, replayed) = sequences(&*new_fs(), &[], NO_MARK).unwrap();
    assert_eq!((got, replayed), (vec![], Replayed::default()));
}

#[test]
fn a_segment_that_must_exist_and_does_not_is_damage() {
    let missing = |fs: &MemoryFs, named: &[u64], mark, name: &str| {
        let error = sequences(fs, named, mark).unwrap_err();
        corrupt_at(&error, name);
        let missing = matches!(error, Error::Corrupt { source: Corruption::Missing { .. }, .. });
        assert!(missing, "{named:?}: {error:?}");
    };
    for gone in [3, 5, 8] {
        let (fs, _) = three_segments();
        fs.unlink(path(gone).as_ref()).unwrap();
        missing(&fs, &[3, 5, 8], NO_MARK, &format!("{gone:06}.log"));
    }
    let (fs, _) = three_segments();
    fs.unlink(path(5).as_ref()).unwrap();
    // Nothing names 5, but 8 tells that it was there.
    missing(&fs, &[3], NO_MARK, "000005.log");
    fs.unlink(path(8).as_ref()).unwrap();
    missing(&fs, &[3], at(8, 0), "000008.log");
    // Without a mark there is no trace of them.
    assert_eq!(sequences(&*fs, &[3], NO_MARK).unwrap().0, up_to(2));
}

#[test]
fn n3_an_unnamed_segment_that_continues_an_obsolete_one_is_an_orphan() {
    let (fs, ends) = three_segments();
    // Created in vain after 8; its id was given out again, as the floor.
    create(&*fs, 9, Some(ends[2]), NO_MARK);
    fs.unlink(path(8).as_ref()).unwrap();
    for floor in [0, 8] {
        corrupt_at(&collect_from(&*fs, floor, &[], NO_MARK).unwrap_err(), "000008.log");
    }
    let (batches, replayed) = collect_from(&*fs, 9, &[], NO_MARK).unwrap();
    assert_eq!((batches, replayed.orphans), (vec![], vec![3, 5, 9]));
}

#[test]
fn segments_that_do_not_continue_each_other_are_damage() {
    let (fs, ends) = three_segments();
    for named in [&[3, 8][..], &[5, 3]] {
        assert!(matches!(sequences(&*fs, named, NO_MARK), Err(Error::Corrupt { .. })), "{named:?}");
    }
    create(&*fs, 9, None, NO_MARK);
    corrupt_at(&sequences(&*fs, &[3, 5, 8, 9], NO_MARK).unwrap_err(), "000009.log");
    // An end inside the start record of the segment before.
    create(&*fs, 10, Some(at(8, 70)), NO_MARK);
    corrupt_at(&sequences(&*fs, &[3], NO_MARK).unwrap_err(), "000010.log");
    assert!(ends[2].offset > 70);
}

#[test]
fn garbage_behind_the_logical_end_is_ignored() {
    // What a full disk left: nothing, part of a record, a whole record, all of the group.
    for written_bytes in [0, 20, 64, 72, 10_000] {
        let memory = new_fs();
        let fs = FaultFs::new(memory.clone());
        let mut full = create(&fs, 3, None, NO_MARK);
        append(&mut full, 1..=2, NO_MARK);
        let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]);
        fs.inject(fault.written_bytes(written_bytes));
        assert!(full.append(&[put(3, b"lost"), put(4, b"lost")], NO_MARK).is_err());
        let mut next = create(&fs, 5, Some(full.position()), at(5, 0));
        append(&mut next, 3..=4, NO_MARK);
        let (batches, replayed) = collect(&*memory, &[3], at(5, 0)).unwrap();
        let got: Vec<u64> = batches.iter().map(|(sequence, _)| *sequence).collect();
        assert_eq!(got, up_to(4), "{written_bytes} bytes");
        assert!(batches.iter().all(|(_, payload)| !payload.ends_with(b"lost")));
        assert_eq!(replayed.torn, None, "{written_bytes} bytes");
    }
}

#[test]
fn a_hole_ends_the_log_and_what_lies_behind_does_not_count() {
    let (fs, ends) = three_segments();
    let second = fs.read(path(5)).unwrap().len();
    for cut in 1..=2 {
        // A lost append: the file ends where a record ends.
        let record = (ends[1].offset as usize - 120) / 2;
        let torn = with_file(&fs, &path(5), |bytes| bytes.truncate(second - cut * record));
        let (got, replayed) = sequences(&*torn, &[3, 5, 8], NO_MARK).unwrap();
        assert_eq!(got, up_to(4 - cut as u64));
        let behind = fs.read(path(8)).unwrap().len() as u64;
        assert_eq!(
            replayed.torn.as_ref().unwrap().bytes,
            behind,
            "the segment behind is cut off, too"
        );
        assert_eq!((ids(&replayed), replayed.orphans), (vec![3, 5], vec![8]));
        // The recovery that follows continues from the torn end; so does the next one.
        let end = replayed.end.unwrap();
        create(&*torn, 9, Some(end), NO_MARK);
        let (again, replayed) = sequences(&*torn, &[3, 5], NO_MARK).unwrap();
        assert_eq!(again, got);
        assert_eq!((replayed.torn, replayed.orphans), (None, vec![8]));
        // With a mark beyond it is damage.
        let error = sequences(&*torn, &[3, 5, 8], at(8, 0)).unwrap_err();
        assert_eq!(corrupt_at(&error, "000005.log"), end.offset);
    }
}

#[test]
fn what_an_interrupted_recovery_began_is_an_orphan() {
    let (fs, ends) = three_segments();
    let mut copy = create(&*fs, 9, None, at(9, 0));
    append(&mut copy, 1..=6, at(9, 0));
    let mut further = create(&*fs, 11, Some(copy.position()), at(11, 0));
    append(&mut further, 7..=7, NO_MARK);
    let (got, replayed) = sequences(&*fs, &[3, 5], NO_MARK).unwrap();
    assert_eq!((got, replayed.end), (up_to(6), Some(ends[2])));
    assert_eq!(replayed.orphans, [9, 11]);
}

#[test]
fn a_segment_whose_creation_did_not_end_is_an_orphan() {
    let (fs, ends) = three_segments();
    create(&*fs, 9, Some(ends[2]), NO_MARK);
    let begun = fs.read(path(9)).unwrap().len();
    for cut in 0..begun {
        let torn = with_file(&fs, &path(9), |bytes| bytes.truncate(cut));
        let (got, replayed) = sequences(&*torn, &[3], NO_MARK).unwrap();
        assert_eq!((got, replayed.orphans, replayed.torn), (up_to(6), vec![9], None), "cut {cut}");
        let zeros = with_file(&fs, &path(9), |bytes| bytes[..=cut].fill(0));
        let (got, replayed) = sequences(&*zeros, &[3], NO_MARK).unwrap();
        assert_eq!((got, replayed.orphans), (up_to(6), vec![9]), "zeros to {cut}");
    }
    // Given up when the disk was full, and yet whole: the one that was used instead counts.
    let mut used = create(&*fs, 10, Some(ends[2]), NO_MARK);
    append(&mut used, 7..=7, NO_MARK);
    let (got, replayed) = sequences(&*fs, &[3], NO_MARK).unwrap();
    assert_eq!((got, replayed.orphans), (up_to(7), vec![9]));
}

#[test]
fn a_segment_that_lost_its_beginning_after_it_was_used_is_damage() {
    let (fs, _) = three_segments();
    for flipped in 0..110 {
        let bad = with_file(&fs, &path(8), |bytes| bytes[flipped] ^= 0x40);
        let error = sequences(&*bad, &[3, 5], NO_MARK).unwrap_err();
        corrupt_at(&error, "000008.log");
    }
}

#[test]
fn a_full_disk_leaves_no_half_segment() {
    for (call, suffix) in [(Call::Create, ""), (Call::Append, "")] {
        let memory = new_fs();
        let fs = FaultFs::new(memory.clone());
        let fault = Fault::new(ENOSPC, Times::Once).calls(&[call]).suffix(suffix);
        fs.inject(fault.written_bytes(50));
        let error = segment(3, None, NO_MARK).create(&fs, FOLDER.as_ref()).unwrap_err();
        assert!(error.is_no_space());
        assert!(on_disk(&*memory).unwrap().is_empty());
    }
}

#[test]
fn a_new_segment_is_durable_with_its_name() {
    let fs = new_fs();
    create(&*fs, 3, None, NO_MARK);
    let crashed = fs.crash(fs.operations(), &Loss::Everything);
    assert!(sequences(&crashed, &[3], NO_MARK).unwrap().0.is_empty());
}
