//! Empties the page cache of the files of one store, so that reads come from the device.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Advice, fadvise},
    mm,
};

use crate::{
    failure::Result,
    process::{Memory, entries, read},
};

/// The page cache of one store's files.
#[derive(Debug)]
pub(crate) struct PageCache {
    folder: PathBuf,
    /// Bytes of mapped pages that may stay in memory: a memory map is its engine's cache.
    mapped_bytes_max: u64,
}

impl PageCache {
    pub(crate) fn new(folder: &Path, mapped_bytes_max: u64) -> Self {
        Self { folder: folder.to_owned(), mapped_bytes_max }
    }

    /// Writes back dirty pages, which would stay otherwise, then empties the page cache.
    pub(crate) fn sync_and_empty(&self) -> Result<()> {
        each_file(&self.folder, &|file| file.sync_all())?;
        self.empty()
    }

    /// Empties the page cache. Dirty pages stay, and so do mapped pages below the bound.
    pub(crate) fn empty(&self) -> Result<()> {
        if Memory::now()?.mapped > self.mapped_bytes_max {
            self.let_maps_go()?;
        }
        each_file(&self.folder, &|file| Ok(fadvise(file, 0, None, Advice::DontNeed)?))
    }

    /// Removes all shared maps of the store's files from the page tables, because mapped pages
    /// cannot leave the page cache.
    fn let_maps_go(&self) -> Result<()> {
        let maps = read("/proc/self/maps")?;
        for (start, end) in shared_maps(&maps, &self.folder) {
            let address = std::ptr::without_provenance_mut(start);
            // SAFETY: the range is one shared map of a file. `DONTNEED` loses nothing of such a
            // map: pages come back from the page cache or the file, and dirty ones stay in the page
            // cache.
            unsafe { mm::madvise(address, end - start, mm::Advice::LinuxDontNeed)? };
        }
        Ok(())
    }
}

/// Returns start and end of the shared maps of files below `folder` in `/proc/self/maps` format.
fn shared_maps(maps: &str, folder: &Path) -> Vec<(usize, usize)> {
    let place = |line: &str| {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next()?, fields.next()?);
        // Offset, device and inode lie between.
        let path = fields.nth(3)?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16));
        let ours = rights.ends_with('s') && Path::new(path).starts_with(folder);
        ours.then_some((start.ok()?, end.ok()?))
    };
    maps.lines().filter_map(place).collect()
}

/// Applies `work` to every file in `folder` except locks: closing one would release it.
fn each_file(folder: &Path, work: &impl Fn(&fs::File) -> io::Result<()>) -> Result<()> {
    for entry in entries(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_dir() {
            each_file(&path, work)?;
        } else if !name.contains("lock") {
            match open(&path).and_then(|file| work(&file)) {
                // Removed by a background job.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "these are files of other engines too")]
fn open(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_maps_of_the_directory_are_dropped() {
        let maps = "\
7f00-7f10 r--s 00000000 fe:00 12 /data/store/data.mdb
7f20-7f30 r--p 00000000 fe:00 12 /data/store/data.mdb
7f40-7f50 r--s 00000000 fe:00 13 /data/store-2/data.mdb
7f60-7f70 rw-p 00000000 00:00 0
7f80-7f90 rw-s 00001000 fe:00 14 /data/store/deep/table
";
        let want = vec![(0x7f00, 0x7f10), (0x7f80, 0x7f90)];
        assert_eq!(shared_maps(maps, Path::new("/data/store")), want);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes files")]
    fn files_keep_their_content() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        let file = folder.path().join("deep/file");
        fs::write(&file, [7; 10_000]).unwrap();
        PageCache::new(folder.path(), 0).sync_and_empty().unwrap();
        assert_eq!(fs::read(&file).unwrap(), [7; 10_000]);
    }
}
