//! How table files are read.

#[cfg(doc)]
use crate::{Error, Options};

/// How table files are read. What each costs is measured in `docs/tuning.md` of the
/// repository.
///
/// In every mode a block is checked against its checksum when it enters memory, and what is damaged
/// is an [`Error::Corrupt`]; a file that is shorter or longer than the manifest says is refused
/// when its table is opened. The modes differ in what stands behind a read, and in what an error of
/// the device does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadMode {
    /// Positional reads (`pread`), through the page cache. An I/O error is an [`Error`].
    #[default]
    Pread,
    /// A memory map, which serves uncompressed blocks without a copy.
    ///
    /// **A mapped file that somebody truncates, or that lies on a bad sector, kills the process by
    /// SIGBUS** when the bytes are touched: safe Rust cannot turn that into an error. Choose it
    /// only where that is acceptable: where nobody else writes to the folder, and a lost device may
    /// end the process. A block is checked once, when it enters the block cache or is read past it;
    /// bytes that change on the device after that, and are read in again by the system, are not
    /// noticed.
    ///
    /// All tables are mapped as long as they live, and count in
    /// [`MemoryStats::mapped_bytes`](crate::stats::MemoryStats::mapped_bytes), not in the budget:
    /// their pages are the operating system's. Their files are kept open only to announce what
    /// scans, batches and compactions read next, and count in [`Options::open_files_max`] then.
    /// Files that an envelope encrypts cannot be mapped; there are none yet, and one of a later
    /// release is refused in every mode.
    Map,
    /// Positional reads past the page cache (`O_DIRECT`): nothing is in memory but what the block
    /// cache holds, and the memory budget says all. For a block cache that is larger than what the
    /// page cache would hold beside it, and for machines whose memory others need.
    ///
    /// What misses the block cache waits for the device, always. There is no read-ahead by the
    /// system. Other files, such as the log, are written and read as ever. Where the file system
    /// has no such reads, opening the store is an [`Error::Io`] of kind
    /// [`Unsupported`](std::io::ErrorKind::Unsupported), and nothing is written but the folder and
    /// its lock file. Where only a read shows that, a new store stays behind, empty.
    Direct,
}
