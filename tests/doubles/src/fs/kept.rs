//! A [`MemoryFs`] that keeps its durable state in a file.
//!
//! Each sync appends one record to the file: its length, then the changes that the sync has made
//! durable. So a sync is atomic, also if the process is killed meanwhile. A change is a sequence of
//! 8-byte numbers, the first of which is its kind. Paths and contents follow their length.
//!
//! The file itself is not synced: processes are killed, and the machine is not.

#![expect(clippy::disallowed_methods, reason = "the state is in a file of the machine")]

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    ops::Range,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sievedb::fs::{Fs as _, ReadFile as _, RealFs};

use super::{
    MemoryFs,
    disk::{Disk, Name, Node},
    disk_file,
    journal::Change,
    random::SplitMix64,
};

/// A file has these bytes from an offset on.
const APPEND: usize = 0;
/// A file has a minimum length.
const RESERVE: usize = 1;
/// A name points to a file.
const FILE: usize = 2;
/// A name points to a directory.
const DIR: usize = 3;
/// A name points to nothing.
const LEAVE: usize = 4;

impl MemoryFs {
    /// Opens the disk whose durable state is in the file `path`, or creates an empty one.
    ///
    /// Changes that are not synced are lost when the process is killed, and when the disk is
    /// dropped: both are power cuts. The seed of the disk is random. [`settle`](Self::settle) and
    /// [`replace`](Self::replace) do not change the file.
    ///
    /// # Errors
    ///
    /// Errors of the operating system.
    pub fn kept_in(path: &Path) -> io::Result<Self> {
        let mut state = State::default();
        match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            kept => state.replay(&kept?),
        }
        let mut disk = state.into_disk(SplitMix64(RealFs.random_u64()?));
        // Without the names in lost directories, which new directories would show again.
        let next = path.with_extension("next");
        let kept = Kept(File::create(&next)?);
        kept.write(&disk.names, &disk.changes())?;
        fs::rename(next, path)?;
        disk.kept = Some(kept);
        Ok(Self { disk: Arc::new(Mutex::new(disk)) })
    }
}

impl Disk {
    /// Returns the changes that create the disk.
    fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, node) in self.base.iter().enumerate().skip(1) {
            let Some(node) = node else { continue };
            if let Node::File(file) = node {
                let bytes = 0..file.base_bytes();
                changes.push(Change::Append { file: file.clone(), bytes });
            }
            changes.push(Change::Enter { name, node: node.clone(), linked_from: None });
        }
        changes
    }
}

/// The file with the durable state of a disk.
pub(super) struct Kept(File);

impl Kept {
    /// Writes a record.
    pub(super) fn write<'a>(
        &self,
        names: &[Name],
        changes: impl IntoIterator<Item = &'a Change>,
    ) -> io::Result<()> {
        let mut record = Record(vec![0; 8]);
        for change in changes {
            record.add(names, change)?;
        }
        let bytes = record.0.len() - 8;
        record.0[..8].copy_from_slice(&bytes.to_le_bytes());
        (&self.0).write_all(&record.0)
    }
}

/// The bytes of a record.
struct Record(Vec<u8>);

impl Record {
    fn add(&mut self, names: &[Name], change: &Change) -> io::Result<()> {
        match change {
            Change::Enter { name, node, .. } => self.enter(&names[*name], node),
            Change::Rename { from, to, node } => {
                self.leave(&names[*from]);
                self.enter(&names[*to], node);
            }
            Change::Leave { name } => self.leave(&names[*name]),
            Change::Append { file, bytes: Range { start, end } } => {
                let mut bytes = vec![0; end - start];
                file.read_at(&mut bytes, *start as u64)?;
                self.numbers(&[APPEND, file.number, *start]);
                self.bytes(&bytes);
            }
            Change::Reserve { file, file_bytes } => {
                self.numbers(&[RESERVE, file.number, *file_bytes]);
            }
            Change::SyncData { .. } | Change::SyncDir { .. } => {}
        }
        Ok(())
    }

    fn enter(&mut self, name: &Name, node: &Node) {
        match node {
            Node::Dir => self.numbers(&[DIR]),
            Node::File(file) => self.numbers(&[FILE, file.number]),
        }
        self.bytes(name.path.as_bytes());
    }

    fn leave(&mut self, name: &Name) {
        self.numbers(&[LEAVE]);
        self.bytes(name.path.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.numbers(&[bytes.len()]);
        self.0.extend_from_slice(bytes);
    }

    fn numbers(&mut self, numbers: &[usize]) {
        self.0.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(usize::from_le_bytes(*number))
}

fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bytes = number(rest)?;
    rest.split_off(..bytes)
}

fn path(rest: &mut &[u8]) -> Option<String> {
    Some(str::from_utf8(bytes(rest)?).ok()?.to_owned())
}

/// The state that records describe.
#[derive(Default)]
struct State {
    /// Files by number.
    files: BTreeMap<usize, Contents>,
    /// Targets of names: a file by number, or `None` for a directory.
    names: BTreeMap<String, Option<usize>>,
}

#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    reserved_bytes: usize,
}

impl State {
    /// Replays records. A torn one ends them: its sync has not returned.
    fn replay(&mut self, mut kept: &[u8]) {
        while let Some(mut record) = bytes(&mut kept) {
            while !record.is_empty() {
                self.change(&mut record).expect("a change");
            }
        }
    }

    fn change(&mut self, rest: &mut &[u8]) -> Option<()> {
        match number(rest)? {
            APPEND => {
                let Contents { bytes: before, .. } = self.files.entry(number(rest)?).or_default();
                before.resize(number(rest)?, 0);
                before.extend_from_slice(bytes(rest)?);
            }
            RESERVE => {
                let contents = self.files.entry(number(rest)?).or_default();
                contents.reserved_bytes = contents.reserved_bytes.max(number(rest)?);
            }
            FILE => {
                let file = number(rest)?;
                self.names.insert(path(rest)?, Some(file));
            }
            DIR => drop(self.names.insert(path(rest)?, None)),
            LEAVE => drop(self.names.remove(&path(rest)?)),
            _ => return None,
        }
        Some(())
    }

    /// Creates the disk with this state. A lost directory loses all its entries.
    fn into_disk(mut self, random: SplitMix64) -> Disk {
        let mut disk = Disk::with_capacity(1 + self.names.len(), random);
        let mut built: BTreeMap<usize, Arc<disk_file::File>> = BTreeMap::new();
        // A directory comes before its entries.
        for (path, file) in self.names {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            let Ok(dir) = disk.dir(Path::new(dir)) else { continue };
            let path: Arc<str> = path.into();
            let node = match file {
                None => Node::Dir,
                Some(number) => {
                    let file = built.entry(number).or_insert_with(|| {
                        let Contents { mut bytes, reserved_bytes } =
                            self.files.remove(&number).unwrap_or_default();
                        bytes.resize(bytes.len().max(reserved_bytes), 0);
                        disk.new_file(path.clone(), Bytes::from(bytes))
                    });
                    Node::File(file.clone())
                }
            };
            disk.add_base(path, dir, node);
        }
        disk
    }
}
