//! The sorted string table (SSTable) of SieveDB: an immutable file of entries, sorted by internal
//! key.
//!
//! | module         | contents                                                         |
//! |----------------|------------------------------------------------------------------|
//! | [`writer`]     | writes a table                                                   |
//! | [`table`]      | opens a table and looks up keys                                  |
//! | [`cursor`]     | scans entries                                                    |
//! | [`options`]    | options of new tables and of cursors                             |
//! | [`prefix_extractor`] | prefixes of keys                                           |
//! | [`metadata`]   | identity and description of a table                              |
//! | [`table_expiry`] | expiry of the entries of a table                               |
//! | [`tail`]       | the end of a table, read at once                                 |
//! | [`source`]     | traits for reads and writes of files                             |
//! | [`cache`]      | the block cache, and counters of reads                           |
//! | [`filter_state`] | filters in memory                                              |
//! | [`stored_filter`] | filters in a file, loaded whole or in part                    |
//! | [`filter_file`] | filters outside of their table                                  |
//! | [`blob_file`]  | long values outside of tables                                    |
//! | [`mod@verify`] | verifies a table                                                 |
//! | [`salvage`]    | reads a table without footer                                     |
//! | [`properties`] | statistics and options in a table                                |
//! | [`block`], [`index`], [`footer`] | parts of the format                            |
//! | [`mod@describe`] | annotated dump                                                 |
//! | [`error`]      | errors                                                           |
//!
//! # Layout
//!
//! Integers are little-endian. `testdata` pins these bytes.
//!
//! | part             | protected by               | described in                           |
//! |------------------|----------------------------|----------------------------------------|
//! | file header      | its checksum               | [`sievedb_format::file_header`]        |
//! | data blocks, and index partitions after their last data block | type and checksum of each | [`block::stored`], [`block`], [`index`] |
//! | top index        | type and checksum          | [`index`]                              |
//! | filters, if any, each aligned to 64 bytes by zeros | its checksums | [`sievedb_filter::filter_block`] |
//! | properties       | type and checksum          | [`properties`]                         |
//! | range tombstones, if any | type and checksum  | [`sievedb_format::range_tombstone`]    |
//! | compression dictionary, if any | type and checksum | [`block::stored`]                 |
//! | footer           | its checksum               | [`footer`]                             |
//!
//! # Damaged files
//!
//! For any bytes, a call returns a correct result or a [`ReadError`], and does not panic. Lengths
//! are checked against the file before a read, and decompression is bounded by the properties. A
//! damaged filter costs reads, but hides no keys.

pub mod blob_file;
pub mod block;
mod block_memory;
mod block_reader;
pub mod cache;
mod cache_steps;
pub mod cursor;
mod damaged_filters;
pub mod describe;
pub mod error;
pub mod filter_file;
mod filter_keys;
pub mod filter_state;
pub mod footer;
mod get_many;
mod ghost_blocks;
pub mod index;
mod index_cursor;
pub mod metadata;
pub mod options;
mod output;
pub mod prefix_extractor;
pub mod properties;
mod read_ahead;
pub mod salvage;
pub mod source;
pub mod stored_filter;
mod sync;
pub mod table;
pub mod table_expiry;
pub mod tail;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
pub mod verify;
mod walk_lengths;
pub mod writer;

pub use blob_file::{
    BlobIdentity, BlobPieces, BlobReference, BlobUse, BlobWriter, PIECE_BYTES, describe_blob_file,
};
pub use block::ValueRef;
pub use cache::{BlockCache, BlockCounts, BlockObserver, BlockRequest, CacheUse};
pub use cursor::TableCursor;
pub use damaged_filters::damaged_filters;
pub use describe::describe;
pub use error::ReadError;
pub use filter_file::{describe_filter_file, write_filter_file, write_range_filter_file};
pub use filter_keys::{FilterKeys, PrefixFilter};
pub use filter_state::{FilterHandle, FilterState, FilterUnusable};
pub use ghost_blocks::GhostStats;
pub use metadata::{TableIdentity, TableMetadata, TableSummary};
pub use options::{
    BLOCK_BYTES, Compression, CursorOptions, DEFAULT_BLOCK_BYTES, DEFAULT_INDEX_PARTITION_BYTES,
    DEFAULT_WRITE_BUFFER_BYTES, FILTER_BITS_PER_KEY, InvalidOption, RANGE_FILTER_BITS_PER_KEY,
    TableOptions,
};
pub use prefix_extractor::{PrefixExtractor, PrefixFunction};
pub use properties::{Completed, TableOrigin, TableProperties};
pub use read_ahead::READ_AHEAD_BYTES_MAX;
pub use salvage::{SalvagedCursor, SalvagedTable};
pub use source::{TableSink, TableSource};
pub use stored_filter::StoredFilter;
pub use table::Table;
pub use table_expiry::TableExpiry;
pub use tail::TableTail;
pub use verify::{TableProblem, Verified, file_checksum};
pub use writer::TableWriter;
