//! Missing, swapped and foreign files.

use std::{collections::BTreeMap, path::Path};

use sievedb::{Error, ReadMode, fs::Fs};

use super::{
    cases::Cases,
    reading::Verdict,
    sample::{Files, STORE_DIR, Sample, disk, open},
    script::{End, sample, sibling},
};

/// Runs the case of a store with other files. It must be refused because of one of `damaged`.
fn run_refused(cases: &mut Cases, sample: &Sample, what: &str, files: &Files, damaged: &[&str]) {
    cases.run(what, || {
        let verdict = Verdict::of(sample, files, ReadMode::Pread, &[sample.last_state()])?;
        verdict.check_errors(sample, damaged)?;
        match verdict {
            Verdict::Refused(_) => Ok(()),
            Verdict::Read { .. } => Err("opened".to_owned()),
        }
    });
}

/// Returns the files that a store requires.
fn needed(sample: &Sample) -> Vec<&str> {
    let names = sample.files.keys().map(String::as_str);
    names.filter(|name| !["LOCK", "CLOSED"].contains(name)).collect()
}

#[test]
fn missing_file_is_refused() {
    for end in [End::PowerCut, End::Closed] {
        let sample = sample(end);
        let mut cases = Cases::new();
        for name in needed(&sample) {
            let mut files = sample.files.clone();
            files.remove(name);
            run_refused(&mut cases, &sample, &format!("{end:?}: {name} missing"), &files, &[name]);
        }
        cases.finish(8);
    }
}

#[test]
fn swapped_files_are_refused() {
    for end in [End::PowerCut, End::Closed] {
        let sample = sample(end);
        let mut cases = Cases::new();
        let names = needed(&sample);
        for (at, a) in names.iter().enumerate() {
            for b in &names[at + 1..] {
                let mut files = sample.with(a, sample.files[*b].clone());
                files.insert((*b).to_owned(), sample.files[*a].clone());
                run_refused(&mut cases, &sample, &format!("{end:?}: {a} and {b}"), &files, &[a, b]);
            }
        }
        cases.finish(8 * 7 / 2);
    }
}

#[test]
fn file_of_another_store_is_refused() {
    for end in [End::PowerCut, End::Closed] {
        let (sample, sibling) = (sample(end), sibling(end));
        let mut cases = Cases::new();
        for name in needed(&sample) {
            let files = sample.with(name, sibling.files[name].clone());
            let manifest = sample.names("MANIFEST-", "").pop().expect("a manifest");
            let damaged = if name == "CURRENT" { manifest.as_str() } else { name };
            let what = format!("{end:?}: {name} of another store");
            let all = [name, damaged];
            run_refused(&mut cases, &sample, &what, &files, &all);
        }
        cases.finish(8);
    }
}

#[test]
fn foreign_files_are_kept() {
    let sample = sample(End::Closed);
    let foreign = [
        "notes.txt",
        "notes.tmp",
        "12.sst",
        "000012.SST",
        "0000000x.log",
        "MANIFEST-",
        "MANIFEST-1",
    ];
    // Files of the store that the manifest does not name.
    let orphans = ["900000.sst", "MANIFEST-000000", "CURRENT.tmp"];
    let mut files = sample.files.clone();
    for name in foreign.iter().chain(&orphans) {
        files.insert((*name).to_owned(), "left here".into());
    }
    let verdict = Verdict::of(&sample, &files, ReadMode::Pread, &[sample.last_state()]);
    assert!(matches!(verdict, Ok(Verdict::Read { errors, .. }) if errors.is_empty()));

    let fs = disk(&files);
    drop(open(fs.clone(), ReadMode::Pread).unwrap());
    let left = fs.list(Path::new(STORE_DIR)).unwrap();
    for name in foreign {
        assert!(left.iter().any(|left| left == name), "{name} was deleted");
    }
    for name in orphans {
        assert!(left.iter().all(|left| left != name), "{name} was kept");
    }
}

#[test]
fn refused_store_is_unchanged() {
    let sample = sample(End::PowerCut);
    for name in needed(&sample) {
        let mut files = sample.with(name, sample.files[name].slice(..sample.files[name].len() / 2));
        let fs = disk(&files);
        // A log may be truncated, a table must not.
        let Err(error) = open(fs.clone(), ReadMode::Pread) else { continue };
        assert!(matches!(error, Error::Corrupt { .. }), "{name}: {error:?}");
        let after: BTreeMap<_, _> = super::sample::files(&fs);
        files.retain(|name, _| name != "LOCK");
        for (other, bytes) in files {
            assert_eq!(after.get(&other), Some(&bytes), "{name} cut: {other} was changed");
        }
    }
}
