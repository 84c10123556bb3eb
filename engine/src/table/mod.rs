//! Table files: what the manifest knows of them, their opening, their use and their end.
//!
//! | module       | answers                                                               |
//! |--------------|-----------------------------------------------------------------------|
//! | [`meta`]     | what the manifest knows of a table                                    |
//! | [`store`]    | how table files are created and opened                                |
//! | [`builder`]  | a table that is being written                                         |
//! | [`room`]     | what it takes of the share of the worker that writes it, and when it ends |
//! | [`filter_store`] | how filters are found in their files, and written to files of their own |
//! | [`files`]    | how the table format reads them: opened when needed, every read counted |
//! | [`open_files`] | which files are kept open, and what happens when there may be no more |
//! | [`mod@end`]  | how much of the end of a table is read when it is opened              |
//! | [`live`]     | an open table, and what happens when it is dropped                    |
//! | [`quarantine`] | state of a table that compactions could not read                    |
//! | [`bookkeeping`] | what must be known of a table besides, in bytes                    |
//! | [`cache_room`] | what the block cache may take, and a worker for what it writes      |
//! | [`read_buffers`] | what background work reads tables through, within the budget |
//! | [`filters`]  | its point filter as it is in memory                                   |
//! | [`scan_filters`] | its prefix filter and its range filter, as they are in memory     |
//! | [`unfinished`] | a file that is being written                                       |
//! | [`obsolete`] | files that nothing needs, until a worker unlinks them                 |

pub(crate) mod bookkeeping;
pub(crate) mod builder;
pub(crate) mod cache_room;
mod end;
pub(crate) mod files;
pub(crate) mod filter_memory;
pub(crate) mod filter_store;
pub(crate) mod filters;
mod live;
mod meta;
pub(crate) mod obsolete;
pub(crate) mod open_files;
mod quarantine;
pub(crate) mod read_buffers;
mod retired_list;
pub(crate) mod room;
pub(crate) mod scan_filters;
pub(crate) mod store;
mod unfinished;

pub(crate) use filters::{ChargedFilter, TableFilters};
pub(crate) use live::{LiveTable, table_error};
pub(crate) use meta::{FilterPlace, NewPlace, PrefixFilterPlace, TableMeta};
pub(crate) use scan_filters::ScanFilters;
