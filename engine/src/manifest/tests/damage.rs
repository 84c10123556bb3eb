//! Manifests with changed bytes.

use super::*;
use crate::{
    Error,
    fs::Loss,
    tests::{corrupt_at, with_file},
};

const ID: u64 = 4;
const NAME: &str = "MANIFEST-000004";

/// Returns the number of edits after the first one that end at or before `bytes`.
fn whole(ends: &[u64], bytes: u64) -> Option<usize> {
    ends.iter().rposition(|&end| end <= bytes)
}

#[test]
fn a_folder_without_current_holds_no_store() {
    assert_eq!(load_from(&*new_fs()).unwrap(), None);
}

#[test]
fn data_without_current_are_no_new_store() {
    use crate::{tests::pending, wal::segment::NewSegment};
    let fs = new_fs();
    small_manifest(&fs, ID);
    fs.unlink(format!("{FOLDER}/CURRENT").as_ref()).unwrap();
    let (id, at) = (5, Position::default());
    let segment = NewSegment { store_id: STORE, id, manifest: at, previous: None, mark: at };
    let mut log = segment.create(&*fs, FOLDER.as_ref()).unwrap();
    // An interrupted creation leaves the same files.
    assert_eq!(load_from(&*fs).unwrap(), None);
    let table = with_file(&fs, &path(ID), |_| ());
    table.create(format!("{FOLDER}/000006.sst").as_ref()).unwrap();
    corrupt_at(&load_from(&*table).unwrap_err(), "CURRENT");
    log.append(&[pending(1, "batch")], at).unwrap();
    corrupt_at(&load_from(&*fs).unwrap_err(), "CURRENT");
    assert_eq!(load(&*fs, "elsewhere".as_ref()).unwrap(), None);
}

#[test]
fn every_edit_returns() {
    let fs = new_fs();
    let ends = small_manifest(&fs, ID);
    let loaded = load_from(&*fs).unwrap().unwrap();
    let want = Loaded {
        state: states(ID).pop().unwrap(),
        end: Position { file_id: ID, offset: ends[7] },
        secret: loaded.secret,
        edits: 8,
        first_bytes: ends[0],
        // It was not closed.
        is_durable: false,
        torn: None,
        torn_bytes: 0,
    };
    assert_eq!(loaded, want);
    let crashed = fs.crash(fs.operations(), &Loss::Everything);
    assert_eq!(load_from(&crashed).unwrap(), Some(want), "all of it is durable");
}

#[test]
fn a_manifest_cut_at_any_length_gives_the_edits_before_the_cut() {
    let fs = new_fs();
    let ends = small_manifest(&fs, ID);
    for cut in 0..=ends[7] {
        let torn = with_file(&fs, &path(ID), |bytes| bytes.truncate(cut as usize));
        let result = load_from(&*torn);
        let Some(edits) = whole(&ends, cut) else {
            // `CURRENT` vouches for the first edit.
            corrupt_at(&result.unwrap_err(), NAME);
            continue;
        };
        let loaded = result.unwrap().unwrap();
        assert_eq!(loaded.state, states(ID)[edits], "cut at {cut}");
        assert_eq!(loaded.end.offset, ends[edits], "cut at {cut}");
        assert_eq!(loaded.torn.is_some(), !ends.contains(&cut), "cut at {cut}");
        assert_eq!(loaded.torn_bytes, cut - ends[edits], "cut at {cut}");
        // A log recorded the length of the manifest.
        for seen in [ends[edits], ends[edits] + 1] {
            let seen = Position { file_id: ID, offset: seen };
            let checked = loaded.check_vouched(FOLDER.as_ref(), seen);
            if seen.offset == ends[edits] {
                checked.unwrap();
            } else {
                assert_eq!(corrupt_at(&checked.unwrap_err(), NAME), ends[edits]);
            }
        }
    }
}

#[test]
fn a_flipped_byte_is_damage_unless_it_is_in_the_last_edit() {
    let fs = new_fs();
    let ends = small_manifest(&fs, ID);
    for flipped in 0..ends[7] {
        for mask in [1, 0x80] {
            let bad = with_file(&fs, &path(ID), |bytes| bytes[flipped as usize] ^= mask);
            let result = load_from(&*bad);
            if flipped < ends[6] {
                corrupt_at(&result.unwrap_err(), NAME);
            } else {
                let loaded = result.unwrap().unwrap();
                assert_eq!(loaded.state, states(ID)[6], "flipped {flipped}");
                assert!(loaded.torn.is_some());
                let seen = Position { file_id: ID, offset: ends[7] };
                loaded.check_vouched(FOLDER.as_ref(), seen).unwrap_err();
            }
        }
    }
}

#[test]
fn a_damaged_current_is_refused() {
    let fs = new_fs();
    small_manifest(&fs, ID);
    let current = format!("{FOLDER}/CURRENT");
    let bytes = fs.read(&current).unwrap().len();
    for at in 0..bytes {
        for mask in [1, 0x80] {
            let bad = with_file(&fs, &current, |bytes| bytes[at] ^= mask);
            assert_eq!(corrupt_at(&load_from(&*bad).unwrap_err(), "CURRENT"), 0, "byte {at}");
        }
        let cut = with_file(&fs, &current, |bytes| bytes.truncate(at));
        corrupt_at(&load_from(&*cut).unwrap_err(), "CURRENT");
    }
    let long = with_file(&fs, &current, |bytes| bytes.push(0));
    corrupt_at(&load_from(&*long).unwrap_err(), "CURRENT");
}

#[test]
fn a_manifest_that_is_missing_or_another_one_is_refused() {
    let fs = new_fs();
    small_manifest(&fs, ID);
    let gone = with_file(&fs, &path(ID), |_| ());
    gone.unlink(path(ID).as_ref()).unwrap();
    corrupt_at(&load_from(&*gone).unwrap_err(), NAME);
    let other = new_fs();
    small_manifest(&other, 5);
    let bytes = other.read(path(5)).unwrap();
    let swapped = with_file(&fs, &path(ID), |old| *old = bytes.to_vec());
    corrupt_at(&load_from(&*swapped).unwrap_err(), NAME);
}

#[test]
fn a_current_that_went_back_is_found_by_the_logs() {
    let fs = new_fs();
    small_manifest(&fs, ID);
    let loaded = load_from(&*fs).unwrap().unwrap();
    let newer = Position { file_id: 9, offset: 0 };
    let error = loaded.check_vouched(FOLDER.as_ref(), newer).unwrap_err();
    corrupt_at(&error, "CURRENT");
    let older = Position { file_id: 3, offset: 1 << 40 };
    loaded.check_vouched(FOLDER.as_ref(), older).unwrap();
}

#[test]
fn edits_that_do_not_fit_are_damage() {
    let fs = new_fs();
    let mut manifest = create(&fs, ID);
    let before = manifest.state().clone();
    let edit = VersionEdit { keyspaces_dropped: vec![9], ..VersionEdit::default() };
    assert!(matches!(manifest.append(&edit, no_id), Err(Error::Corrupt { .. })));
    assert_eq!(manifest.state(), &before);
    // Nothing was written, so the manifest remains usable.
    let _ = manifest.append(&edits()[0], no_id).unwrap();
    assert_eq!(load_from(&*fs).unwrap().unwrap().state, states(ID)[1]);
}

#[test]
fn what_current_says_is_durable() {
    let fs = new_fs();
    let manifest = create(&fs, ID);
    let current = Current::read(&*fs, FOLDER.as_ref()).unwrap().unwrap();
    assert_eq!(current, Current { store_id: STORE, manifest: manifest.position() });
}
