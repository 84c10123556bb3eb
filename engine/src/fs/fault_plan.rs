//! Which calls of a [`FaultFs`](super::FaultFs) fail, and how.

use std::{
    collections::HashSet,
    fmt, io,
    path::{Path, PathBuf},
};

/// A call of the fs traits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named like the methods")]
pub enum Call {
    CreateFolder,
    List,
    Exists,
    Create,
    OpenAppend,
    Open,
    Rename,
    Unlink,
    Link,
    SyncFolder,
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
    /// The calls that a full disk refuses.
    pub const GROWING: [Self; 6] =
        [Self::CreateFolder, Self::Create, Self::Rename, Self::Link, Self::Append, Self::Reserve];

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

/// A fault to inject with [`FaultFs::inject`](super::FaultFs::inject).
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

/// The faults of a [`FaultFs`](super::FaultFs), and what they did.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) calls: usize,
    pub(super) armed: Vec<Fault>,
    pub(super) failures: usize,
    pub(super) first: Option<Failure>,
    /// The files of which a sync failed: later ones do nothing and say they did.
    pub(super) lying: HashSet<PathBuf>,
}

/// What a call that must fail does.
pub(super) struct Strike {
    pub(super) error: io::Error,
    pub(super) written_bytes: usize,
}

impl From<Strike> for io::Error {
    fn from(strike: Strike) -> Self {
        strike.error
    }
}

impl Faults {
    /// Counts a call, and says whether it fails.
    pub(super) fn check(&mut self, call: Call, path: &Path) -> Result<(), Strike> {
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
