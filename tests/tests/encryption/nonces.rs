//! No nonce is used twice with one key, whatever is lost in a crash.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use sievedb::{
    Options,
    fs::{AppendFile, Fs},
    planted::PlantedBug,
};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    layer::{Layer, Layered},
    rng::mix,
    settings::{STORE_DIR, report, small_options},
};

use super::keys;

const HEAD_BYTES: usize = 128;
const FRAME_BYTES: usize = 24;
const PAGE_BYTES: usize = 4096 + 16;

/// All stored bytes of a file, by its path and the number of its creation.
type Files = Arc<Mutex<HashMap<(PathBuf, usize), Vec<u8>>>>;

/// Records every append, also those that a crash loses.
#[derive(Debug)]
struct Recording {
    disk: Arc<MemoryFs>,
    files: Files,
}

#[derive(Debug)]
struct RecordingFile {
    file: Arc<dyn AppendFile>,
    name: (PathBuf, usize),
    files: Files,
}

impl Recording {
    fn file(
        &self,
        path: &Path,
        file: Arc<dyn AppendFile>,
        mut bytes: Vec<u8>,
    ) -> Arc<dyn AppendFile> {
        let mut files = self.files.lock().unwrap();
        let name = (path.to_owned(), files.len());
        // A file that is continued has its head in front of what is appended.
        bytes.truncate(HEAD_BYTES);
        files.insert(name.clone(), bytes);
        Arc::new(RecordingFile { file, name, files: Arc::clone(&self.files) })
    }
}

impl Layer for Recording {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(self.file(path, self.disk.create(path)?, Vec::new()))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let head = self.disk.read(path)?.to_vec();
        Ok(self.file(path, self.disk.open_append(path)?, head))
    }
}

impl AppendFile for RecordingFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        files.get_mut(&self.name).unwrap().extend_from_slice(bytes);
        self.file.append(bytes)
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        self.file.reserve(file_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Returns each use of a nonce: the clear head of the file, which determines the key; the nonce;
/// and the encrypted bytes.
fn uses(stored: &[u8]) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let Some((head, mut rest)) = stored.split_at_checked(HEAD_BYTES) else { return Vec::new() };
    let mut uses = Vec::new();
    let is_paged = head[120] == 1;
    while !rest.is_empty() {
        let (nonce, length) = match is_paged {
            true => {
                let last = rest.len() <= PAGE_BYTES;
                (format!("{} {last}", uses.len()).into_bytes(), rest.len().min(PAGE_BYTES))
            }
            false => {
                let length = u32::from_le_bytes(rest[20..24].try_into().unwrap()) as usize;
                (rest[..12].to_vec(), FRAME_BYTES + length + 16)
            }
        };
        let (now, later) = rest.split_at(length);
        uses.push((head.to_vec(), nonce, now.to_vec()));
        rest = later;
    }
    uses
}

/// Writes, cuts the power and goes on, many times. Returns the number of nonces, or the one that
/// was used for two contents.
fn collect(planted: Option<PlantedBug>) -> Result<usize, String> {
    let files = Files::default();
    let mut disk = Arc::new(MemoryFs::new());
    for round in 0..30_u64 {
        let layer = Recording { disk: Arc::clone(&disk), files: Arc::clone(&files) };
        let fs = Arc::new(Layered(layer)) as Arc<dyn Fs>;
        let options: Options = small_options(fs).encryption(keys(1));
        let options = planted.map_or(options.clone(), |bug| options.planted_bug(bug));
        let db = options.open(STORE_DIR).unwrap();
        for number in 0..20 {
            db.insert(format!("{}", mix(round * 100 + number) % 50), [round as u8; 300]).unwrap();
        }
        if round % 3 == 0 {
            db.flush().unwrap();
        }
        let operations = disk.operations();
        if round % 2 == 0 {
            drop(db);
        }
        // The next process continues the manifest after a clean close.
        let at = if round % 4 == 0 { disk.operations() } else { operations };
        disk = Arc::new(disk.crash(at, &Loss::Random { seed: round, torn: true }));
    }
    let mut found = HashMap::new();
    let files = files.lock().unwrap();
    let all = files.iter().flat_map(|((path, _), stored)| {
        uses(stored).into_iter().map(move |(head, nonce, bytes)| (path, head, nonce, bytes))
    });
    for (path, head, nonce, bytes) in all {
        if found.insert((head, nonce), bytes.clone()).is_some_and(|before| before != bytes) {
            return Err(format!("a nonce is used twice in {}", path.display()));
        }
    }
    Ok(found.len())
}

#[test]
fn no_nonce_is_used_twice() {
    let nonces = collect(None).unwrap_or_else(|violation| panic!("{violation}"));
    report(&format!("{nonces} nonces, none used twice"));
    assert!(nonces > 1000, "only {nonces} nonces");
}

#[test]
fn planted_repeated_nonce_is_caught() {
    let violation = collect(Some(PlantedBug::RepeatNonces)).expect_err("the planted bug is caught");
    report(&format!("planted bug, repeated nonces: {violation}"));
}
