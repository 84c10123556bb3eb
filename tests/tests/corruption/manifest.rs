//! Damage to the manifest. Only its very end may be missing without a refusal; logs and tables
//! contain most of the last edits. A truncated end is reported.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use sievedb::{Event, EventListener, FilterPolicy, Options, ReadMode};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::settings::STORE_DIR;

use super::{
    cases::Cases,
    reading::Verdict,
    sample::Sample,
    script::{End, sample},
    tables::flipped,
};

/// Runs a case with other bytes in the manifest. Returns whether the store was refused.
fn run(cases: &mut Cases, sample: &Sample, name: &str, what: &str, bytes: Bytes) -> bool {
    let mut refused = false;
    cases.run(&format!("{name}: {what}"), || {
        let files = sample.with(name, bytes);
        let last = sample.last_state();
        let verdict = Verdict::of(sample, &files, ReadMode::Pread, &[last])?;
        match verdict {
            Verdict::Read { errors, .. } if !errors.is_empty() => {
                Err(format!("opened, and then {errors:?}"))
            }
            Verdict::Read { .. } => Ok(()),
            Verdict::Refused(_) => {
                refused = true;
                // An older manifest may name a missing log.
                let older = (1..20).map(|id| format!("{id:06}.log"));
                let older = older.chain((1..20).map(|id| format!("{id:06}.sst")));
                let names: Vec<_> = older.chain([name.to_owned(), "CURRENT".to_owned()]).collect();
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                verdict.check_errors(sample, &names)
            }
        }
    });
    refused
}

#[test]
fn flipped_byte_of_a_manifest_is_refused_or_harmless() {
    for end in [End::PowerCut, End::Closed] {
        let sample = sample(end);
        let (mut cases, mut refused) = (Cases::new(), 0);
        let name = sample.names("MANIFEST-", "").pop().expect("a manifest");
        let good = &sample.files[&name];
        for at in 0..good.len() {
            let flip = 1 << (at % 8);
            let (what, bytes) = (format!("byte {at} ^ {flip:#04x}"), flipped(good, at, flip));
            refused += usize::from(run(&mut cases, &sample, &name, &what, bytes));
        }
        println!("manifest, bytes, {end:?}: {} cases, {refused} refused", cases.count());
        assert!(refused > good.len() * 3 / 4, "{refused} of {}", good.len());
        cases.finish(good.len());
    }
}

#[test]
fn manifest_of_wrong_length_is_refused_or_harmless() {
    for end in [End::PowerCut, End::Closed] {
        let sample = sample(end);
        let (mut cases, mut refused) = (Cases::new(), 0);
        let name = sample.names("MANIFEST-", "").pop().expect("a manifest");
        let good = &sample.files[&name];
        for bytes in 0..good.len() {
            let (what, bytes) = (format!("cut to {bytes}"), good.slice(..bytes));
            refused += usize::from(run(&mut cases, &sample, &name, &what, bytes));
        }
        println!("manifest, lengths, {end:?}: {} cases, {refused} refused", cases.count());
        assert!(refused > good.len() * 3 / 4, "{refused} of {}", good.len());
        // `CLOSED` marks the last edit as synced.
        assert!(end == End::PowerCut || refused == good.len(), "{refused} of {}", good.len());
        for more in [1, 8, 40, 4096] {
            for byte in [0, 0xff] {
                let bytes = [good, &vec![byte; more][..]].concat().into();
                let what = format!("{more} bytes {byte:#04x} more");
                assert!(!run(&mut cases, &sample, &name, &what, bytes), "a torn tail: {what}");
            }
        }
        cases.finish(good.len() + 8);
    }
}

/// Records where manifests were truncated.
#[derive(Debug, Default)]
struct Cuts(Mutex<Vec<(u64, u64, u64)>>);

impl EventListener for Cuts {
    fn on_event(&self, event: &Event) {
        if let Event::TornManifest { manifest_id, offset, bytes, .. } = *event {
            self.0.lock().unwrap().push((manifest_id, offset, bytes));
        }
    }
}

/// No synced mark covers the last edit of a store that was not closed: damage to it looks like a
/// torn tail. It is truncated and reported.
#[test]
fn truncated_manifest_tail_is_reported() {
    let fs = Arc::new(MemoryFs::new());
    let listener = Arc::<Cuts>::default();
    let options = |fs: &Arc<MemoryFs>| {
        Options::new().fs(fs.clone()).worker_threads(0).listener(listener.clone())
    };
    let db = options(&fs).open(STORE_DIR).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    let manifest = fs.contents().into_keys().find(|path| path.contains("MANIFEST-")).unwrap();
    let before = fs.read(&*manifest).unwrap().len() as u64;
    keyspace.set_filter_policy(FilterPolicy::default().bits_per_key(16.0)).unwrap();
    let after = fs.read(&*manifest).unwrap().len() as u64;
    assert!(after > before);
    for flipped in [None, Some(before), Some(after - 9)] {
        let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
        if let Some(at) = flipped {
            let mut bytes = crashed.read(&*manifest).unwrap().to_vec();
            bytes[at as usize] ^= 1;
            crashed.replace(&*manifest, bytes).unwrap();
        }
        let report = options(&crashed).verify(STORE_DIR, |_| ()).unwrap();
        assert!(report.is_good(), "a crash may have broken it off: {report}");
        let noted = report.torn_tails.iter().map(|end| (end.path.as_path(), end.offset, end.bytes));
        let cut = flipped.map(|_| (before, after - before));
        let want = cut.map(|(offset, bytes)| (Path::new(&*manifest), offset, bytes));
        assert_eq!(noted.collect::<Vec<_>>(), Vec::from_iter(want), "{report}");
        assert_eq!(report.to_string().contains("are no record"), flipped.is_some(), "{report}");

        let opened = options(&crashed).open(STORE_DIR).unwrap();
        assert_eq!(opened.keyspaces().unwrap(), ["default", "k"], "the log has it");
        let told = std::mem::take(&mut *listener.0.lock().unwrap());
        let told: Vec<_> = told.into_iter().map(|(_, offset, bytes)| (offset, bytes)).collect();
        assert_eq!(told, Vec::from_iter(cut));
        let stats = opened.stats();
        assert_eq!(stats.opening.manifest_bytes_cut, cut.map_or(0, |(_, bytes)| bytes));
        assert_eq!(stats.to_string().contains("truncated"), flipped.is_some(), "{stats}");
        drop(opened);
        assert!(options(&crashed).verify(STORE_DIR, |_| ()).unwrap().torn_tails.is_empty());
    }
}
