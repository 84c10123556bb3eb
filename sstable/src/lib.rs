//! The sorted table of SieveDB: one file of entries in the order of their internal keys, written
//! once, from front to back, and never changed.
//!
//! | module         | answers                                                          |
//! |----------------|------------------------------------------------------------------|
//! | [`writer`]     | how a table is written                                           |
//! | [`table`]      | how a key is looked up                                           |
//! | [`cursor`]     | how entries are stepped through                                  |
//! | [`options`]    | what can be chosen                                               |
//! | [`prefix_extractor`] | which part of a key is its prefix                          |
//! | [`identity`]   | what tells one table from every other                            |
//! | [`mod@tail`]    | the end of a table, read in one go                               |
//! | [`source`]     | where the bytes come from and go to                              |
//! | [`cache`]      | which blocks are kept in memory, and what reading costs          |
//! | [`filter_state`] | whether the filter can be used                                 |
//! | [`stored_filter`] | the filter in the file, to be loaded whole or in part         |
//! | [`filter_file`] | how a filter lies in a file of its own                         |
//! | [`mod@verify`] | whether everything that a table holds is as it should be         |
//! | [`properties`] | what a table says of itself as a whole                           |
//! | [`block`], [`handle`], [`index`], [`footer`] | the bytes of the parts             |
//! | [`mod@describe`] | the bytes and their meaning side by side                       |
//! | [`error`]      | what can go wrong                                                |
//!
//! # Layout
//!
//! Integers are little-endian. `testdata` pins these bytes.
//!
//! | part             | protected by               | described in                           |
//! |------------------|----------------------------|----------------------------------------|
//! | file header      | its checksum               | [`sievedb_format::file_header`]        |
//! | data blocks, each index partition behind the last one that it leads to | type and checksum of each | [`block::stored`], [`block`], [`index`] |
//! | top index        | type and checksum          | [`index`]                              |
//! | filters, if any, each behind zeros up to a multiple of 64 | its checksums | [`sievedb_filter::filter_block`] |
//! | properties       | type and checksum          | [`properties`]                         |
//! | range tombstones, if any | type and checksum  | [`sievedb_format::range_tombstone`]    |
//! | compression dictionary, if any | type and checksum | [`block::stored`]                 |
//! | footer           | its checksum               | [`footer`]                             |
//!
//! # Bytes from disk
//!
//! Whatever the bytes are, the answer is right or a [`ReadError`], never a panic. Lengths are held
//! against the length of the file before anything is read, and decompression is capped by the
//! properties. A damaged filter costs reads, never answers.

mod advice;
pub mod block;
mod block_memory;
mod block_reader;
pub mod cache;
mod cache_steps;
mod contents;
pub mod cursor;
mod cursor_options;
pub mod describe;
mod direction;
pub mod error;
pub mod filter_file;
mod filter_keys;
pub mod filter_state;
pub mod footer;
mod get_many;
mod ghost_blocks;
mod goal;
pub mod handle;
pub mod identity;
pub mod index;
mod index_cursor;
pub mod metadata;
pub mod options;
mod output;
pub mod prefix_extractor;
pub mod properties;
mod range_filter;
mod read_ahead;
pub mod salvage;
pub mod source;
pub mod stored_filter;
mod summary;
mod sync;
pub mod table;
pub mod tail;
pub mod verify;
mod walk_lengths;
mod warm_up;
pub mod writer;

pub use block::ValueRef;
pub use cache::{BlockCache, BlockCounts, BlockObserver, BlockRequest, CacheUse};
pub use cursor::TableCursor;
pub use cursor_options::CursorOptions;
pub use describe::describe;
pub use error::ReadError;
pub use filter_file::{describe_filter_file, write_filter_file, write_range_filter_file};
pub use filter_keys::{FilterKeys, PrefixFilter};
pub use filter_state::{FilterPlace, FilterState, FilterUnusable};
pub use ghost_blocks::GhostStats;
pub use identity::TableIdentity;
pub use metadata::TableMetadata;
pub use options::{
    BLOCK_BYTES, Compression, DEFAULT_BLOCK_BYTES, DEFAULT_INDEX_PARTITION_BYTES,
    DEFAULT_WRITE_BUFFER_BYTES, FILTER_BITS_PER_KEY, InvalidOption, RANGE_FILTER_BITS_PER_KEY,
    TableOptions,
};
pub use prefix_extractor::{PrefixExtractor, PrefixFunction};
pub use properties::{Completed, TableOrigin, TableProperties};
pub use read_ahead::READ_AHEAD_BYTES_MAX;
pub use salvage::{SalvagedCursor, SalvagedTable};
pub use source::{TableSink, TableSource};
pub use stored_filter::StoredFilter;
pub use summary::TableSummary;
pub use table::Table;
pub use tail::TableTail;
pub use verify::{TableProblem, Verified, damaged_filters, file_checksum};
pub use writer::TableWriter;
