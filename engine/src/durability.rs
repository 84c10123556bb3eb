//! What an acknowledged write survives.

/// What an acknowledged write survives.
///
/// The words are ordered: a later one promises more and costs more. Whatever survives is always a
/// prefix of the history: if a write is there, so is every write before it, and a batch is there
/// as a whole or not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Lost when the process dies: the write is in memory, and in the log's buffer.
    Memory,
    /// Lost only when the machine dies: the operating system has the log record.
    ///
    /// Costs one `write` call, shared with the writers that wait at the same time.
    #[default]
    OsBuffer,
    /// Never lost: the log record was synced to the disk.
    ///
    /// Costs one `fdatasync` call, shared with the writers that wait at the same time.
    Disk,
}
