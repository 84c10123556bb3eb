//! Files are read from the device again.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Asks the operating system to forget what it has in memory of the files in `folder`, which must
/// be on the device already. Returns in words what was done; a failure is such an answer, too.
pub(crate) fn drop_page_cache(folder: &Path) -> String {
    match forget(folder) {
        Ok(0) => "the directory of the store has no files".to_owned(),
        Ok(files) => format!("posix_fadvise(DONTNEED) for {files} files"),
        Err(error) => format!("the page cache stays: {error}"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the engine's `fs` trait cannot empty the page cache"
)]
#[cfg(any(target_os = "linux", target_os = "freebsd", target_os = "android"))]
fn forget(folder: &Path) -> io::Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let file = File::open(entry.path())?;
            // What was not written back yet would stay.
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            files += 1;
        }
    }
    Ok(files)
}

#[cfg(not(any(target_os = "linux", target_os = "freebsd", target_os = "android")))]
fn forget(_folder: &Path) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_it_did() {
        let folder = tempfile::tempdir().unwrap();
        assert!(drop_page_cache(folder.path()).contains("no files"));
        assert!(drop_page_cache(&folder.path().join("none")).contains("stays"));
    }
}
