//! Durability of a write.

/// Failures that an acknowledged write survives.
///
/// Ordered from weakest to strongest. After a crash the surviving writes are always a prefix of the
/// history, and a batch survives as a whole or not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Survives no failure: the write is in the memtable and in the log's buffer, and lost if the
    /// process ends without a close.
    Memory,
    /// Survives the end of the process: the operating system has the log record. Lost in a power
    /// cut or a crash of the system.
    ///
    /// Costs one `write` call, shared by concurrent writers.
    #[default]
    OsBuffer,
    /// Survives a power cut: the log record is synced to the disk.
    ///
    /// Costs one `fdatasync` call, shared by concurrent writers.
    Disk,
}
