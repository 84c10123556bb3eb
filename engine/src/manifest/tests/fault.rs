//! Failing calls, and crashes at every call.

use super::*;
use crate::{
    Error,
    fs::{Call, Fault, FaultFs, Loss, Times},
    tests::{EIO, ENOSPC, Random, seeds},
};

fn faulty() -> (Arc<MemoryFs>, Arc<FaultFs>) {
    let memory = new_fs();
    (memory.clone(), Arc::new(FaultFs::new(memory)))
}

#[test]
fn after_a_full_disk_the_next_edit_goes_to_a_new_manifest() {
    for written_bytes in [0, 1, 50, 10_000] {
        let (memory, fs) = faulty();
        let mut manifest = create(&fs, 4);
        let edits = edits();
        assert_eq!(manifest.append(&edits[0], no_id).unwrap().replaced, None);
        let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]);
        fs.inject(fault.written_bytes(written_bytes));
        let error = manifest.append(&edits[1], no_id).unwrap_err();
        assert!(error.is_no_space() && !manifest.is_failed());
        let state = states(4);
        assert_eq!(manifest.state(), &state[1]);
        // Until then the edit may reappear as a whole.
        let loaded = load_from(&*memory).unwrap().unwrap();
        assert_eq!(loaded.state, state[if written_bytes == 10_000 { 2 } else { 1 }]);
        // The disk stays full for a while: during the file, then `CURRENT`, then its rename.
        let full = Fault::new(ENOSPC, Times::Once);
        fs.inject(full.clone().calls(&[Call::Create]).suffix("000005"));
        assert!(manifest.append(&edits[1], || 5).unwrap_err().is_no_space());
        fs.inject(full.clone().calls(&[Call::Append]).suffix("CURRENT.tmp"));
        assert!(manifest.append(&edits[1], || 6).unwrap_err().is_no_space());
        fs.inject(full.calls(&[Call::Rename]));
        assert!(manifest.append(&edits[1], || 7).unwrap_err().is_no_space());
        assert!(!manifest.is_failed());
        // The disk has room again.
        let appended = manifest.append(&edits[1], || 8).unwrap();
        assert_eq!(appended.replaced, Some(4));
        assert_eq!(manifest.append(&edits[2], no_id).unwrap().replaced, None);
        let crashed = memory.crash(memory.operations(), &Loss::Everything);
        let loaded = load_from(&crashed).unwrap().unwrap();
        assert_eq!((loaded.state, loaded.end.file_id), (state[3].clone(), 8));
        let names = crashed.list(FOLDER.as_ref()).unwrap();
        assert!(names.iter().all(|name| !name.ends_with('7')), "abandoned, not removed: {names:?}");
    }
}

#[test]
fn every_other_error_is_final() {
    let full_sync = Fault::new(ENOSPC, Times::Once).calls(&Call::SYNCS);
    let cases = [
        ("append", Fault::new(EIO, Times::Once).calls(&[Call::Append])),
        ("sync", Fault::new(EIO, Times::Once).calls(&Call::SYNCS)),
        ("a sync on a full disk", full_sync),
    ];
    for (name, fault) in cases {
        let (memory, fs) = faulty();
        let mut manifest = create(&fs, 4);
        fs.inject(fault);
        assert!(matches!(manifest.append(&edits()[0], no_id), Err(Error::Io { .. })), "{name}");
        assert!(manifest.is_failed(), "{name}");
        fs.heal();
        let again = manifest.append(&edits()[0], no_id);
        assert!(matches!(again, Err(Error::ReadOnly { .. })), "{name}: {again:?}");
        assert_eq!(manifest.state(), &states(4)[0], "{name}");
        // A reopened store has the edit or not.
        let loaded = load_from(&*memory).unwrap().unwrap();
        assert!(states(4)[..2].contains(&loaded.state), "{name}");
    }
}

#[test]
fn a_call_that_fails_leaves_a_manifest_that_loads() {
    let (_, counter) = faulty();
    small_manifest(&counter, 4);
    let calls = counter.calls();
    for call in 0..calls {
        for error in [EIO, ENOSPC] {
            for times in [Times::Once, Times::ForGood] {
                let case = format!("call {call} of {calls}, error {error}, {times:?}");
                let (memory, fs) = faulty();
                fs.fail_at(call, error, times);
                let state = ManifestState::new(STORE, SEED);
                let manifest = ManifestFile::create(fs.clone(), FOLDER.into(), 4, state);
                let mut durable = None;
                if let Ok(mut manifest) = manifest {
                    let (mut next_id, mut appended) = (5, 0);
                    durable = Some(0);
                    for edit in edits() {
                        let new_id = || {
                            next_id += 1;
                            next_id
                        };
                        if manifest.append(&edit, new_id).is_err() {
                            break;
                        }
                        appended += 1;
                        durable = Some(appended);
                    }
                }
                for loss in [Loss::Nothing, Loss::Everything] {
                    let crashed = memory.crash(memory.operations(), &loss);
                    let loaded = load_from(&crashed).unwrap_or_else(|e| panic!("{case}: {e:?}"));
                    let Some(durable) = durable else { continue };
                    let state = loaded.unwrap_or_else(|| panic!("{case}: no store")).state;
                    let legal = &states(4)[durable..(durable + 2).min(8)];
                    assert!(legal.contains(&state), "{case}: {durable} edits were durable");
                }
            }
        }
    }
}

