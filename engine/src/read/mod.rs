//! Views of a keyspace, lookups and the sources of scans.
//!
//! | module            | content                                                         |
//! |-------------------|-----------------------------------------------------------------|
//! | [`tree`]          | LSM tree of a keyspace: its present view, and how it changes    |
//! | [`changed_trees`] | sets of keyspaces, for background work                           |
//! | [`view`]          | memtables, version and filters at one point in time             |
//! | [`view_cell`]     | lookups borrow the present view; it is replaced                 |
//! | [`lookup`]        | point lookup: memtables, filters, tables                        |
//! | [`observer`]      | makes the result of a lookup, and may record its steps          |
//! | [`older`]         | lookup that also reads older versions                           |
//! | [`explainer`]     | lookup that records its steps                                   |
//! | [`many`], [`open_keys`] | lookups of many keys by one call                          |
//! | [`extent`]        | estimates of keys and bytes                                     |
//! | [`source`]        | memtables and tables as cursors of a merge                      |
//! | [`scan_probe`]    | probes of prefix and range filters by scans                     |
//! | [`written`]       | whether a key was written after it was read                     |
//! | [`written_range`] | first key of a range that was written after it was read          |
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
