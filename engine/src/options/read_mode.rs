//! Ways of reading table files.

#[cfg(doc)]
use crate::{Error, Options};

/// Method of reading table files. `docs/tuning.md` of the repository has measurements.
///
/// In every mode a block is verified by its checksum when it enters memory, and damage is an
/// [`Error::Corrupt`]. A file whose length differs from the manifest is refused when its table is
/// opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadMode {
    /// Positional reads (`pread`) through the page cache. An I/O error is an [`Error`].
    #[default]
    Pread,
    /// A memory map, which serves uncompressed blocks without a copy.
    ///
    /// **Truncation of a mapped file, or a bad sector below it, kills the process by SIGBUS** when
    /// the bytes are read: safe Rust cannot turn that into an error. Use it only where no other
    /// process writes to the directory, and the loss of a device may end the process. A block is
    /// verified once, when it enters the block cache or is read past it. Later changes on the
    /// device are not noticed.
    ///
    /// All tables are mapped as long as they exist. They count in
    /// [`MemoryStats::mapped_bytes`](crate::stats::MemoryStats::mapped_bytes), not in the budget,
    /// because the operating system manages their pages. Their files are open only for read-ahead
    /// of scans, batches and compactions, and then count in [`Options::open_files_max`].
    Map,
    /// Positional reads past the page cache (`O_DIRECT`): the block cache is the only cache, so the
    /// memory budget covers all. For a block cache larger than the page cache would be, and for
    /// machines whose memory other programs need.
    ///
    /// Every miss of the block cache waits for the device, without read-ahead of the system. Other
    /// files, such as the log, are read and written through the page cache. If the file system does
    /// not support such reads, opening fails with an [`Error::Io`] of kind
    /// [`Unsupported`](std::io::ErrorKind::Unsupported). It leaves only the directory and its lock
    /// file. If only a read shows that, an empty new store remains.
    Direct,
}
