//! Durability of a write.

/// Failures that an acknowledged write survives.
///
/// Ordered from weakest to strongest. After a crash the surviving writes are always a prefix of the
/// history, and a batch survives as a whole or not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Survives nothing: the write is in memory and in the log's buffer, and lost if the process
    /// dies.
    Memory,
    /// Survives the process: the operating system has the log record. Lost if the machine dies.
    ///
    /// Costs one `write` call, shared by concurrent writers.
    #[default]
    OsBuffer,
    /// Survives the machine: the log record is synced to the disk.
    ///
    /// Costs one `fdatasync` call, shared by concurrent writers.
    Disk,
}
