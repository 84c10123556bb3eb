//! A new file that gets its final name when it is durable.

use std::{
    ffi::OsString,
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// Size of the write buffer in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// A new file. It is `NAME.partial` until [`finish`](Self::finish) returns, so an interrupted
/// program leaves no file that looks whole.
///
/// Dropping an unfinished file deletes it.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Write as _;
///
/// use sievedb_migrate::export::OutputFile;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("entries");
/// let mut file = OutputFile::create(&path)?;
/// file.write_all(b"a")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"a");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OutputFile {
    file: BufWriter<fs::File>,
    partial: PathBuf,
    path: PathBuf,
    is_finished: bool,
}

impl OutputFile {
    /// Creates the file `path`.
    ///
    /// # Errors
    ///
    /// * [`Error::Exists`]: the file `path` exists, or an unfinished file of an earlier call, which
    ///   may still run.
    /// * [`Error::Io`]: the operating system refused to create it.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let (path, partial) = (path.as_ref().to_owned(), partial(path.as_ref()));
        check_absent(&path)?;
        let file = new_file(&partial)?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(Self { file, partial, path, is_finished: false })
    }

    /// Flushes the buffer, makes the file durable, and renames it to its final name.
    ///
    /// # Errors
    ///
    /// * [`Error::Exists`]: another program has created the file meanwhile.
    /// * [`Error::Io`]: the operating system refused an operation. If the sync of the directory
    ///   failed, the file has its final name, which a crash may revert.
    pub fn finish(mut self) -> Result<()> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(|error| Error::io("write", &self.partial, error))?;
        check_absent(&self.path)?;
        rename(&self.partial, &self.path)?;
        self.is_finished = true;
        sync_directory(parent(&self.path))
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // If this fails, the name `NAME.partial` shows that the file is incomplete.
            #[expect(clippy::disallowed_methods, reason = "no file of a store")]
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Returns the name of an unfinished file or directory.
pub(super) fn partial(path: &Path) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(".partial");
    path.with_file_name(name)
}

/// Returns the directory of a file.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

pub(super) fn check_absent(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Err(Error::Exists { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("open", path, error)),
    }
}

/// Creates a file, which must not exist.
pub(super) fn new_file(path: &Path) -> Result<fs::File> {
    #[expect(clippy::disallowed_methods, reason = "no file of a store")]
    fs::File::create_new(path).map_err(|error| not_created(path, error))
}

pub(super) fn not_created(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: path.to_owned() },
        _ => Error::io("create", path, error),
    }
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "no file of a store")]
    fs::rename(from, to).map_err(|error| Error::io("rename", from, error))
}

/// Makes the directory entries durable.
pub(super) fn sync_directory(path: &Path) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "no directory of a store")]
    let synced = fs::File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Error::io("sync", path, error))
}
