//! The file system interface: all disk access of the engine goes through [`Fs`].
//!
//! A store uses [`RealFs`], the file system of the machine, unless [`Options::fs`] sets another
//! implementation. Uses of another one:
//!
//! * a store in memory, or inside another container of files;
//! * tests of an application: a call that fails, a full disk, a slow sync;
//! * counters or limits of reads and writes, by wrapping [`RealFs`].
//!
//! An implementation must keep the promises below. The store reports every error that it returns,
//! and treats a failed sync as final.
//!
//! [`Options::fs`]: crate::Options::fs
//!
//! # What each call makes durable
//!
//! The data of a file and the entry of its name in a directory reach the disk separately.
//!
//! | call                                     | seen by readers | survives a power cut               |
//! |------------------------------------------|-----------------|------------------------------------|
//! | [`AppendFile::append`], [`AppendFile::reserve`] | at return | after [`AppendFile::sync_data`]   |
//! | [`Fs::create`], [`Fs::lock`] of a new name, [`Fs::rename`], [`Fs::link`], [`Fs::unlink`] | at return | after [`Fs::sync_dir`] of its directory |
//! | [`Fs::create_dir`]                       | at return       | after [`Fs::sync_dir`] of each parent |
//!
//! Before its sync each of these is kept or lost independently, in any combination and order. A
//! lost append before a kept one leaves zeros; a rename can survive without the data of its file. A
//! sync of a file does not keep its name. A sync of a directory keeps neither the data of its files
//! nor the directory's own name. [`Fs::rename`] is atomic: after a power cut the new name holds the
//! old file or the new one.
//!
//! This is what POSIX promises and no more (`fsync`, `rename`; Linux `fsync(2)`: the directory
//! entry needs an `fsync` of its own). File systems differ in how much more they give: Pillai et
//! al., "All File Systems Are Not Created Equal", OSDI 2014. The crash tests of SieveDB rely on
//! none of it.
//!
//! # After a failed sync
//!
//! Data of a failed sync is not durable, even if another sync of the same file succeeds. The kernel
//! marks failed pages clean, so the second sync writes nothing (Rebello et al., "Can Applications
//! Recover from fsync Failures?", ATC 2020). Readers may still see the bytes, from memory. Write
//! them again to another file.

mod arriving;
mod direct;
#[cfg(test)]
#[expect(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "these files are also a crate of their own"
)]
#[path = "../../../tests/doubles/src/fs/mod.rs"]
mod doubles;
mod forward;
mod read_only;
mod real;

use std::{
    fmt::Debug,
    io,
    ops::Range,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

pub(crate) use arriving::{ArrivingFiles, ArrivingFs, Origin};
pub(crate) use forward::forward_fs;
pub(crate) use read_only::ReadOnlyFs;
pub use real::RealFs;

#[cfg(test)]
pub(crate) use doubles::*;

/// A file system. Calls may be made from any thread. The module documentation defines what survives
/// a power cut.
///
/// # Errors
///
/// Errors of the operating system. Callers distinguish `NotFound`, `AlreadyExists` and, for locks,
/// `WouldBlock`. A call that fails may have been carried out in full, in part or not at all.
pub trait Fs: Debug + Send + Sync {
    /// Returns `path` in a form that is independent of the process's working directory. Reads no
    /// file.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// Returns `path` from the root on, without symbolic links, `.` and `..`. Missing parts stay as
    /// they are.
    ///
    /// By default this reads no file: [`absolute`](Self::absolute) without `.` and `..`. Override
    /// it if the file system has symbolic links, or else
    /// [`Options::repair`](crate::Options::repair) may not notice that two directories overlap.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        resolved(&self.absolute(path)?, |path| Ok(path.to_owned()))
    }

    /// Creates `path` and its missing parents. Succeeds if the directory exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Returns the names of the files in `dir`, sorted. Omits directories, and names that are not
    /// UTF-8, which no store has.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Returns `true` if a file or directory has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Creates an empty file for appending. `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>>;

    /// Opens an existing file for appending at its end. No other handle appends to it.
    ///
    /// Only for a file whose bytes are all durable: a sync through this handle need not cover
    /// appends through another one. Not for a file with [reserved](AppendFile::reserve) bytes:
    /// appends would follow them.
    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>>;

    /// Opens a file for reading. It stays readable through the handle after it is unlinked.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Opens a file for reading past the page cache of the operating system. Reads may begin and
    /// end at any byte: the implementation reads the blocks of the device around them.
    ///
    /// `Unsupported`, the default, if the file system has no such reads.
    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Renames the file `from` to `to` in the same directory, replacing `to`.
    ///
    /// `InvalidInput` across directories: after a power cut either directory could be behind.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes the name of a file. Its bytes are freed with the last name and the last handle.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Adds the name `to` to the file `from`, in any directory of the same file system.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the present entries of the directory `path` durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens the directory `path`, so that its entries can be synced when no file descriptor is
    /// left.
    ///
    /// Returns `None`, the default, if the implementation has no such handle. The store then calls
    /// [`sync_dir`](Self::sync_dir).
    ///
    /// # Errors
    ///
    /// Errors of the operating system.
    fn open_dir(&self, path: &Path) -> io::Result<Option<Box<dyn DirHandle>>> {
        let _ = path;
        Ok(None)
    }

    /// Locks the file `path` exclusively, and creates it if missing. `WouldBlock` if it is locked,
    /// by another process or by this one. Drop unlocks, and so does the end of the process and of
    /// its forked children.
    ///
    /// May write the process id to the file, as a hint for other processes that find it locked.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Locks the file `path` against [`lock`](Self::lock), but not against other shared locks.
    /// `WouldBlock` if it is locked exclusively. Creates nothing, and needs only read permission:
    /// `NotFound` if the file is missing.
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Reads a text file in which the operating system describes the machine, such as
    /// `/proc/meminfo`. It belongs to no store. Bytes that are not UTF-8 are replaced.
    ///
    /// The default of [`Options::memory_budget`](crate::Options::memory_budget) depends on these
    /// files. The provided method returns `NotFound`; the default budget is then
    /// [`FALLBACK_MEMORY_BUDGET`](crate::options::FALLBACK_MEMORY_BUDGET). A file system that wraps
    /// [`RealFs`] forwards the call.
    fn read_system_file(&self, path: &Path) -> io::Result<String> {
        let _ = path;
        Err(io::ErrorKind::NotFound.into())
    }

    /// Returns a random number for store ids, salts of tables and the seed of the key hash.
    ///
    /// By default from the operating system. It must be unpredictable: an attacker who knows the
    /// seed can choose keys that collide in filters.
    fn random_u64(&self) -> io::Result<u64> {
        getrandom::u64().map_err(io::Error::other)
    }
}

