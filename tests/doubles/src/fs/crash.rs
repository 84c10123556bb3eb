//! Crashes of a [`MemoryFs`].
//!
//! A crash replays the journal up to the power cut, without the lost operations. Only unsynced
//! operations can be lost; [`Loss`] chooses them.
//!
//! | operation            | kept                                   | lost                            |
//! |----------------------|----------------------------------------|---------------------------------|
//! | append               | bytes are written                      | zeros before later bytes, or a shorter file |
//! | reserve              | zeros after the appended bytes         | shorter file                    |
//! | create, rename, link | name points to the file                | name points to its old target   |
//! | unlink, old name of a rename | name is removed                | name still points to the file   |
//!
//! Directories are created like files. A lost directory loses all its entries, synced or not.
//!
//! A torn append keeps a prefix, some sectors with zeros for the others, or only its length with
//! zeros. Not simulated: foreign bytes instead of zeros, and loss of synced data.

use std::{fmt::Write, sync::Arc};

use parking_lot::Mutex;

use super::{
    MemoryFs,
    disk::{Disk, NameId, Node, ROOT},
    image::{Fate, Image},
    journal::{Change, Record},
    random::SplitMix64,
};

/// Unsynced operations that a crash loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None: the result of killing the process.
    Nothing,
    /// All.
    Everything,
    /// Only the operation with this number, from 0 in journal order.
    Alone(usize),
    /// A random subset. Equal seeds choose equal subsets.
    Random {
        /// Chooses the lost operations and how many are lost.
        seed: u64,
        /// Tears appends too.
        torn: bool,
    },
}

impl MemoryFs {
    /// Returns the number of operations that a crash after the first `at` operations can lose.
    ///
    /// # Panics
    ///
    /// If `at` is above [`operations`](Self::operations).
    #[must_use]
    pub fn unsynced(&self, at: usize) -> usize {
        let disk = self.disk.lock();
        disk.journal[..at].iter().filter(|record| record.is_unsynced(at)).count()
    }

    /// Returns the disk after a power cut right after the first `at` operations.
    ///
    /// All of it is durable, its journal is empty and nothing is locked. This disk is unchanged.
    /// Costs a few steps per operation. Copies bytes only of files with a hole, a torn end or
    /// reserved bytes.
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
            match &record.change {
                Change::Append { file, bytes } => {
                    images[file.number].apply(file, bytes.clone(), fate);
                }
                Change::Reserve { file, file_bytes } if fate == Fate::Kept => {
                    images[file.number].reserve(*file_bytes);
                }
                change if fate == Fate::Kept => enter(&mut nodes, change),
                _ => {}
            }
        }
        let disk = rebuild(&disk, &nodes, &mut images);
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Returns a durable copy of the disk with an empty journal.
    #[must_use]
    pub fn copy(&self) -> Self {
        self.crash(self.operations(), &Loss::Nothing)
    }

    /// Describes [`crash`](Self::crash) with the same arguments, one line per operation, for the
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

/// Returns the first `at` operations with their numbers and fates.
fn fates<'a>(
    disk: &'a Disk,
    at: usize,
    loss: &Loss,
) -> impl Iterator<Item = (usize, &'a Record, Fate)> {
    let mut lots = match *loss {
        Loss::Random { seed, .. } => SplitMix64(seed),
        _ => SplitMix64(0),
    };
    // Crashes that keep almost all or lose almost all find other faults than even ones.
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

/// Returns the fate of an append of `bytes` bytes that is not lost as a whole.
fn torn_fate(bytes: usize, lots: &mut SplitMix64) -> Fate {
    match lots.below(6) {
        0 => Fate::Prefix(lots.below(bytes)),
        1 => Fate::Sectors(lots.next()),
        2 => Fate::Zeros,
        _ => Fate::Kept,
    }
}

/// Applies a change of the entries.
fn enter<'a>(nodes: &mut [Option<&'a Node>], change: &'a Change) {
    match change {
        Change::Enter { name, node, .. } => nodes[*name] = Some(node),
        Change::Rename { from, to, node } => {
            nodes[*from] = None;
            nodes[*to] = Some(node);
        }
        Change::Leave { name } => nodes[*name] = None,
        Change::Append { .. }
        | Change::Reserve { .. }
        | Change::SyncData { .. }
        | Change::SyncDir { .. } => {}
    }
}

/// Creates a disk with the nodes that the names reach.
fn rebuild(old: &Disk, nodes: &[Option<&Node>], images: &mut [Image]) -> Disk {
    let mut disk = Disk::with_capacity(1 + nodes.iter().flatten().count(), old.random.clone());
    let mut new_names: Vec<Option<NameId>> = vec![None; nodes.len()];
    new_names[ROOT] = Some(ROOT);
    // A directory comes before its entries, so its fate is known.
    for (name, node) in nodes.iter().enumerate().skip(1) {
        let (Some(node), Some(dir)) = (node, new_names[old.names[name].dir]) else {
            continue;
        };
        let path = &old.names[name].path;
        let node = match node {
            Node::Dir => Node::Dir,
            Node::File(file) => Node::File(images[file.number].build(file, path, &mut disk)),
        };
        new_names[name] = Some(disk.add_base(path.clone(), dir, node));
    }
    disk
}