#[test]
fn a_crash_leaves_every_edit_that_was_durable() {
    for seed in seeds(20) {
        let mut random = Random::new(seed);
        let (memory, fs) = faulty();
        // (journal length, edits durable then), for the first manifest and one that replaces it.
        let mut durable = Vec::new();
        let mut manifest = create(&fs, 4);
        durable.push((memory.operations(), 0));
        for (index, edit) in edits().iter().enumerate() {
            if random.one_in(3) {
                let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]);
                fs.inject(fault.written_bytes(random.below(300) as usize));
                manifest.append(edit, no_id).unwrap_err();
            }
            let _ = manifest.append(edit, || 5 + index as u64).unwrap();
            durable.push((memory.operations(), index + 1));
        }
        let states = states(4);
        for cut in 0..=memory.operations() {
            for round in 0..8 {
                let loss = match round {
                    0 => Loss::Nothing,
                    1 => Loss::Everything,
                    _ => Loss::Random { seed: random.next(), torn: round % 2 == 0 },
                };
                let case = format!("seed {seed}, cut at {cut}, {loss:?}");
                let crashed = memory.crash(cut, &loss);
                let loaded = load_from(&crashed).unwrap_or_else(|e| panic!("{case}: {e:?}"));
                let Some((_, edits)) = durable.iter().rev().find(|(at, _)| *at <= cut) else {
                    continue;
                };
                let mut found = loaded.unwrap_or_else(|| panic!("{case}: no store")).state;
                // A new manifest has a new id; nothing else differs.
                found.next_file_id = states[*edits].next_file_id;
                let legal = states[*edits..].iter().take(2).map(|state| {
                    let next_file_id = found.next_file_id;
                    ManifestState { next_file_id, ..state.clone() }
                });
                assert!(legal.into_iter().any(|state| state == found), "{case}");
            }
        }
    }
}

/// Appends an edit of 60 KiB, which removes what the edit before added. Returns the replaced
/// manifest.
fn append_long(manifest: &mut ManifestFile, sequence: u64, new_id: u64) -> Option<u64> {
    let key = vec![b'k'; 60 << 10];
    let mut table = TableMeta::clone(&table(9, 0, "", ""));
    (table.bounds.largest, table.largest_sequence) = (key.into(), 100 + sequence);
    let tables_removed = if sequence > 1 { vec![(1, 9)] } else { vec![] };
    let tables_added = vec![(1, Arc::new(table))];
    let edit = VersionEdit { tables_removed, tables_added, ..VersionEdit::default() };
    manifest.append(&edit, || new_id).unwrap().replaced
}

#[test]
fn a_long_manifest_is_written_anew() {
    let fs = new_fs();
    let mut manifest = create(&fs, 1);
    let mut replaced = Vec::new();
    let _ = manifest.append(&edits()[0], no_id).unwrap();
    for sequence in 1..60_u64 {
        replaced.extend(append_long(&mut manifest, sequence, 2 + sequence));
        assert!(manifest.position().offset < 2 << 20);
    }
    assert!(replaced.len() > 1, "{replaced:?}");
    let loaded = load_from(&*fs).unwrap().unwrap();
    assert_eq!(&loaded.state, manifest.state());
    assert_eq!(loaded.end, manifest.position());
}

/// The edit may be one that frees space.
#[test]
fn a_long_manifest_is_continued_while_the_disk_has_no_room_for_a_new_one() {
    let (memory, fs) = faulty();
    let mut manifest = create(&fs, 1);
    let _ = manifest.append(&edits()[0], no_id).unwrap();
    let full = Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Append]);
    for id in 3..63 {
        // Room for the next edit, and not for a manifest.
        fs.inject(full.clone().suffix(format!("{id:06}")));
    }
    for sequence in 1..60 {
        assert_eq!(append_long(&mut manifest, sequence, 2 + sequence), None);
    }
    let (tries, bytes) = (fs.failures(), manifest.position().offset);
    assert!((1..=4).contains(&tries), "{tries} attempts in {bytes} bytes");
    let loaded = load_from(&*memory).unwrap().unwrap();
    assert_eq!((&loaded.state, loaded.end), (manifest.state(), manifest.position()));
    let names = memory.list(FOLDER.as_ref()).unwrap();
    assert_eq!(names.iter().filter(|name| name.starts_with("MANIFEST")).count(), 1, "{names:?}");
    fs.heal();
    let append = |sequence| append_long(&mut manifest, sequence, 2 + sequence);
    let replaced: Vec<_> = (60..100).filter_map(append).collect();
    assert_eq!(replaced.first(), Some(&1));
    assert_eq!(&load_from(&*memory).unwrap().unwrap().state, manifest.state());
}
