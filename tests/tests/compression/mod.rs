//! Stores whose last level is compressed by zstd: in builds with the feature `zstd`, and in those
//! without.
//!
//! | module    | what                                                                              |
//! |-----------|-----------------------------------------------------------------------------------|
//! | `with`    | such stores are written, read, compacted, verified and described; damage to them  |
//! | `without` | a build without the feature names it where it meets one                           |

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::disallowed_methods, reason = "it looks at the files of stores, and damages them")]

#[cfg(feature = "zstd")]
mod with;
#[cfg(not(feature = "zstd"))]
mod without;

use std::{
    fs,
    path::{Path, PathBuf},
};

use sievedb::{KeyspaceOptions, Options};

use crate::corruption::forge::{Part, footer_part};

/// Runs on one thread; keyspaces are flushed on request only.
fn options(keyspace: KeyspaceOptions) -> Options {
    Options::new().worker_threads(0).block_cache_bytes(1 << 20).keyspace(keyspace)
}

/// Returns the tables in the directory of a store, oldest first.
fn tables(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut tables: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|end| end == "sst")).collect();
    tables.sort();
    tables
}

/// Returns the block of this kind that the footer of a table names.
fn block_of(table: &Path, kind: u8) -> Option<Part> {
    footer_part(&fs::read(table).unwrap(), kind)
}

/// Changes a block of a table and updates its checksum.
fn forge(table: &Path, part: &Part, change: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(table).unwrap();
    change(&mut bytes[part.place()]);
    part.seal(&mut bytes);
    fs::write(table, bytes).unwrap();
}
