//! Methods of reading table files.

#[cfg(doc)]
use crate::{Error, Options};

/// Method of reading table files. `docs/benchmarks.md` of the repository has measurements.
///
/// In every mode, the checksum of a block is verified when the block is read, and damage is an
/// [`Error::Corrupt`]. The open of a table fails if the length of its file differs from the
/// manifest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadMode {
    /// Positional reads (`pread`) through the page cache. An I/O error is an [`Error`].
    #[default]
    Pread,
    /// A memory map, which serves uncompressed blocks without a copy.
    ///
    /// **Reading a truncated mapped file, or a bad sector of it, kills the process by SIGBUS**:
    /// safe Rust cannot convert the signal into an error. Use this mode only if no other process
    /// writes to the directory, and the loss of a device may end the process. A block is verified
    /// once, when it enters the block cache or is read without it. Later changes on the device are
    /// not detected.
    ///
    /// All tables are mapped as long as they exist. A value that the caller keeps also keeps the
    /// map of its table, and the disk space of a deleted one. Maps count in
    /// [`MemoryStats::mapped_bytes`](crate::stats::MemoryStats::mapped_bytes), not in the budget,
    /// because the operating system manages their pages. Their files are open only for read-ahead
    /// of scans, batches and compactions, and then count in [`Options::open_files_max`].
    ///
    /// If the file system does not support maps, the open fails with an [`Error::Io`]. A failed
    /// open of a new store leaves the directory and its lock file, or an empty store.
    Map,
    /// Positional reads that bypass the page cache (`O_DIRECT`): the block cache is the only cache,
    /// so the memory budget covers all memory. For a block cache larger than the page cache would
    /// be, and for machines that share their memory with other programs.
    ///
    /// Every miss of the block cache waits for the device, without read-ahead of the system. Other
    /// files, such as the log, are read and written through the page cache. If the file system does
    /// not support such reads, the open fails with an [`Error::Io`] of kind
    /// [`Unsupported`](std::io::ErrorKind::Unsupported). A failed open of a new store leaves the
    /// directory and its lock file, or an empty store.
    Direct,
}
