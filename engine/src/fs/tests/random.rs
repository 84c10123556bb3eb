//! Random scripts, whose crashes are compared with a second account of what is durable.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::super::{AppendFile, Fs, Loss, MemoryFs, random::SplitMix64};

const SCRIPTS: u64 = 60;
const CALLS: usize = 80;

/// What the test itself knows of a file.
struct Known {
    handle: Option<Arc<dyn AppendFile>>,
    bytes: Vec<u8>,
    synced_bytes: usize,
}

/// The test's own account: files by number, entries as they are and as they are durable.
#[derive(Default)]
struct Account {
    files: Vec<Known>,
    live: BTreeMap<PathBuf, usize>,
    durable: BTreeMap<PathBuf, usize>,
}

impl Account {
    fn sync_folder(&mut self, folder: &Path) {
        self.durable.retain(|path, _| path.parent() != Some(folder));
        let here = self.live.iter().filter(|(path, _)| path.parent() == Some(folder));
        self.durable.extend(here.map(|(path, file)| (path.clone(), *file)));
    }

    fn contents(&self) -> BTreeMap<Arc<str>, Bytes> {
        let bytes = |file: usize| self.files[file].bytes.clone();
        contents(&self.live, bytes)
    }

    fn durable_contents(&self) -> BTreeMap<Arc<str>, Bytes> {
        let bytes = |file: usize| {
            let known = &self.files[file];
            known.bytes[..known.synced_bytes].to_vec()
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

/// One random call on the disk and in the account.
fn step(fs: &MemoryFs, account: &mut Account, lots: &mut SplitMix64) {
    let folder = Path::new(["x", "y"][lots.below(2)]);
    let path = folder.join(["a", "b", "c", "d"][lots.below(4)]);
    let other = folder.join(["a", "b", "c", "d"][lots.below(4)]);
    let number = lots.below(account.files.len().max(1));
    let file = account.files.get_mut(number).filter(|file| file.handle.is_some());
    match lots.below(12) {
        0 | 1 => {
            if let Ok(handle) = fs.create(&path) {
                let handle = Some(handle);
                account.live.insert(path, account.files.len());
                account.files.push(Known { handle, bytes: Vec::new(), synced_bytes: 0 });
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
            if let Some(Known { handle: Some(handle), bytes, synced_bytes }) = file {
                handle.sync_data().unwrap();
                *synced_bytes = bytes.len();
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
            if fs.link(&path, &other).is_ok() {
                account.live.insert(other, account.live[&path]);
            }
        }
        _ => {
            fs.sync_folder(folder).unwrap();
            account.sync_folder(folder);
        }
    }
}

/// Every file that a crash left is one that was, with each byte as written or zero.
fn check_plausible(found: &BTreeMap<Arc<str>, Bytes>, account: &Account, what: &str) {
    for (path, bytes) in found {
        let fits = |known: &Known| {
            bytes.len() <= known.bytes.len()
                && bytes.len() >= known.synced_bytes
                && bytes[..known.synced_bytes] == known.bytes[..known.synced_bytes]
                && bytes.iter().zip(&known.bytes).all(|(found, was)| *found == 0 || found == was)
        };
        assert!(account.files.iter().any(fits), "{path}: {what}");
    }
}

#[test]
fn random_scripts_crash_as_the_account_says() {
    let first = env::var("SIEVE_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in first.map_or(0..SCRIPTS, |seed| seed..seed + 1) {
        eprintln!("SIEVE_SEED={seed}");
        let mut lots = SplitMix64(seed);
        let mut fs = MemoryFs::new();
        fs.create_folder(Path::new("x")).unwrap();
        fs.create_folder(Path::new("y")).unwrap();
        fs.settle();
        let mut account = Account::default();
        for round in 0..2 {
            // Per length of the journal: what was seen and what was durable.
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

            // The second round goes on from what the first one lost, without its handles.
            fs = fs.crash(at, &Loss::Everything);
            account.live.clone_from(&account.durable);
            for file in &mut account.files {
                file.handle = None;
                file.bytes.truncate(file.synced_bytes);
            }
        }
    }
}
