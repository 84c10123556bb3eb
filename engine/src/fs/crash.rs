//! What a power cut leaves of a [`MemoryFs`].
//!
//! The journal is replayed up to the cut, without the operations that are lost. Only an operation
//! that no sync covers can be lost; which ones are is the [`Loss`]. What is replayed:
//!
//! | operation                          | kept                          | lost                        |
//! |------------------------------------|-------------------------------|-----------------------------|
//! | append                             | the bytes are in their place  | zeros if the file goes on behind them, else the file is shorter |
//! | create, create folder, rename, link | the name points to the file, whatever happened to earlier names of it | the name points to what it did before |
//! | unlink, the old name of a rename   | the name is gone              | the name still points to the file |
//!
//! A folder that is lost takes everything in it along, synced or not.
//!
//! A torn append leaves a prefix, or some of its sectors with zeros for the others, or its length
//! with zeros only. Not simulated: foreign bytes in place of zeros, and the loss of synced data.

use std::{fmt::Write, mem, ops::Range, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    MemoryFs,
    disk::{Disk, NameId, Node, ROOT},
    disk_file::File,
    journal::{Change, Record},
};

/// The unit that a disk writes whole or not at all, in bytes.
const SECTOR_BYTES: usize = 512;

/// Which of the operations that no sync covers a crash takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None: what a kill of the process leaves.
    Nothing,
    /// All.
    Everything,
    /// Only the one with this number, from 0 on in the order of the journal.
    Alone(usize),
    /// Each by lot. The same `seed` draws the same lots.
    Random {
        /// Chooses the lots, and how many lose.
        seed: u64,
        /// Whether appends may also be torn.
        torn: bool,
    },
}

/// What becomes of an unsynced operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Lost,
    /// Of an append, this many bytes are written.
    Prefix(usize),
    /// Of an append, those sectors are written whose lot, drawn with this seed, says so.
    Sectors(u64),
    /// Of an append, the length is written, and zeros for its bytes.
    Zeros,
}

impl MemoryFs {
    /// Number of operations that a crash after the first `at` operations can lose.
    ///
    /// # Panics
    ///
    /// If `at` is above [`operations`](Self::operations).
    #[must_use]
    pub fn unsynced(&self, at: usize) -> usize {
        let disk = self.disk.lock();
        disk.journal[..at].iter().filter(|record| record.is_unsynced(at)).count()
    }

    /// The disk as a power cut right after the first `at` operations leaves it. All of it is
    /// durable, its journal is empty, and nothing is locked. This disk stays as it is.
    ///
    /// Costs a few steps per operation; bytes are copied only of files with a hole or a torn end.
    ///
    /// # Panics
    ///
    /// If `at` is above [`operations`](Self::operations), or the number of a [`Loss::Alone`] is not
    /// below [`unsynced(at)`](Self::unsynced).
    #[must_use]
    pub fn crash(&self, at: usize, loss: &Loss) -> Self {
        let disk = self.disk.lock();
        let mut nodes: Vec<_> = disk.base.iter().map(Option::as_ref).collect();
        nodes.resize(disk.names.len(), None);
        let mut images: Vec<Image> = Vec::new();
        images.resize_with(disk.file_count, Image::default);
        for (_, record, fate) in fates(&disk, at, loss) {
            if let Change::Append { file, bytes } = &record.change {
                images[file.number].apply(file, bytes.clone(), fate);
            } else if fate == Fate::Kept {
                enter(&mut nodes, &record.change);
            }
        }
        let disk = rebuild(&disk, &nodes, &mut images);
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// A copy of the disk as it is, with nothing left to lose and an empty journal.
    #[must_use]
    pub fn copy(&self) -> Self {
        self.crash(self.operations(), &Loss::Nothing)
    }

    /// What [`crash`](Self::crash) does with the same arguments, one line per operation, for the
    /// message of a failing test.
    ///
    /// # Panics
    ///
    /// As [`crash`](Self::crash).
    #[must_use]
    pub fn trace(&self, at: usize, loss: &Loss) -> String {
        let disk = self.disk.lock();
        let mut trace = format!("crash after {at} operations, {loss:?}\n");
        for (number, record, fate) in fates(&disk, at, loss) {
            let operation = disk.operation(record);
            let outcome = match fate {
                Fate::Kept if record.is_unsynced(at) => "  kept".to_owned(),
                Fate::Kept => String::new(),
                Fate::Lost => "  LOST".to_owned(),
                Fate::Prefix(bytes) => format!("  TORN behind {bytes} bytes"),
                Fate::Sectors(_) => "  TORN into sectors".to_owned(),
                Fate::Zeros => "  ZEROED".to_owned(),
            };
            writeln!(trace, "{number:>5}  {operation}{outcome}").expect("a string takes all");
        }
        trace
    }
}

/// The first `at` operations with their numbers and what becomes of them.
fn fates<'a>(
    disk: &'a Disk,
    at: usize,
    loss: &Loss,
) -> impl Iterator<Item = (usize, &'a Record, Fate)> {
    let mut lots = match *loss {
        Loss::Random { seed, .. } => SplitMix64(seed),
        _ => SplitMix64(0),
    };
    // Crashes that keep nearly all, and that lose nearly all, find other faults than even ones.
    let lost_in_8 = 1 + lots.below(7);
    let mut unsynced = 0;
    let loss = *loss;
    if let Loss::Alone(number) = loss {
        let count = disk.journal[..at].iter().filter(|record| record.is_unsynced(at)).count();
        assert!(number < count, "only {count} operations are unsynced after {at}");
    }
    disk.journal[..at].iter().enumerate().map(move |(number, record)| {
        if !record.is_unsynced(at) {
            return (number, record, Fate::Kept);
        }
        unsynced += 1;
        let fate = match loss {
            Loss::Nothing => Fate::Kept,
            Loss::Everything => Fate::Lost,
            Loss::Alone(lost) if unsynced - 1 == lost => Fate::Lost,
            Loss::Alone(_) => Fate::Kept,
            Loss::Random { .. } if lots.below(8) < lost_in_8 => Fate::Lost,
            Loss::Random { torn, .. } => match &record.change {
                Change::Append { bytes, .. } if torn => torn_fate(bytes.len(), &mut lots),
                _ => Fate::Kept,
            },
        };
        (number, record, fate)
    })
}

