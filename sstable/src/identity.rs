//! What tells one table from every other.

/// What the manifest says of a table, and what its bytes must repeat.
///
/// So a file that was renamed, copied from another store or put back from an old backup is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableIdentity {
    /// Random number of the store.
    pub store_id: u128,
    /// Number of the file; never used for another file of the store.
    pub file_id: u64,
    /// Random number of the table, which the checksum of each block covers.
    pub salt: u64,
    /// Seed of the store's key hash, which filters are built with.
    pub hash_seed: u64,
}
