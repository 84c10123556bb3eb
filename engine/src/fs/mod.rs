//! Files: the one door through which the engine touches a disk.
//!
//! A store uses [`RealFs`], the file system of the machine, unless [`Options::fs`] sets another
//! implementation of [`Fs`]. Uses of another one:
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
//! A file is two things that reach the disk apart: its data, and the entry of its name in a folder.
//!
//! | call                                     | seen by readers | survives a power cut               |
//! |------------------------------------------|-----------------|------------------------------------|
//! | [`AppendFile::append`], [`AppendFile::reserve`] | at return | after [`AppendFile::sync_data`]   |
//! | [`Fs::create`], [`Fs::lock`] of a new name, [`Fs::rename`], [`Fs::link`], [`Fs::unlink`] | at return | after [`Fs::sync_folder`] of its folder |
//! | [`Fs::create_folder`]                    | at return       | after [`Fs::sync_folder`] of each parent |
//!
//! Before its sync each of these is kept or lost by itself, in any combination and order: a lost
//! append before a kept one leaves zeros, a rename can survive while the data of its file does not.
//! A sync of a file does not keep its name, and a sync of a folder does not keep the data of its
//! files nor the folder's own name. [`Fs::rename`] is one step: after a cut the new name holds the
//! old file or the new one.
//!
//! This is what POSIX promises and no more (`fsync`, `rename`; Linux `fsync(2)`: the entry in the
//! folder needs an `fsync` of its own). File systems differ in how much more they give: Pillai et
//! al., "All File Systems Are Not Created Equal", OSDI 2014. The crash tests
//! of SieveDB rely on none of it.
//!
//! # After a failed sync
//!
//! Nothing that the sync was to make durable may be taken as durable, now or after another sync of
//! the same file that succeeds: the kernel marks failed pages clean, so the second sync has nothing
//! to write (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). Readers
//! may still see the bytes, from memory. Write them again to another file.

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

pub(crate) use read_only::ReadOnlyFs;
pub use real::RealFs;

#[cfg(test)]
pub(crate) use doubles::*;

/// A file system.
///
/// Every call may be made from any thread. The module says what survives a power cut.
///
/// # Errors
///
/// What the operating system says. The kinds that callers tell apart: `NotFound`, `AlreadyExists`
/// and, for the locks, `WouldBlock`. A call that fails may have been carried
/// out in full, in part or not at all.
pub trait Fs: Debug + Send + Sync {
    /// `path` as it stays the same file when the process changes its current folder. Looks at no
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

    /// Creates `path` and its missing parents. A folder that exists is fine.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Names of the files in `folder`, sorted. Folders in it, and names that are not UTF-8 and so
    /// none of ours, are left out.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Whether a file or folder has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Creates an empty file for appending. `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>>;

    /// Opens a file that is there for appending at its end. Nobody else has it open for appending.
    ///
    /// Only for a file whose every byte is known to be durable: a sync through this handle need not
    /// cover what was appended through another one. And not for one of which bytes are
    /// [reserved](AppendFile::reserve): what is appended would lie behind them.
    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>>;

    /// Opens a file for reading. It stays readable through the handle after it is unlinked.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Opens a file for reading past the page cache of the operating system. Reads may begin and
    /// end anywhere: whoever implements this reads the blocks of the device that they lie in.
    ///
    /// `Unsupported` if the file system cannot do that, which is so by default.
    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives the file `from` the name `to` in the same folder; replaces the file that has it.
    ///
    /// `InvalidInput` across folders: after a cut either of the two folders could be behind.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes the name of a file. Its bytes go when the last name and the last handle are gone.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Gives the file `from` a second name `to`, in any folder of the same file system.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the entries of `path` as they are now durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Opens the directory `path`, so that its entries can be synced when no file descriptor is
    /// left.
    ///
    /// Returns `None`, the default, if the implementation has no such handle. The store then calls
    /// [`sync_folder`](Self::sync_folder).
    ///
    /// # Errors
    ///
    /// What the operating system reports.
    fn open_folder(&self, path: &Path) -> io::Result<Option<Box<dyn FolderHandle>>> {
        let _ = path;
        Ok(None)
    }

