//! Faults of a [`FaultFs`](super::FaultFs).

use std::{
    collections::HashSet,
    fmt, io,
    panic::resume_unwind,
    path::{Path, PathBuf},
};

/// A call of the fs traits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    CreateDir,
    List,
    Exists,
    Create,
    OpenAppend,
    Open,
    Rename,
    Unlink,
    Link,
    SyncDir,
    Lock,
    LockShared,
    Append,
    Reserve,
    SyncData,
    Len,
    ReadAt,
    Map,
}

impl Call {
    /// Calls that a full disk refuses.
    pub const GROWING: [Self; 6] =
        [Self::CreateDir, Self::Create, Self::Rename, Self::Link, Self::Append, Self::Reserve];

    /// Calls that make data durable.
    pub const SYNCS: [Self; 2] = [Self::SyncData, Self::SyncDir];
}

/// Number of calls that a fault affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// One call.
    Once,
    /// A call and every later matching one.
    ForGood,
}

/// Payload of panics from [`Fault::panic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InjectedPanic;

/// Result of a faulty call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Returns this error of the operating system.
    Error(i32),
    /// Panics with [`InjectedPanic`].
    Panic,
}

/// A fault to inject with [`FaultFs::inject`](super::FaultFs::inject).
#[derive(Debug, Clone)]
pub struct Fault {
    end: End,
    times: Times,
    after: usize,
    calls: Option<Vec<Call>>,
    suffix: String,
    written_bytes: usize,
    carried_out: bool,
}

impl Fault {
    /// The next call of any kind fails with this error of the operating system (`errno`).
    #[must_use]
    pub fn new(raw_os_error: i32, times: Times) -> Self {
        Self::ending(End::Error(raw_os_error), times)
    }

    /// The next call of any kind panics with [`InjectedPanic`], without the panic hook.
    #[must_use]
    pub fn panic(times: Times) -> Self {
        Self::ending(End::Panic, times)
    }

    fn ending(end: End, times: Times) -> Self {
        let suffix = String::new();
        Self { end, times, after: 0, calls: None, suffix, written_bytes: 0, carried_out: false }
    }

    /// Lets this many matching calls pass first. Default 0.
    #[must_use]
    pub fn after(mut self, calls: usize) -> Self {
        self.after = calls;
        self
    }

    /// Matches these calls only. Default: all.
    #[must_use]
    pub fn calls(mut self, calls: &[Call]) -> Self {
        self.calls = Some(calls.to_vec());
        self
    }

    /// Matches paths with this suffix only, such as `.log`; for a rename or link, the new path.
    /// Default: all.
    #[must_use]
    pub fn suffix(mut self, suffix: impl Into<String>) -> Self {
        self.suffix = suffix.into();
        self
    }

    /// Makes a failing append write at most this many bytes. Default 0.
    #[must_use]
    pub fn written_bytes(mut self, bytes: usize) -> Self {
        self.written_bytes = bytes;
        self
    }

    /// Applies the call before it fails: all bytes are written, the file is created, or the sync is
    /// durable. Later syncs of the file are not ignored. Default: not applied.
    #[must_use]
    pub fn carried_out(mut self) -> Self {
        self.carried_out = true;
        self
    }

    fn is_about(&self, call: Call, path: &Path) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.contains(&call))
            && path.as_os_str().as_encoded_bytes().ends_with(self.suffix.as_bytes())
    }
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Number of the call, from 0.
    pub number: usize,
    /// Which call.
    pub call: Call,
    /// Its path; for a rename or link, the new one.
    pub path: PathBuf,
    /// Reported error (`errno`); `None` if the call panicked.
    pub raw_os_error: Option<i32>,
    /// The call was applied before it failed.
    pub carried_out: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, call, path, raw_os_error, carried_out } = self;
        let done = if *carried_out { " after it was carried out" } else { "" };
        write!(f, "call {number} failed{done}: {call:?} {}", path.display())?;
        match raw_os_error {
            Some(errno) => write!(f, " (os error {errno})"),
            None => write!(f, " (panic)"),
        }
    }
}

/// Faults of a [`FaultFs`](super::FaultFs) and the failed calls.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) calls: usize,
    pub(super) armed: Vec<Fault>,
    pub(super) failures: Vec<Failure>,
    /// Files with a failed sync: later syncs succeed without effect.
    pub(super) lying: HashSet<PathBuf>,
}

/// Effect of a fault on a call.
pub(super) struct Strike {
    end: End,
    pub(super) written_bytes: usize,
    pub(super) carried_out: bool,
}

impl Strike {
    /// Returns the error of the call.
    ///
    /// # Panics
    ///
    /// If the fault is a panic.
    pub(super) fn end(self) -> io::Error {
        match self.end {
            End::Error(errno) => io::Error::from_raw_os_error(errno),
            End::Panic => resume_unwind(Box::new(InjectedPanic)),
        }
    }
}

impl Faults {
    /// Counts a call. Returns the fault that applies, if any.
    pub(super) fn check(&mut self, call: Call, path: &Path) -> Option<Strike> {
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
                // A second fault of this call applies to the next one.
                return true;
            }
            let Fault { end, written_bytes, carried_out, .. } = *fault;
            strike = Some(Strike { end, written_bytes, carried_out });
            fault.times == Times::ForGood
        });
        let strike = strike?;
        let raw_os_error = match strike.end {
            End::Error(errno) => Some(errno),
            End::Panic => None,
        };
        let (path, carried_out) = (path.to_owned(), strike.carried_out);
        self.failures.push(Failure { number, call, path, raw_os_error, carried_out });
        Some(strike)
    }
}
