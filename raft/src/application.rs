//! The replicated state of an application.

use sievedb::{Keyspace, Transaction};

/// A replicated state machine of the application: its state, and the effect of an entry.
///
/// Every node applies the same entries in the same order. So [`apply`](Self::apply) must be
/// deterministic: it must not use the time, random numbers, or keyspaces that are not replicated.
/// Replicated values must not expire: a snapshot does not contain their expiry.
///
/// # Limits
///
/// A request in the log, and the writes that apply it, may each take up to 1/2 of
/// [`memtable_bytes_max`](sievedb::stats::MemoryStats::memtable_bytes_max) of the smallest node.
/// That is 32 MiB with a budget of 256 MiB, and 8 MiB with 64 MiB. A node that cannot store or
/// apply an entry stops, so check the size of a request before `client_write`.
pub trait Application: Send + Sync + 'static {
    /// A request: the type `D` of openraft.
    ///
    /// The log and snapshots contain requests as encoded by [postcard](https://docs.rs/postcard),
    /// which is not self-describing. So the type must not use `serde_json::Value`, nor the
    /// attributes `untagged`, `tag`, `flatten`, `skip_serializing_if` or `skip_serializing` of
    /// serde. The node ids and node addresses of openraft have the same limits. An append decodes
    /// each entry once. It fails with [`Error::Entry`](crate::Error::Entry), and the node stops,
    /// if postcard cannot decode the entry. Some misuse of `skip_serializing_if` decodes as another
    /// request, and is not found: test your requests with postcard.
    ///
    /// All nodes decode the entries of earlier releases of the application. So append new variants
    /// at the end of an enum, and change no variant or struct: a new field needs a new variant.
    /// Upgrade all nodes before a client sends the new variant.
    type Request;

    /// The response to a request: the type `R` of openraft. An entry without a request has the
    /// default response.
    type Response: Default;

    /// Returns the keyspaces with the replicated state: a snapshot replaces their contents.
    ///
    /// A node ignores the keyspaces of a received snapshot that it does not list. So a release of
    /// the application that adds a keyspace must run on all nodes before an entry writes to it.
    fn keyspaces(&self) -> Vec<Keyspace>;

    /// Applies `request` to the state, and returns the response to the client.
    ///
    /// `transaction` sees the writes of earlier entries. It is committed with the id of its last
    /// entry.
    ///
    /// `index` is the index of the entry in the log. It is the same on every node and larger than
    /// that of each earlier entry, so it may serve as a version or a fencing token.
    ///
    /// # Errors
    ///
    /// An error stops this node. Return a response, not an error, for a refused request, such as a
    /// comparison that fails.
    fn apply(
        &mut self,
        transaction: &mut Transaction,
        index: u64,
        request: Self::Request,
    ) -> sievedb::Result<Self::Response>;
}
