//! What readers see, and the way of a lookup.
//!
//! | module            | answers                                                          |
//! |-------------------|------------------------------------------------------------------|
//! | [`tree`]          | the LSM tree of a keyspace: its present view, and how it changes |
//! | [`changed_trees`] | which of the keyspaces have changed since somebody looked         |
//! | [`view`]          | what a reader sees: memtables and a version                      |
//! | [`view_cell`]     | how lookups borrow the present view, and how it is replaced      |
//! | [`filter_set`]    | the filters of all its tables, side by side                      |
//! | [`lookup`]        | the way of a point lookup: memtables, filters, tables            |
//! | [`older`]         | the value of a key that its newest version does not decide       |
//! | [`witness`], [`explainer`] | who sees what a lookup does, and one who tells it       |
//! | [`scan_question`] | what a scan asks the filters of tables                           |
//! | [`many`]          | many of them by one call, and [`many_lookup`] a chunk of them    |
//! | [`key_order`]     | the keys of a chunk in order                                     |
//! | [`answer`]        | what a lookup returns of the value: all, or that there is one    |
//! | [`source`]        | memtables and tables as the cursors that a merge takes           |
//! | [`memtable_source`] | one memtable as such a cursor                                  |
//! | [`skipped`]       | who is told of the tombstones that scans step over               |
//! | [`snapshot_list`] | at which sequence numbers snapshots read                         |

pub(crate) mod answer;
pub(crate) mod changed_trees;
pub(crate) mod explainer;
pub(crate) mod filter_set;
mod key_order;
pub(crate) mod lookup;
mod many;
pub(crate) mod many_lookup;
mod memtable_source;
mod older;
pub(crate) mod scan_question;
pub(crate) mod skipped;
pub(crate) mod snapshot_list;
pub(crate) mod source;
pub(crate) mod tree;
pub(crate) mod view;
pub(crate) mod view_cell;
pub(crate) mod witness;
