//! Emptying the page cache, so that files are read from the device.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Drops the files in `dir` from the page cache. Returns a description of the result, even after a
/// failure.
pub(crate) fn drop_page_cache(dir: &Path) -> String {
    match drop_pages(dir) {
        Ok(0) => "the directory of the store has no files".to_owned(),
        Ok(files) => format!("posix_fadvise(DONTNEED) for {files} files"),
        Err(error) => format!("cannot empty the page cache: {error}"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the engine's `fs` trait cannot empty the page cache"
)]
#[cfg(any(target_os = "linux", target_os = "freebsd", target_os = "android"))]
fn drop_pages(dir: &Path) -> io::Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let file = File::open(entry.path())?;
            // Dirty pages are not dropped.
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            files += 1;
        }
    }
    Ok(files)
}

#[cfg(not(any(target_os = "linux", target_os = "freebsd", target_os = "android")))]
fn drop_pages(_dir: &Path) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_described() {
        let dir = tempfile::tempdir().unwrap();
        assert!(drop_page_cache(dir.path()).contains("no files"));
        assert!(drop_page_cache(&dir.path().join("none")).contains("cannot empty"));
    }
}