    /// Locks the file `path`, which is created if missing. `WouldBlock` if it is locked already, by
    /// another process or by this one. Drop unlocks, and so does the end of the process.
    ///
    /// May write the process id to the file, as a hint for other processes that find it locked.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Locks the file `path` together with everybody else who does so, and against
    /// [`lock`](Self::lock). `WouldBlock` if somebody has it for himself. Creates nothing, and
    /// needs no more than the right to read the file: `NotFound` if it is missing.
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

    /// A random number: store ids, salts of tables and the seed of the key hash are made of them.
    ///
    /// From the operating system, unless the implementation has its own: nobody outside should be
    /// able to tell the next one, or he could choose keys that collide in filters.
    fn random_u64(&self) -> io::Result<u64> {
        getrandom::u64().map_err(io::Error::other)
    }
}

/// An open directory.
pub trait FolderHandle: Debug + Send + Sync {
    /// Makes the present entries of the directory durable, as [`Fs::sync_folder`] does.
    ///
    /// # Errors
    ///
    /// What the operating system reports. The error is final, see the module.
    fn sync(&self) -> io::Result<()>;
}

/// A file that grows at its end.
pub trait AppendFile: Debug + Send + Sync {
    /// Writes `bytes` at the end.
    ///
    /// One append at a time: concurrent ones may mix their bytes.
    ///
    /// # Errors
    ///
    /// What the operating system says; `StorageFull` or `QuotaExceeded` if there is no room. Any
    /// prefix of `bytes` may have been written.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the file at least `file_bytes` long, ahead of the appends that fill it: what is not
    /// appended yet reads as zeros. Takes no space where the file system knows holes.
    ///
    /// For a file that is synced often: a sync that need not write a new length is the shorter by a
    /// commit of the file system's journal. Not beside an append. Does nothing by default.
    ///
    /// # Errors
    ///
    /// What the operating system says. Appends go on as before then.
    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        let _ = file_bytes;
        Ok(())
    }

    /// Makes every append and reservation that returned before the call durable. May run beside an
    /// append, which is then covered or not.
    ///
    /// # Errors
    ///
    /// What the operating system says. The error is final for this file, see the module.
    fn sync_data(&self) -> io::Result<()>;
}

/// A file open for reading.
pub trait ReadFile: Debug + Send + Sync {
    /// Length of the file now, in bytes.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
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
    /// `UnexpectedEof` if the file ends before; the content of `buf` is then unspecified. Else what
    /// the operating system says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// These bytes are about to be read: whoever can, begins to fetch them and does not wait. Only
    /// a hint, which cannot fail; does nothing by default.
    fn advise_read(&self, place: Range<u64>) {
        let _ = place;
    }

    /// Reads of this file are in an order that cannot be guessed: whoever fetches more than is
    /// asked for fetches from now on only what [`advise_read`](Self::advise_read) announces. Only a
    /// hint, which cannot fail; does nothing by default.
    fn reads_are_scattered(&self) {}

    /// The bytes of the file as it is now, without a copy. Slices keep the whole map alive.
    ///
    /// A read error or a truncation by someone else kills the process (`SIGBUS`) when the bytes are
    /// touched. Use [`read_at`](Self::read_at) unless the user accepts that.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn map(&self) -> io::Result<Bytes>;
}

/// A held lock. Drop releases it. In a forked child, drop only closes the child's descriptor, and
/// the parent keeps the lock.
pub trait FileLock: Debug + Send + Sync {}

/// Returns `path` from the root on, without `.` and `..`. `real` returns the path of each part
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

/// Refuses a rename across folders.
fn check_same_folder(from: &Path, to: &Path) -> io::Result<()> {
    if from.parent() == to.parent() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "a rename stays within one folder"))
}
