//! Segments that are longer than their records.

use std::{ops::Range, sync::Arc};

use super::{
    damage::{one_segment, whole},
    *,
};
use crate::tests::{corrupt_at, with_file};

/// Extends the segment by zeros.
fn longer(fs: &MemoryFs, zeros: usize) -> Arc<MemoryFs> {
    with_file(fs, &path(3), |bytes| bytes.resize(bytes.len() + zeros, 0))
}

/// Replaces some bytes by zeros, as a crash that lost them and kept later bytes.
fn hole(fs: &MemoryFs, place: Range<u64>) -> Arc<MemoryFs> {
    with_file(fs, &path(3), |bytes| bytes[place.start as usize..place.end as usize].fill(0))
}

/// Returns the end of the last byte that is not zero.
fn content_end(fs: &MemoryFs) -> u64 {
    let bytes = fs.read(path(3)).unwrap();
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1)
}

#[test]
fn room_that_was_not_filled_is_the_end_of_the_log() {
    let (fs, ends) = one_segment(|_| NO_MARK);
    for zeros in [0, 1, 7, 8, 39, 40, 41, 48, 500, 4096, 3 << 20] {
        let room = longer(&fs, zeros);
        let (got, replayed) = sequences(&room, &[3], NO_MARK).unwrap();
        assert_eq!(got, up_to(4), "{zeros} zeros");
        assert_eq!(replayed.end, Some(at(3, ends[4])), "{zeros} zeros");
        assert_eq!(replayed.torn, None, "{zeros} zeros");
        sequences(&room, &[3], at(3, ends[4])).unwrap();
        let error = sequences(&room, &[3], at(3, ends[4] + 1)).unwrap_err();
        assert_eq!(corrupt_at(&error, "000003.log"), ends[4], "{zeros} zeros: records are missing");
    }
}

#[test]
fn a_lost_end_of_records_in_room_gives_the_batches_before_it() {
    let (fs, ends) = one_segment(|_| NO_MARK);
    for cut in ends[0]..=ends[4] {
        let torn = longer(&hole(&fs, cut..ends[4]), 1000);
        let last = whole(&ends, cut);
        let end = ends[last as usize];
        let found = content_end(&torn).saturating_sub(end);
        let (got, replayed) = sequences(&torn, &[3], NO_MARK).unwrap();
        if replayed.end != Some(at(3, end)) {
            let next = ends[last as usize + 1];
            assert!(
                cut > end && content_end(&hole(&fs, next..ends[4])) <= cut,
                "cut at {cut}: only zeros of it were lost"
            );
            assert_eq!(got, up_to(last + 1), "cut at {cut}");
            continue;
        }
        assert_eq!(got, up_to(last), "cut at {cut}");
        assert_eq!(replayed.torn.is_some(), found > 0, "cut at {cut}");
        if let Some(torn) = replayed.torn {
            assert_eq!(torn.position, at(3, end), "cut at {cut}");
            // A complete header determines the length of its record.
            assert!((found..=ends[4] - end).contains(&torn.bytes), "cut at {cut}: {}", torn.bytes);
        }
        for vouched in &ends {
            let result = sequences(&torn, &[3], at(3, *vouched));
            if *vouched > end {
                let offset = corrupt_at(&result.unwrap_err(), "000003.log");
                assert_eq!(offset, end, "cut at {cut}, vouched to {vouched}");
            } else {
                assert_eq!(result.unwrap().0, up_to(last), "cut at {cut}, vouched to {vouched}");
            }
        }
    }
}

#[test]
fn nothing_behind_a_hole_counts_and_nothing_vouched_for_is_lost_in_one() {
    let synced_before_the_last = |offset| at(3, offset);
    for (name, marked) in [("no mark", false), ("a mark in the last record", true)] {
        let (fs, ends) =
            one_segment(|offset| if marked { synced_before_the_last(offset) } else { NO_MARK });
        for first in 0..4_usize {
            for last in first..4 {
                let lost = ends[first]..ends[last + 1];
                let room = longer(&hole(&fs, lost.clone()), 600);
                let result = sequences(&room, &[3], NO_MARK);
                // The record with the mark is the last, which vouches for all earlier ones.
                if marked && first < 3 && last < 3 {
                    let offset = corrupt_at(&result.unwrap_err(), "000003.log");
                    assert_eq!(offset, ends[first], "{name}: {lost:?}");
                    continue;
                }
                let (got, replayed) = result.unwrap();
                assert_eq!(got, up_to(first as u64), "{name}: {lost:?}");
                let bytes = replayed.torn.map_or(0, |torn| torn.bytes);
                assert_eq!(
                    bytes,
                    if last == 3 { 0 } else { ends[4] - ends[first] },
                    "{name}: {lost:?}"
                );
            }
        }
    }
}

#[test]
fn a_segment_continues_from_where_its_records_end() {
    let (fs, ends) = one_segment(|_| NO_MARK);
    let mut writer = create(&*fs, 5, Some(at(3, ends[4])), at(3, ends[4]));
    append(&mut writer, 5..=6, NO_MARK);
    let room = longer(&fs, 5000);
    let (got, replayed) = sequences(&room, &[3, 5], NO_MARK).unwrap();
    assert_eq!((got, replayed.torn), (up_to(6), None));
    // The last batch of the first segment is missing, and a later one would be replayed.
    let (lost, _) = one_segment(|_| NO_MARK);
    create(&*lost, 5, Some(at(3, ends[4])), NO_MARK);
    let lost = longer(&hole(&lost, ends[3]..ends[4]), 5000);
    let (got, replayed) = sequences(&lost, &[3, 5], NO_MARK).unwrap();
    assert_eq!(got, up_to(3));
    assert!(replayed.torn.is_some(), "it is shorter than its successor says");
}
