//! Views of a keyspace, lookups and the sources of scans.
//!
//! | module            | content                                                         |
//! |-------------------|-----------------------------------------------------------------|
//! | [`tree`]          | LSM tree of a keyspace: its current view, and its changes       |
//! | [`changed_trees`] | sets of keyspaces, for background work                           |
//! | [`view`]          | memtables, version and filters at one point in time             |
//! | [`view_cell`]     | cell with the current view, which lookups borrow                |
//! | [`lookup`]        | point lookup: memtables, filters, tables                        |
//! | [`observer`]      | computes the result of a lookup, and may record its steps       |
//! | [`older`]         | lookup that also reads older versions                           |
//! | [`explainer`]     | lookup that records its steps                                   |
//! | [`many`], [`open_keys`] | lookups of many keys by one call                          |
//! | [`extent`]        | estimates of keys and bytes                                     |
//! | [`source`]        | memtables and tables as cursors of a merge                      |
//! | [`scan_probe`]    | probes of prefix and range filters by scans                     |
//! | [`written`]       | detects writes to a key after its read                          |
//! | [`written_range`] | finds the first key of a range written after its read           |
//! | [`snapshot_list`] | sequence numbers of open snapshots                              |

pub(crate) mod changed_trees;
pub(crate) mod explainer;
mod extent;
pub(crate) mod lookup;
pub(crate) mod many;
pub(crate) mod observer;
mod older;
mod open_keys;
pub(crate) mod scan_probe;
pub(crate) mod snapshot_list;
pub(crate) mod source;
pub(crate) mod tree;
pub(crate) mod view;
pub(crate) mod view_cell;
pub(crate) mod written;
pub(crate) mod written_range;
