//! Damage is an error, never a panic and never another value.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use sievedb_migrate::{Error, Options};

use crate::{FIXTURES, copy, dump};

/// Returns the files of a directory that the crate reads, without the expected entries.
fn files(path: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = names.filter(|path| !path.ends_with("EXPECTED")).collect();
    files.sort();
    files
}

/// Returns `true` if a checksum covers every byte of the file that the crate reads.
fn is_covered(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst" || extension == "blob")
}

/// Returns `true` if an error names a position or the missing part.
fn is_clear(error: &Error) -> bool {
    match error {
        Error::Corrupt { reason, .. } => !reason.is_empty(),
        Error::Unsupported { feature, .. } => !feature.is_empty(),
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn changed_bytes(
        fixture in 0..FIXTURES.len(),
        file in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        flipped in 1_u8..,
        count in 1_usize..9,
    ) {
        let copy = copy(FIXTURES[fixture]);
        let path = file.get(&files(copy.path())).clone();
        let want = fs::read_to_string(copy.path().join("EXPECTED")).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        prop_assume!(!bytes.is_empty());
        let at = at.index(bytes.len());
        for byte in bytes.iter_mut().skip(at).take(count) {
            *byte ^= flipped;
        }
        fs::write(&path, bytes).unwrap();
        match dump(copy.path(), &Options::new()) {
            Ok(found) => prop_assert!(!is_covered(&path) || found == want, "{}", path.display()),
            Err(error) => prop_assert!(is_clear(&error), "{error}"),
        }
    }

    #[test]
    fn truncated_files(
        fixture in 0..FIXTURES.len(),
        file in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
    ) {
        let copy = copy(FIXTURES[fixture]);
        let path = file.get(&files(copy.path())).clone();
        let bytes = fs::read(&path).unwrap();
        prop_assume!(!bytes.is_empty());
        fs::write(&path, &bytes[..at.index(bytes.len())]).unwrap();
        match dump(copy.path(), &Options::new()) {
            Ok(found) if is_covered(&path) => {
                // A blob file has a footer that the crate does not read.
                let want = fs::read_to_string(copy.path().join("EXPECTED")).unwrap();
                prop_assert_eq!(found, want);
            }
            Ok(_) => {}
            Err(error) => prop_assert!(is_clear(&error), "{error}"),
        }
    }
}

#[test]
fn a_torn_log_loses_its_last_records_only() {
    let copy = copy("compressed-log");
    let want = fs::read_to_string(copy.path().join("EXPECTED")).unwrap();
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let log = files(copy.path()).into_iter().find(is_log).unwrap();
    let bytes = fs::read(&log).unwrap();
    let mut fewer = 0;
    for cut in 1..40 {
        fs::write(&log, &bytes[..bytes.len() - cut]).unwrap();
        fewer += u32::from(dump(copy.path(), &Options::new()).unwrap() != want);
    }
    assert!(fewer > 10, "{fewer} of 39 cuts lost entries");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(&log, damaged).unwrap();
    let error = dump(copy.path(), &Options::new()).unwrap_err();
    assert!(error.to_string().contains("WAL recovery mode"), "{error}");
}

#[test]
fn a_log_may_end_with_zeros() {
    let copy = copy("transactions");
    let want = fs::read_to_string(copy.path().join("EXPECTED")).unwrap();
    for path in files(copy.path()) {
        if path.extension().is_some_and(|extension| extension == "log") {
            let mut bytes = fs::read(&path).unwrap();
            bytes.resize(bytes.len() + 100_000, 0);
            fs::write(&path, bytes).unwrap();
        }
    }
    assert_eq!(dump(copy.path(), &Options::new()).unwrap(), want);
}
