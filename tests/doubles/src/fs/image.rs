//! Bytes of a file after a crash.

use std::{mem, ops::Range, sync::Arc};

use bytes::Bytes;

use super::{disk::Disk, disk_file::File, random::SplitMix64};

/// Unit that a disk writes atomically, in bytes.
const SECTOR_BYTES: usize = 512;

/// Fate of an unsynced operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Lost,
    /// This many bytes of the append are written.
    Prefix(usize),
    /// A random subset of the append's sectors is written, chosen by this seed.
    Sectors(u64),
    /// The length is written, with zeros for the bytes of the append.
    Zeros,
}

/// Bytes of a file during the replay of the journal.
#[derive(Default)]
pub(super) struct Image {
    extent: Extent,
    /// Reserved length: zeros up to it are part of the file.
    reserved_bytes: usize,
    /// File of the new disk, shared by its names.
    built: Option<Arc<File>>,
}

#[derive(Default)]
enum Extent {
    /// The state before the first operation.
    #[default]
    Base,
    /// A prefix of the file with this length.
    Prefix(usize),
    /// Any other bytes.
    Patched(Vec<u8>),
}

impl Extent {
    /// Returns the length of the prefix of `file` that this is, if it is one.
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
    pub(super) fn apply(&mut self, file: &File, bytes: Range<usize>, fate: Fate) {
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

    /// Replays a reservation.
    pub(super) fn reserve(&mut self, file_bytes: usize) {
        self.reserved_bytes = self.reserved_bytes.max(file_bytes);
    }

    /// Writes the range `bytes` of `file`, with zeros in a gap before it.
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
        patched.extend_from_slice(&file.appended()[bytes]);
    }

    /// Converts the bytes to [`State::Patched`].
    fn patch(&mut self, file: &File) -> &mut Vec<u8> {
        if let Some(end) = self.extent.prefix(file) {
            self.extent = Extent::Patched(file.appended()[..end].to_vec());
        }
        match &mut self.extent {
            Extent::Patched(patched) => patched,
            Extent::Base | Extent::Prefix(_) => unreachable!("it was patched just now"),
        }
    }

    /// Creates the file of the new disk.
    pub(super) fn build(&mut self, file: &File, path: &Arc<str>, disk: &mut Disk) -> Arc<File> {
        let (extent, reserved_bytes) = (&mut self.extent, self.reserved_bytes);
        let built = self.built.get_or_insert_with(|| {
            let bytes = match extent {
                Extent::Base => file.appended().slice(..file.base_bytes()),
                Extent::Prefix(end) => file.appended().slice(..*end),
                Extent::Patched(bytes) => Bytes::from(mem::take(bytes)),
            };
            let reserved_bytes = reserved_bytes.max(file.base_reserved_bytes());
            let bytes = if bytes.len() < reserved_bytes {
                let mut longer = bytes.to_vec();
                longer.resize(reserved_bytes, 0);
                longer.into()
            } else {
                bytes
            };
            disk.new_file(path.clone(), bytes)
        });
        built.clone()
    }
}
