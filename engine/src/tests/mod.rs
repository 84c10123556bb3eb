//! Shared by unit tests: random numbers, golden files, records and damage.

pub(crate) mod scenario;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;

use crate::{
    Error,
    fs::{Fs, MemoryFs},
    log::{Payload, PendingRecord},
};

pub(crate) const EIO: i32 = 5;
pub(crate) const ENOSPC: i32 = 28;

/// Reproducible random numbers: splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns `true` once in `n` times on average.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Returns the seeds of a random test: `rounds` seeds, or `SIEVE_SEED`. Prints each before its use,
/// so the last one printed is the one that failed.
pub(crate) fn seeds(rounds: u64) -> impl Iterator<Item = u64> {
    let only = std::env::var("SIEVE_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let range = only.map_or(0..rounds, |seed| seed..seed + 1);
    range.inspect(|seed| eprintln!("SIEVE_SEED={seed}"))
}

/// Compares `got` with the golden file `testdata/<name>`; `REWRITE=1` writes the file instead.
#[expect(clippy::disallowed_methods, reason = "golden files are not in the store under test")]
pub(crate) fn check_golden(name: &str, got: &str) {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "testdata", name].iter().collect();
    if std::env::var_os("REWRITE").is_some() {
        std::fs::create_dir_all(path.parent().expect("a file in testdata")).unwrap();
        std::fs::write(&path, got).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, want, "{} differs; REWRITE=1 accepts the new form", path.display());
}

/// Returns `bytes` in hexadecimal, 32 in a line.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| {
        let digits: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        digits + "\n"
    };
    bytes.chunks(32).map(line).collect()
}

/// A record with a payload.
pub(crate) fn pending(sequence: u64, payload: impl Into<Bytes>) -> PendingRecord {
    PendingRecord { sequence, payload: Payload::new(payload.into()) }
}

/// A copy of `fs` with one file changed. All of it is durable.
pub(crate) fn with_file(
    fs: &MemoryFs,
    path: &str,
    change: impl FnOnce(&mut Vec<u8>),
) -> Arc<MemoryFs> {
    let copy = fs.crash(fs.operations(), &crate::fs::Loss::Nothing);
    let mut bytes = copy.read(path).unwrap().to_vec();
    change(&mut bytes);
    copy.replace(path, bytes).unwrap();
    Arc::new(copy)
}

/// The offset of an [`Error::Corrupt`] in the file `name`; panics at every other error.
pub(crate) fn corrupt_at(error: &Error, name: &str) -> u64 {
    match error {
        Error::Corrupt { path, offset, .. } if path.ends_with(name) => *offset,
        other => panic!("{name} should be corrupt: {other:?}"),
    }
}

/// Bytes of a file.
pub(crate) fn file_bytes(fs: &dyn Fs, path: &str) -> u64 {
    fs.open(path.as_ref()).unwrap().len().unwrap()
}
