//! A file system on top of another one. Calls that a layer does not change are passed through.

use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use sievedb::fs::{AppendFile, DirHandle, FileLock, Fs, ReadFile};

/// Calls that a layer changes. The defaults call the file system below.
pub trait Layer: Debug + Send + Sync {
    /// Returns the file system below.
    fn inner(&self) -> &dyn Fs;

    /// As [`Fs::list`].
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner().list(dir)
    }

    /// As [`Fs::create`].
    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.inner().create(path)
    }

    /// As [`Fs::open_append`].
    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.inner().open_append(path)
    }

    /// As [`Fs::open`].
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.inner().open(path)
    }

    /// As [`Fs::link`].
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner().link(from, to)
    }

    /// As [`Fs::unlink`].
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner().unlink(path)
    }

    /// As [`Fs::sync_dir`].
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner().sync_dir(path)
    }

    /// As [`Fs::read_system_file`].
    fn read_system_file(&self, path: &Path) -> io::Result<String> {
        self.inner().read_system_file(path)
    }

    /// As [`Fs::open_dir`]: returns no handle, so that [`sync_dir`](Self::sync_dir) is called.
    fn open_dir(&self, _: &Path) -> io::Result<Option<Box<dyn DirHandle>>> {
        Ok(None)
    }
}

/// The file system of a [`Layer`].
#[derive(Debug)]
pub struct Layered<L>(pub L);

impl<L: Layer> Fs for Layered<L> {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.0.inner().absolute(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.0.inner().resolve(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.inner().create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.inner().exists(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.0.create(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.0.open_append(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.0.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.inner().rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.0.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.link(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<Box<dyn DirHandle>>> {
        self.0.open_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.0.inner().lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.0.inner().lock_shared(path)
    }

    fn read_system_file(&self, path: &Path) -> io::Result<String> {
        self.0.read_system_file(path)
    }

    fn random_u64(&self) -> io::Result<u64> {
        self.0.inner().random_u64()
    }
}
