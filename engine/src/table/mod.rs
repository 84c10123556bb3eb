//! Table files: metadata, creation, opening, use and removal.

pub(crate) mod blob_output;
mod blob_spans;
mod blob_store;
pub(crate) mod blobs;
pub(crate) mod bookkeeping;
pub(crate) mod builder;
pub(crate) mod cache_room;
mod end;
pub(crate) mod file_calls;
pub(crate) mod files;
mod filter_store;
pub(crate) mod filters;
mod live;
mod meta;
pub(crate) mod obsolete;
mod quarantine;
pub(crate) mod read_buffers;
mod retired_list;
pub(crate) mod room;
pub(crate) mod scan_filters;
pub(crate) mod store;
pub(crate) mod unfinished;
pub(crate) mod unlink_pace;

pub(crate) use files::table_error;
pub(crate) use filters::{ChargedFilter, TableFilters};
pub(crate) use live::LiveTable;
pub(crate) use meta::{FilterPlace, NewPlace, PrefixFilterPlace, TableMeta, TablePlace};
pub(crate) use scan_filters::ScanFilters;
