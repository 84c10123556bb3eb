//! Export of sorted entries as tables that RocksDB ingests.
//!
//! [`Export`] writes a directory with a subdirectory for each column family. Its tables have the
//! format of RocksDB's `SstFileWriter`. `IngestExternalFile` adds them to a database.
//!
//! | part          | written                                                        |
//! |---------------|----------------------------------------------------------------|
//! | tables        | block-based, format version 5: RocksDB 6.6 or later reads them |
//! | blocks        | 16 KiB, restart points every 16 keys, LZ4 or no compression    |
//! | checksums     | CRC-32C                                                        |
//! | index         | one block, binary search                                       |
//! | filter        | none; RocksDB builds one when it compacts the table            |
//! | entries       | values with the sequence number 0, each key once               |
//! | comparator    | bytewise                                                       |
//!
//! The directory of an export is `NAME.partial` until all tables are durable and have been read
//! again.

mod block;
mod directory;
mod family_name;
mod options;
mod output_directory;
mod output_file;
mod properties;
mod table;
#[cfg(test)]
mod tests;

pub use directory::{Export, ExportedFamily};
pub use family_name::directory_name;
pub use options::{ENTRY_BYTES_MAX, ExportOptions};
pub use output_directory::OutputDirectory;
pub use output_file::OutputFile;
