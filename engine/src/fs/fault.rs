//! Calls that fail on demand, for tests.
//!
//! A call that fails does not reach the file system below, with one exception: an append may write
//! a prefix first. After a failed [`AppendFile::sync_data`] the later ones of the same handle
//! succeed without reaching the file system below either: that is the kernel's lie that
//! [`fs`](super) tells of, so a retry that is believed shows as lost data at the next crash.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{AppendFile, FileLock, Fs, ReadFile};

/// A call of the fs traits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named like the methods")]
pub enum Call {
    CreateFolder,
    List,
    Exists,
    Create,
    Open,
    Rename,
    Unlink,
    Link,
    SyncFolder,
    Lock,
    Append,
    SyncData,
    Len,
    ReadAt,
    Map,
}

impl Call {
    /// The calls that a full disk refuses.
    pub const GROWING: [Self; 5] =
        [Self::CreateFolder, Self::Create, Self::Rename, Self::Link, Self::Append];

    /// The calls that make something durable.
    pub const SYNCS: [Self; 2] = [Self::SyncData, Self::SyncFolder];
}

/// How often a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// At one call.
    Once,
    /// At that call and every later one that it is about.
    ForGood,
}

/// A fault to inject with [`FaultFs::inject`].
#[derive(Debug, Clone)]
pub struct Fault {
    raw_os_error: i32,
    times: Times,
    after: usize,
    calls: Option<Vec<Call>>,
    suffix: String,
    written_bytes: usize,
}

impl Fault {
    /// The next call, whichever it is, fails with this error of the operating system (`errno`).
    #[must_use]
    pub fn new(raw_os_error: i32, times: Times) -> Self {
        let suffix = String::new();
        Self { raw_os_error, times, after: 0, calls: None, suffix, written_bytes: 0 }
    }

    /// Lets this many of the calls that the fault is about pass first. Default 0.
    #[must_use]
    pub fn after(mut self, calls: usize) -> Self {
        self.after = calls;
        self
    }

    /// Is about these calls only. Default: all.
    #[must_use]
    pub fn calls(mut self, calls: &[Call]) -> Self {
        self.calls = Some(calls.to_vec());
        self
    }

    /// Is about paths that end so only, such as `.log`; for a rename or link, the new path. Default:
    /// all.
    #[must_use]
    pub fn suffix(mut self, suffix: impl Into<String>) -> Self {
        self.suffix = suffix.into();
        self
    }

    /// Makes an append that fails write its first bytes, at most this many. Default 0.
    #[must_use]
    pub fn written_bytes(mut self, bytes: usize) -> Self {
        self.written_bytes = bytes;
        self
    }

    fn is_about(&self, call: Call, path: &Path) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.contains(&call))
            && path.as_os_str().as_encoded_bytes().ends_with(self.suffix.as_bytes())
    }
}

/// A call that was made to fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Number of the call, from 0 on.
    pub number: usize,
    /// Which call.
    pub call: Call,
    /// Its path; for a rename or link, the new one.
    pub path: PathBuf,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} failed: {:?} {}", self.number, self.call, self.path.display())
    }
}

/// A file system whose calls fail on demand.
#[derive(Debug)]
pub struct FaultFs {
    inner: Arc<dyn Fs>,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Debug, Default)]
struct Faults {
    calls: usize,
    armed: Vec<Fault>,
    failures: usize,
    first: Option<Failure>,
}

/// What a call that must fail does.
struct Strike {
    error: io::Error,
    written_bytes: usize,
}

impl From<Strike> for io::Error {
    fn from(strike: Strike) -> Self {
        strike.error
    }
}

impl Faults {
    /// Counts a call, and says whether it fails.
    fn check(&mut self, call: Call, path: &Path) -> Result<(), Strike> {
        let number = self.calls;
        self.calls += 1;
        let mut strike = None;
        self.armed.retain_mut(|fault| {
            if !fault.is_about(call, path) {
                return true;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return true;
            }
            if strike.is_some() {
                // Two faults at one call: the other one waits for the next.
                return true;
            }
            let error = io::Error::from_raw_os_error(fault.raw_os_error);
            strike = Some(Strike { error, written_bytes: fault.written_bytes });
            fault.times == Times::ForGood
        });
        let Some(strike) = strike else { return Ok(()) };
        self.failures += 1;
        self.first.get_or_insert_with(|| Failure { number, call, path: path.to_owned() });
        Err(strike)
    }
}

