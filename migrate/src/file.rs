//! Read-only files.

use std::{
    fs, io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::error::{Error, Result};

/// A file that this crate reads at offsets.
#[derive(Debug)]
pub(crate) struct File {
    file: fs::File,
    path: Arc<Path>,
    len: u64,
}

impl File {
    pub(crate) fn open(path: impl Into<Arc<Path>>) -> Result<Self> {
        let path = path.into();
        #[expect(clippy::disallowed_methods, reason = "files of another engine, only read")]
        let opened = fs::File::open(&path).and_then(|file| {
            let len = file.metadata()?.len();
            Ok((file, len))
        });
        let (file, len) = opened.map_err(|error| Error::io("open", &path, error))?;
        Ok(Self { file, path, len })
    }

    pub(crate) fn handle(&self) -> &fs::File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns `count` bytes at `offset`. Fails if the file is shorter.
    pub(crate) fn read_at(&self, offset: u64, count: usize) -> Result<Vec<u8>> {
        let end = offset.checked_add(count as u64);
        if end.is_none_or(|end| end > self.len) {
            let reason = format!("{count} bytes expected, the file has {} bytes", self.len);
            return Err(Error::corrupt(&self.path, offset, reason));
        }
        let mut bytes = vec![0; count];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(Error::io("read", &self.path, error)),
        }
    }

    /// Returns all bytes of the file. Fails if it has more than `max` bytes.
    pub(crate) fn read_all(&self, max: usize) -> Result<Vec<u8>> {
        match usize::try_from(self.len) {
            Ok(len) if len <= max => self.read_at(0, len),
            _ => Err(Error::corrupt(&self.path, 0, format!("the file is larger than {max} bytes"))),
        }
    }
}

/// Returns the names of the files in the directory `path`.
pub(crate) fn names(path: &Path) -> Result<Vec<String>> {
    #[expect(clippy::disallowed_methods, reason = "a directory of another engine, only read")]
    let listed: io::Result<Vec<_>> = fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
    let listed = listed.map_err(|error| Error::io("list", path, error))?;
    Ok(listed.into_iter().filter_map(|name| name.into_string().ok()).collect())
}

/// Returns the path of the file `number` of a kind.
pub(crate) fn numbered(directory: &Path, number: u64, extension: &str) -> PathBuf {
    directory.join(format!("{number:06}.{extension}"))
}
