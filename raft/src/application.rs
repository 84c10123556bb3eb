//! The replicated state of an application.

use sievedb::{Keyspace, Transaction};

/// The replicated state, and how an entry changes it.
///
/// Every node applies the same entries in the same order, so [`apply`](Self::apply) depends on
/// nothing else: not on time, random numbers, or keyspaces that are not replicated. Keys that
/// expire are no part of replicated state: a snapshot does not carry their times.
///
/// # Limits
///
/// A request in the log, and the writes that apply it, may each take up to 1/2 of
/// [`memtable_bytes_max`](sievedb::stats::MemoryStats::memtable_bytes_max) of the node with the
/// least memory: 32 MiB with a budget of 256 MiB, 8 MiB with 64 MiB. openraft stops a node that
/// cannot store or apply an entry, so check the size of a request before `client_write`.
pub trait Application: Send + Sync + 'static {
    /// A request: the type `D` of openraft.
    type Request;

    /// The response to a request: the type `R` of openraft. An entry without a request has the
    /// default one.
    type Response: Default;

    /// Returns the keyspaces with the replicated state: a snapshot replaces their contents.
    fn keyspaces(&self) -> Vec<Keyspace>;

    /// Applies `request` to the state, and returns the response to the client.
    ///
    /// `transaction` reads what earlier entries wrote. It is committed with the number of the last
    /// entry it contains.
    ///
    /// # Errors
    ///
    /// An error stops this node. A request that is refused, such as a comparison that fails, is a
    /// response instead.
    fn apply(
        &mut self,
        transaction: &mut Transaction,
        request: Self::Request,
    ) -> sievedb::Result<Self::Response>;
}
