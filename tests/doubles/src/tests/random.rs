//! Random scripts whose crashes are compared with a reference model.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb::fs::{AppendFile, Fs};

use crate::{Loss, MemoryFs, fs::random::SplitMix64};

const SCRIPTS: u64 = 60;
const CALLS: usize = 80;

/// Reference state of a file.
#[derive(Default)]
struct Known {
    handle: Option<Arc<dyn AppendFile>>,
    bytes: Vec<u8>,
    synced_bytes: usize,
    /// Length with reserved bytes, current and durable.
    file_bytes: usize,
    synced_file_bytes: usize,
}

impl Known {
    /// The first `end` bytes, with zeros up to `file_bytes`.
    fn content(&self, end: usize, file_bytes: usize) -> Vec<u8> {
        let mut bytes = self.bytes[..end].to_vec();
        bytes.resize(file_bytes.max(end), 0);
        bytes
    }
}

/// Reference model: files by number, with current and durable entries.
#[derive(Default)]
struct Account {
    files: Vec<Known>,
    live: BTreeMap<PathBuf, usize>,
    durable: BTreeMap<PathBuf, usize>,
}

impl Account {
    fn sync_dir(&mut self, dir: &Path) {
        self.durable.retain(|path, _| path.parent() != Some(dir));
        let here = self.live.iter().filter(|(path, _)| path.parent() == Some(dir));
        self.durable.extend(here.map(|(path, file)| (path.clone(), *file)));
    }

    fn contents(&self) -> BTreeMap<Arc<str>, Bytes> {
        let bytes = |file: usize| {
            let known = &self.files[file];
            known.content(known.bytes.len(), known.file_bytes)
        };
        contents(&self.live, bytes)
    }

    fn durable_contents(&self) -> BTreeMap<Arc<str>, Bytes> {
        let bytes = |file: usize| {
            let known = &self.files[file];
            known.content(known.synced_bytes, known.synced_file_bytes)
        };
        contents(&self.durable, bytes)
    }
}

fn contents(
    entries: &BTreeMap<PathBuf, usize>,
    bytes: impl Fn(usize) -> Vec<u8>,
) -> BTreeMap<Arc<str>, Bytes> {
    let entries = entries.iter();
    entries.map(|(path, file)| (path.to_str().unwrap().into(), bytes(*file).into())).collect()
}

/// Makes one random call on the disk and in the model.
fn step(fs: &MemoryFs, account: &mut Account, lots: &mut SplitMix64) {
    let dir = Path::new(["x", "y"][lots.below(2)]);
    let path = dir.join(["a", "b", "c", "d"][lots.below(4)]);
    let other = dir.join(["a", "b", "c", "d"][lots.below(4)]);
    let number = lots.below(account.files.len().max(1));
    let file = account.files.get_mut(number).filter(|file| file.handle.is_some());
    match lots.below(13) {
        0 | 1 => {
            if let Ok(handle) = fs.create(&path) {
                let handle = Some(handle);
                account.live.insert(path, account.files.len());
                account.files.push(Known { handle, ..Known::default() });
            }
        }
        2..6 => {
            if let Some(Known { handle: Some(handle), bytes, .. }) = file {
                let fresh = vec![1 + lots.below(255) as u8; 1 + lots.below(1400)];
                handle.append(&fresh).unwrap();
                bytes.extend(fresh);
            }
        }
        6 => {
            if let Some(known) = file {
                known.handle.as_ref().unwrap().sync_data().unwrap();
                known.synced_bytes = known.bytes.len();
                known.synced_file_bytes = known.file_bytes;
            }
        }
        7 => {
            if fs.unlink(&path).is_ok() {
                account.live.remove(&path);
            }
        }
        8 => {
            let same = account.live.get(&path) == account.live.get(&other);
            if fs.rename(&path, &other).is_ok() && !same {
                let file = account.live.remove(&path).unwrap();
                account.live.insert(other, file);
            }
        }
        9 => {
            if let Some(known) = file {
                let file_bytes = lots.below(2 * known.bytes.len().max(1000));
                known.handle.as_ref().unwrap().reserve(file_bytes as u64).unwrap();
                known.file_bytes = known.file_bytes.max(file_bytes);
            }
        }
        10 => {
            if fs.link(&path, &other).is_ok() {
                account.live.insert(other, account.live[&path]);
            }
        }
        _ => {
            fs.sync_dir(dir).unwrap();
            account.sync_dir(dir);
        }
    }
}

/// Checks that each file after a crash existed before, with each byte as written or zero.
fn check_plausible(found: &BTreeMap<Arc<str>, Bytes>, account: &Account, what: &str) {
    for (path, bytes) in found {
        let fits = |known: &Known| {
            bytes.len() <= known.bytes.len().max(known.file_bytes)
                && bytes.len() >= known.synced_bytes.max(known.synced_file_bytes)
                && bytes[..known.synced_bytes] == known.bytes[..known.synced_bytes]
                && bytes.iter().zip(&known.bytes).all(|(found, was)| *found == 0 || found == was)
                && bytes.iter().skip(known.bytes.len()).all(|found| *found == 0)
        };
        assert!(account.files.iter().any(fits), "{path}: {what}");
    }
}

#[test]
fn random_crashes_match_the_reference_model() {
    let first = env::var("SIEVE_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in first.map_or(0..SCRIPTS, |seed| seed..seed + 1) {
        eprintln!("SIEVE_SEED={seed}");
        let mut lots = SplitMix64(seed);
        let dir = tempfile::tempdir().unwrap();
        let reopen = || MemoryFs::kept_in(&dir.path().join("disk")).unwrap();
        let mut fs = reopen();
        fs.create_dir(Path::new("x")).unwrap();
        fs.create_dir(Path::new("y")).unwrap();
        fs.sync_dir(Path::new("")).unwrap();
        fs = reopen();
        let mut account = Account::default();
        for round in 0..2 {
            // Current and durable state for each length of the journal.
            let mut past = vec![(account.contents(), account.durable_contents())];
            for _ in 0..CALLS {
                step(&fs, &mut account, &mut lots);
                past.truncate(fs.operations());
                past.push((account.contents(), account.durable_contents()));
            }
            for (at, (live, durable)) in past.iter().enumerate() {
                let check = |loss, want| {
                    let found = fs.crash(at, &loss).contents();
                    assert!(&found == want, "seed {seed} round {round}: {}", fs.trace(at, &loss));
                };
                check(Loss::Nothing, live);
                check(Loss::Everything, durable);
            }
            let at = fs.operations();
            assert_eq!(fs.contents(), past[at].0, "seed {seed}: the disk itself");
            for torn in [false, true] {
                let loss = Loss::Random { seed, torn };
                let found = fs.crash(at, &loss).contents();
                assert_eq!(found, fs.crash(at, &loss).contents(), "seed {seed}: the same lots");
                check_plausible(&found, &account, &fs.trace(at, &loss));
            }

            // The second round continues after a crash that loses everything unsynced, without old
            // handles.
            fs = reopen();
            assert_eq!(fs.contents(), past[at].1, "seed {seed}: the file");
            account.live.clone_from(&account.durable);
            for file in &mut account.files {
                file.handle = None;
                // Reserved bytes are part of the file from here on.
                file.bytes = file.content(file.synced_bytes, file.synced_file_bytes);
                file.synced_bytes = file.bytes.len();
                file.file_bytes = file.bytes.len();
                file.synced_file_bytes = file.bytes.len();
            }
        }
    }
}