/// What becomes of an append of `bytes` bytes that is not lost as a whole.
fn torn_fate(bytes: usize, lots: &mut SplitMix64) -> Fate {
    match lots.below(6) {
        0 => Fate::Prefix(lots.below(bytes)),
        1 => Fate::Sectors(lots.next()),
        2 => Fate::Zeros,
        _ => Fate::Kept,
    }
}

/// Carries out a change of the entries.
fn enter<'a>(nodes: &mut [Option<&'a Node>], change: &'a Change) {
    match change {
        Change::Enter { name, node, .. } => nodes[*name] = Some(node),
        Change::Rename { from, to, node } => {
            nodes[*from] = None;
            nodes[*to] = Some(node);
        }
        Change::Leave { name } => nodes[*name] = None,
        Change::Append { .. } | Change::SyncData { .. } | Change::SyncFolder { .. } => {}
    }
}

/// A fresh disk with what the names reach.
fn rebuild(old: &Disk, nodes: &[Option<&Node>], images: &mut [Image]) -> Disk {
    let mut disk = Disk::with_capacity(1 + nodes.iter().flatten().count());
    let mut new_names: Vec<Option<NameId>> = vec![None; nodes.len()];
    new_names[ROOT] = Some(ROOT);
    // A folder comes before what is in it, so its fate is known by then.
    for (name, node) in nodes.iter().enumerate().skip(1) {
        let (Some(node), Some(folder)) = (node, new_names[old.names[name].folder]) else {
            continue;
        };
        let path = &old.names[name].path;
        let node = match node {
            Node::Folder => Node::Folder,
            Node::File(file) => Node::File(images[file.number].build(file, path, &mut disk)),
        };
        new_names[name] = Some(disk.add_base(path.clone(), folder, node));
    }
    disk
}

/// The bytes of a file on the disk, while the journal is replayed.
#[derive(Default)]
struct Image {
    extent: Extent,
    /// The file on the fresh disk, so that its names share it.
    built: Option<Arc<File>>,
}

#[derive(Default)]
enum Extent {
    /// As before the first operation.
    #[default]
    Base,
    /// The first bytes of the file, this many.
    Prefix(usize),
    /// Anything else.
    Patched(Vec<u8>),
}

impl Extent {
    /// How many of the first bytes of `file` this is, if it is nothing else.
    fn prefix(&self, file: &File) -> Option<usize> {
        match self {
            Self::Base => Some(file.base_bytes()),
            Self::Prefix(end) => Some(*end),
            Self::Patched(_) => None,
        }
    }
}

impl Image {
    /// Replays the append of `bytes` to `file`.
    fn apply(&mut self, file: &File, bytes: Range<usize>, fate: Fate) {
        match fate {
            Fate::Lost => {}
            Fate::Kept => self.write(file, bytes),
            Fate::Prefix(kept) => self.write(file, bytes.start..bytes.start + kept),
            Fate::Zeros => self.patch(file).resize(bytes.end, 0),
            Fate::Sectors(seed) => {
                let mut lots = SplitMix64(seed);
                let mut start = bytes.start;
                while start < bytes.end {
                    let end = bytes.end.min((start / SECTOR_BYTES + 1) * SECTOR_BYTES);
                    if lots.below(2) == 0 {
                        self.write(file, start..end);
                    }
                    start = end;
                }
            }
        }
    }

    /// Puts the bytes of `file` at `bytes` in their place, with zeros before them where others are
    /// missing.
    fn write(&mut self, file: &File, bytes: Range<usize>) {
        if bytes.is_empty() {
            return;
        }
        if self.extent.prefix(file) == Some(bytes.start) {
            self.extent = Extent::Prefix(bytes.end);
            return;
        }
        let patched = self.patch(file);
        patched.resize(bytes.start, 0);
        patched.extend_from_slice(&file.bytes()[bytes]);
    }

    /// The bytes so far, in a form that can become other than a prefix.
    fn patch(&mut self, file: &File) -> &mut Vec<u8> {
        if let Some(end) = self.extent.prefix(file) {
            self.extent = Extent::Patched(file.bytes()[..end].to_vec());
        }
        match &mut self.extent {
            Extent::Patched(patched) => patched,
            Extent::Base | Extent::Prefix(_) => unreachable!("it was patched just now"),
        }
    }

    /// The file of the fresh disk.
    fn build(&mut self, file: &File, path: &Arc<str>, disk: &mut Disk) -> Arc<File> {
        let extent = &mut self.extent;
        let built = self.built.get_or_insert_with(|| {
            let bytes = match extent {
                Extent::Base => file.bytes().slice(..file.base_bytes()),
                Extent::Prefix(end) => file.bytes().slice(..*end),
                Extent::Patched(bytes) => Bytes::from(mem::take(bytes)),
            };
            disk.new_file(path.clone(), bytes)
        });
        built.clone()
    }
}

/// A small generator of random numbers: each crash needs a few hundred, and the same ones again.
///
/// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        // The remainder is below `bound`, so it fits; its bias does not matter here.
        (self.next() % bound as u64) as usize
    }
}
