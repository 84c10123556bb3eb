//! Table files: what the manifest knows of them, their opening, their use and their end.
//!
//! | module       | answers                                                               |
//! |--------------|-----------------------------------------------------------------------|
//! | [`meta`]     | what the manifest knows of a table                                    |
//! | [`store`]    | how table files are created and opened                                |
//! | [`files`]    | how the table format reads them: opened when needed, every read counted |
//! | [`live`]     | an open table, and what happens when it is dropped                    |
//! | [`filters`]  | its point filter as it is in memory                                   |
//! | [`scan_filters`] | its prefix filter and its range filter, as they are in memory     |
//! | [`obsolete`] | files that nothing needs, until a worker unlinks them                 |

pub(crate) mod files;
pub(crate) mod filters;
mod live;
mod meta;
pub(crate) mod obsolete;
pub(crate) mod scan_filters;
pub(crate) mod store;

pub(crate) use filters::{ChargedFilter, TableFilters};
pub(crate) use live::{LiveTable, table_error};
pub(crate) use meta::{FilterPlace, TableMeta};
pub(crate) use scan_filters::ScanFilters;