impl FaultFs {
    /// Passes every call on to `inner` until a fault is injected.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner, faults: Arc::default() }
    }

    /// Number of calls so far, of this and of the handles that it gave out.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.faults.lock().calls
    }

    /// Makes the call with number `call`, counted from now with 0 for the next one, fail with this
    /// error of the operating system. Adds to the faults that were injected before.
    pub fn fail_at(&self, call: usize, raw_os_error: i32, times: Times) {
        self.inject(Fault::new(raw_os_error, times).after(call));
    }

    /// Adds a fault to those that were injected before.
    pub fn inject(&self, fault: Fault) {
        self.faults.lock().armed.push(fault);
    }

    /// Takes all faults back. The syncs of a file whose sync failed go on lying.
    pub fn heal(&self) {
        self.faults.lock().armed.clear();
    }

    /// Number of calls that were made to fail.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.faults.lock().failures
    }

    /// The first call that was made to fail, for the message of a failing test.
    #[must_use]
    pub fn first_failure(&self) -> Option<Failure> {
        self.faults.lock().first.clone()
    }

    fn check(&self, call: Call, path: &Path) -> Result<(), Strike> {
        self.faults.lock().check(call, path)
    }
}

impl Fs for FaultFs {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.check(Call::CreateFolder, path)?;
        self.inner.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.check(Call::List, folder)?;
        self.inner.list(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.check(Call::Exists, path)?;
        self.inner.exists(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.check(Call::Create, path)?;
        let inner = self.inner.create(path)?;
        let (path, faults) = (path.to_owned(), self.faults.clone());
        Ok(Arc::new(FaultAppend { inner, path, faults, lies: AtomicBool::new(false) }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.check(Call::Open, path)?;
        let inner = self.inner.open(path)?;
        Ok(Arc::new(FaultRead { inner, path: path.to_owned(), faults: self.faults.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Call::Rename, to)?;
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.check(Call::Unlink, path)?;
        self.inner.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Call::Link, to)?;
        self.inner.link(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.check(Call::SyncFolder, path)?;
        self.inner.sync_folder(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.check(Call::Lock, path)?;
        self.inner.lock(path)
    }
}

#[derive(Debug)]
struct FaultAppend {
    inner: Arc<dyn AppendFile>,
    path: PathBuf,
    faults: Arc<Mutex<Faults>>,
    /// Whether a sync failed, so that later ones do nothing and say they did.
    lies: AtomicBool,
}

impl AppendFile for FaultAppend {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        // The lock must not be held while the call goes on, or a slow sync would stop all others.
        let checked = self.faults.lock().check(Call::Append, &self.path);
        if let Err(strike) = checked {
            self.inner.append(&bytes[..strike.written_bytes.min(bytes.len())])?;
            return Err(strike.error);
        }
        self.inner.append(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let checked = self.faults.lock().check(Call::SyncData, &self.path);
        if let Err(strike) = checked {
            self.lies.store(true, Ordering::Relaxed);
            return Err(strike.error);
        }
        if self.lies.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.inner.sync_data()
    }
}

#[derive(Debug)]
struct FaultRead {
    inner: Arc<dyn ReadFile>,
    path: PathBuf,
    faults: Arc<Mutex<Faults>>,
}

impl FaultRead {
    fn check(&self, call: Call) -> Result<(), Strike> {
        self.faults.lock().check(call, &self.path)
    }
}

impl ReadFile for FaultRead {
    fn len(&self) -> io::Result<u64> {
        self.check(Call::Len)?;
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(Call::ReadAt)?;
        self.inner.read_at(buf, offset)
    }

    fn map(&self) -> io::Result<Bytes> {
        self.check(Call::Map)?;
        self.inner.map()
    }
}
