//! The file system of the machine.
//!
//! `sync_data` is `fdatasync`: it covers data and length, not times. A directory is synced by
//! `fsync` on a handle of it. A lock is `flock`: each open has its own lock, which also excludes
//! other opens in this process. The kernel releases it with the process.

#![expect(clippy::disallowed_methods, reason = "this module implements the fs trait")]

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{self, Path, PathBuf},
    process,
    sync::Arc,
};

use bytes::Bytes;
use memmap2::Mmap;
#[cfg(target_os = "linux")]
use rustix::fs::{Advice, fadvise};

use super::{
    AppendFile, DirHandle, FileLock, Fs, ReadFile, check_same_dir, direct::DirectFile, resolved,
};
use crate::gate::Gate;

/// Most attempts to lock a file that others unlink at the same time.
const LOCK_TRIES_MAX: usize = 100;

/// The file system of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

impl Fs for RealFs {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        path::absolute(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let is_missing =
            |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        resolved(&self.absolute(path)?, |path| match path.canonicalize() {
            Err(error) if is_missing(error.kind()) => Ok(path.to_owned()),
            real => real,
        })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(named(dir))? {
            let entry = entry?;
            let kind = match entry.file_type() {
                // Unlinked meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                kind => kind?,
            };
            if !kind.is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(named(path))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = File::open(path)?;
        // Opening a directory succeeds, and the first read fails.
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Arc::new(RealFile(file)))
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(DirectFile::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        check_same_dir(from, to)?;
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(named(path))?.sync_all()
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<Box<dyn DirHandle>>> {
        Ok(Some(Box::new(RealDir(File::open(named(path))?))))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut tries = 1..=LOCK_TRIES_MAX;
        let (file, tried) = loop {
            let file = OpenOptions::new().append(true).create(true).open(path)?;
            let tried = file.try_lock();
            if tried.is_err() || is_at(&file, path)? || tries.next().is_none() {
                break (file, tried);
            }
        };
        if tried.is_ok() {
            // Used in the message of another opener: a failure to write it changes nothing.
            let _ = file.set_len(0).and_then(|()| writeln!(&file, "{}", process::id()));
        }
        held(file, tried)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut tries = 1..=LOCK_TRIES_MAX;
        loop {
            let file = File::open(path)?;
            let tried = file.try_lock_shared();
            if tried.is_err() || is_at(&file, path)? || tries.next().is_none() {
                return held(file, tried);
            }
        }
    }

    fn read_system_file(&self, path: &Path) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
    }
}

/// Returns `false` if `path` is no longer the name of `file`: its last owner has unlinked it, and a
/// lock of it excludes no one.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (own, named) = (file.metadata()?, fs::metadata(path));
    match named {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        named => named.map(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())),
    }
}

fn held(file: File, tried: Result<(), TryLockError>) -> io::Result<Box<dyn FileLock>> {
    match tried {
        Ok(()) => Ok(Box::new(RealLock { file, gate: Gate::new() })),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The parent of `"data"` is `""`, which the operating system does not accept as the working
/// directory.
fn named(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

#[derive(Debug)]
struct RealDir(File);

impl DirHandle for RealDir {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

#[derive(Debug)]
struct RealFile(File);

impl AppendFile for RealFile {
    /// Appends at the position of the handle, after the previous append: `O_APPEND` would follow
    /// the reserved bytes.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0).write_all(bytes)
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        // A write beyond this limit kills the process (SIGXFSZ).
        if i128::from(file_bytes) > file_bytes_max()? {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // Never shrinks the file: that would truncate appended bytes.
        if self.0.metadata()?.len() < file_bytes {
            self.0.set_len(file_bytes)?;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

impl ReadFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    #[cfg(target_os = "linux")]
    fn advise_read(&self, place: std::ops::Range<u64>) {
        let bytes = std::num::NonZeroU64::new(place.end.saturating_sub(place.start));
        // No length would mean the rest of the file.
        if bytes.is_some() {
            // A hint: the read itself reports errors.
            let _ = fadvise(&self.0, place.start, bytes, Advice::WillNeed);
        }
    }

    #[cfg(target_os = "linux")]
    fn reads_are_scattered(&self) {
        let _ = fadvise(&self.0, 0, None, Advice::Random);
    }

    fn map(&self) -> io::Result<Bytes> {
        map(&self.0)
    }
}

/// Returns the limit of the length of files. `rustix` takes the system call for infallible, and a
/// seccomp filter may refuse it.
fn file_bytes_max() -> io::Result<i128> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid during the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } {
        0 => Ok(limit.rlim_cur.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn map(file: &File) -> io::Result<Bytes> {
    if file.metadata()?.len() == 0 {
        // An empty map is an error on some systems.
        return Ok(Bytes::new());
    }
    // SAFETY: mapped bytes must not change while the map exists. Through this trait they cannot:
    // files are created new, only grow, and are never truncated, and new bytes are after the map.
    // Reserved bytes do change; only logs have them, and logs are never mapped. The store's lock
    // excludes other engines. The contract of `ReadFile::map` excludes other programs that write to
    // the store's files.
    let map = unsafe { Mmap::map(file) }?;
    Ok(Bytes::from_owner(map))
}

#[derive(Debug)]
struct RealLock {
    file: File,
    /// Not a process id: in a namespace of its own, a child may have that of its parent.
    gate: Gate,
}

impl Drop for RealLock {
    /// Unlocks explicitly: a child that another thread just forked shares the handle until it
    /// executes its program, and would keep the lock until then.
    fn drop(&mut self) {
        // A forked child shares the lock with its parent, and only closes its descriptor.
        if !self.gate.is_forked() {
            // If this fails, the close of the descriptor unlocks.
            let _ = self.file.unlock();
        }
    }
}

impl FileLock for RealLock {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_though_a_copy_of_its_handle_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let file = File::create(&path).unwrap();
        file.try_lock().unwrap();
        let copy = file.try_clone().unwrap();
        drop(RealLock { file, gate: Gate::new() });
        drop(RealFs.lock(&path).unwrap());
        drop(copy);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(any(miri, feature = "shuttle"))))]
    fn a_forked_child_with_the_id_of_its_parent_does_not_unlock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let file = File::create(&path).unwrap();
        file.try_lock().unwrap();
        let of_parent = file.try_clone().unwrap();
        let gate = Gate::new();
        gate.set_forked(true);
        drop(RealLock { file, gate });
        let locked = RealFs.lock(&path).map(drop).unwrap_err();
        assert_eq!(locked.kind(), io::ErrorKind::WouldBlock);
        drop(of_parent);
    }

    /// Its last owner may unlink the file between the calls that open and lock it.
    #[test]
    fn an_unlinked_file_is_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let file = File::create(&path).unwrap();
        assert!(is_at(&file, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path).unwrap());
        let _other = File::create(&path).unwrap();
        assert!(!is_at(&file, &path).unwrap());
    }
}
