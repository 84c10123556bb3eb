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

/// On one thread; the keyspace is flushed when somebody asks for it.
fn options(keyspace: KeyspaceOptions) -> Options {
    Options::new().worker_threads(0).block_cache_bytes(1 << 20).keyspace(keyspace)
}

/// The table files in the folder of a store, the oldest first.
fn tables(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut tables: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|end| end == "sst")).collect();
    tables.sort();
    tables
}

/// Where the footer of a table says that the block of this kind lies.
fn block_of(table: &Path, kind: u8) -> Option<Part> {
    footer_part(&fs::read(table).unwrap(), kind)
}

/// Changes the bytes of one block of a table, and makes its checksum right again.
fn forge(table: &Path, part: &Part, change: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(table).unwrap();
    change(&mut bytes[part.place()]);
    part.seal(&mut bytes);
    fs::write(table, bytes).unwrap();
}