/// An open directory.
pub trait DirHandle: Debug + Send + Sync {
    /// Makes the present entries of the directory durable, as [`Fs::sync_dir`] does.
    ///
    /// # Errors
    ///
    /// Errors of the operating system. The error is final, see the module.
    fn sync(&self) -> io::Result<()>;
}

/// A file that grows at its end.
pub trait AppendFile: Debug + Send + Sync {
    /// Writes `bytes` at the end. Concurrent appends may mix their bytes.
    ///
    /// # Errors
    ///
    /// Errors of the operating system; `StorageFull` or `QuotaExceeded` if there is no room. Any
    /// prefix of `bytes` may have been written.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Extends the file to at least `file_bytes`, ahead of the appends that fill it. Bytes that are
    /// not appended yet read as zeros. Takes no space on file systems with holes.
    ///
    /// For a file that is synced often: a sync that does not change the length saves a commit of
    /// the file system's journal. Not concurrent with an append. Does nothing by default.
    ///
    /// # Errors
    ///
    /// Errors of the operating system. Appends then work as before.
    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        let _ = file_bytes;
        Ok(())
    }

    /// Makes every append and reservation that returned before the call durable. A concurrent
    /// append may or may not be covered.
    ///
    /// # Errors
    ///
    /// Errors of the operating system. The error is final for this file, see the module.
    fn sync_data(&self) -> io::Result<()>;
}

/// A file open for reading.
pub trait ReadFile: Debug + Send + Sync {
    /// Returns the present length of the file, in bytes.
    ///
    /// # Errors
    ///
    /// Errors of the operating system.
    fn len(&self) -> io::Result<u64>;

    /// Returns `true` if the file has no bytes.
    ///
    /// # Errors
    ///
    /// As [`len`](Self::len).
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the file ends before; the content of `buf` is then unspecified. Otherwise
    /// those of the operating system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Announces a read of these bytes, so that the implementation can prefetch them without
    /// blocking. A hint, which cannot fail; does nothing by default.
    fn advise_read(&self, place: Range<u64>) {
        let _ = place;
    }

    /// Announces random reads, so that the implementation prefetches only what
    /// [`advise_read`](Self::advise_read) announces. A hint, which cannot fail; does nothing by
    /// default.
    fn reads_are_scattered(&self) {}

    /// Maps the present bytes of the file, without a copy. Slices keep the whole map alive.
    ///
    /// A read error, or truncation by another program, kills the process (`SIGBUS`) when the bytes
    /// are read. Use [`read_at`](Self::read_at) unless the user accepts that.
    ///
    /// # Errors
    ///
    /// Errors of the operating system.
    fn map(&self) -> io::Result<Bytes>;
}

/// A held lock. Drop releases it. In a forked child, drop only closes the child's descriptor, and
/// the parent keeps the lock.
pub trait FileLock: Debug + Send + Sync {}

/// Returns `path` from the root on, without `.` and `..`. `real` returns the path of each component
/// without symbolic links.
fn resolved(path: &Path, real: impl Fn(&Path) -> io::Result<PathBuf>) -> io::Result<PathBuf> {
    let mut resolved = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            Component::CurDir => {}
            part => {
                resolved.push(part);
                resolved = real(&resolved)?;
            }
        }
    }
    Ok(resolved)
}

/// Returns `None` if the file or directory of a call is missing.
pub(crate) fn existing<T>(called: io::Result<T>) -> io::Result<Option<T>> {
    match called {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        called => called.map(Some),
    }
}

fn check_same_dir(from: &Path, to: &Path) -> io::Result<()> {
    if from.parent() == to.parent() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "a rename must stay within one directory"))
}
