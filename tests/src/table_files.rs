//! Table files beside a store, for ingests.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb::{KeyspaceOptions, TableWriter, fs::Fs};
use sievedb_doubles::MemoryFs;

const DIR: &str = "data/files";

/// Writes ascending `entries` into so many files. Returns their paths, the last one first.
///
/// # Panics
///
/// If a file cannot be written.
#[must_use]
pub fn write_files(disk: &Arc<MemoryFs>, entries: &[(Bytes, Bytes)], files: usize) -> Vec<PathBuf> {
    disk.create_dir(Path::new(DIR)).expect("a disk in memory has room");
    let parts = entries.chunks(entries.len().div_ceil(files.max(1)).max(1)).enumerate();
    let write = |(number, part): (usize, &[(Bytes, Bytes)])| {
        let path = Path::new(DIR).join(format!("{number}.sst"));
        // A crash may bring back a file that was removed.
        let _ = disk.unlink(&path);
        let fs = Arc::clone(disk) as Arc<dyn Fs>;
        let mut writer = TableWriter::with_fs(&path, fs, &KeyspaceOptions::new())
            .expect("a disk in memory has room");
        for (key, value) in part {
            writer.insert(key, value).expect("keys ascend");
        }
        writer.finish().expect("a disk in memory has room");
        path
    };
    let mut paths: Vec<_> = parts.map(write).collect();
    paths.reverse();
    paths
}

/// Removes files of [`write_files`].
///
/// # Panics
///
/// If a file is missing.
pub fn remove_files(disk: &MemoryFs, paths: &[PathBuf]) {
    paths.iter().for_each(|path| disk.unlink(path).expect("the file was written"));
}
