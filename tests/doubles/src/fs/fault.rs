//! A file system with injected faults.
//!
//! A failing call does not reach the file system below, with two exceptions. An append may write a
//! prefix first, and a fault may [carry the call out](Fault::carried_out). A call may also
//! [panic](Fault::panic).
//!
//! After a failed [`AppendFile::sync_data`], later syncs of the same file succeed without effect,
//! also through another handle, as [`sievedb::fs`] describes. So a trusted retry shows as lost data
//! at the next crash.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sievedb::fs::{AppendFile, FileLock, Fs, ReadFile};

use super::{Call, Failure, Fault, Times, fault_plan::Faults};

/// A file system whose calls fail on demand.
#[derive(Debug)]
pub struct FaultFs {
    inner: Arc<dyn Fs>,
    faults: Arc<Mutex<Faults>>,
}

impl FaultFs {
    /// Passes every call on to `inner` until a fault is injected.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner, faults: Arc::default() }
    }

    /// Returns the number of calls so far, including calls of handles.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.faults.lock().calls
    }

    /// Makes the call with number `call`, from 0 for the next one, fail with this error of the
    /// operating system. Adds to the injected faults.
    pub fn fail_at(&self, call: usize, raw_os_error: i32, times: Times) {
        self.inject(Fault::new(raw_os_error, times).after(call));
    }

    /// Adds a fault to the injected ones.
    pub fn inject(&self, fault: Fault) {
        self.faults.lock().armed.push(fault);
    }

    /// Removes all faults. Files whose sync failed keep ignoring syncs.
    pub fn heal(&self) {
        self.faults.lock().armed.clear();
    }

    /// Returns the number of failed calls.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.faults.lock().failures.len()
    }

    /// Returns the failed calls in order.
    #[must_use]
    pub fn failed_calls(&self) -> Vec<Failure> {
        self.faults.lock().failures.clone()
    }

    /// Returns the first failed call, for the message of a failing test.
    #[must_use]
    pub fn first_failure(&self) -> Option<Failure> {
        self.faults.lock().failures.first().cloned()
    }

    fn pass<T>(
        &self,
        call: Call,
        path: &Path,
        inner: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        pass(&self.faults, call, path, inner)
    }

    fn appending(&self, inner: Arc<dyn AppendFile>, path: &Path) -> Arc<dyn AppendFile> {
        Arc::new(FaultAppend { inner, path: path.to_owned(), faults: self.faults.clone() })
    }
}

/// Makes the call `inner`, unless a fault matches.
fn pass<T>(
    faults: &Mutex<Faults>,
    call: Call,
    path: &Path,
    inner: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    // Not held during the call: a slow sync would block all other calls.
    let strike = faults.lock().check(call, path);
    let Some(strike) = strike else { return inner() };
    if strike.carried_out {
        inner()?;
    }
    Err(strike.end())
}

impl Fs for FaultFs {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.resolve(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.pass(Call::CreateDir, path, || self.inner.create_dir(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.pass(Call::List, dir, || self.inner.list(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.pass(Call::Exists, path, || self.inner.exists(path))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let inner = self.pass(Call::Create, path, || {
            let inner = self.inner.create(path)?;
            // A new file, even if the name existed before.
            self.faults.lock().lying.remove(path);
            Ok(inner)
        })?;
        Ok(self.appending(inner, path))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let inner = self.pass(Call::OpenAppend, path, || self.inner.open_append(path))?;
        Ok(self.appending(inner, path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let inner = self.pass(Call::Open, path, || self.inner.open(path))?;
        Ok(Arc::new(FaultRead { inner, path: path.to_owned(), faults: self.faults.clone() }))
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let inner = self.pass(Call::Open, path, || self.inner.open_direct(path))?;
        Ok(Arc::new(FaultRead { inner, path: path.to_owned(), faults: self.faults.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass(Call::Rename, to, || self.inner.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.pass(Call::Unlink, path, || self.inner.unlink(path))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass(Call::Link, to, || self.inner.link(from, to))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.pass(Call::SyncDir, path, || self.inner.sync_dir(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.pass(Call::Lock, path, || self.inner.lock(path))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.pass(Call::LockShared, path, || self.inner.lock_shared(path))
    }

    /// Never fails.
    fn read_system_file(&self, path: &Path) -> io::Result<String> {
        self.inner.read_system_file(path)
    }

    /// Never fails.
    fn random_u64(&self) -> io::Result<u64> {
        self.inner.random_u64()
    }
}

#[derive(Debug)]
struct FaultAppend {
    inner: Arc<dyn AppendFile>,
    path: PathBuf,
    faults: Arc<Mutex<Faults>>,
}

impl AppendFile for FaultAppend {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let strike = self.faults.lock().check(Call::Append, &self.path);
        let Some(strike) = strike else { return self.inner.append(bytes) };
        let written = if strike.carried_out { bytes.len() } else { strike.written_bytes };
        self.inner.append(&bytes[..written.min(bytes.len())])?;
        Err(strike.end())
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        pass(&self.faults, Call::Reserve, &self.path, || self.inner.reserve(file_bytes))
    }

    fn sync_data(&self) -> io::Result<()> {
        let (strike, lies) = {
            let mut faults = self.faults.lock();
            let strike = faults.check(Call::SyncData, &self.path);
            let lies = faults.lying.contains(&self.path);
            if strike.as_ref().is_some_and(|strike| !strike.carried_out) {
                faults.lying.insert(self.path.clone());
            }
            (strike, lies)
        };
        if !lies && strike.as_ref().is_none_or(|strike| strike.carried_out) {
            self.inner.sync_data()?;
        }
        strike.map_or(Ok(()), |strike| Err(strike.end()))
    }
}

#[derive(Debug)]
struct FaultRead {
    inner: Arc<dyn ReadFile>,
    path: PathBuf,
    faults: Arc<Mutex<Faults>>,
}

impl FaultRead {
    fn pass<T>(&self, call: Call, inner: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        pass(&self.faults, call, &self.path, inner)
    }
}

impl ReadFile for FaultRead {
    fn len(&self) -> io::Result<u64> {
        self.pass(Call::Len, || self.inner.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.pass(Call::ReadAt, || self.inner.read_at(buf, offset))
    }

    fn advise_read(&self, place: Range<u64>) {
        self.inner.advise_read(place);
    }

    fn reads_are_scattered(&self) {
        self.inner.reads_are_scattered();
    }

    fn map(&self) -> io::Result<Bytes> {
        self.pass(Call::Map, || self.inner.map())
    }
}
