//! Why a store operation failed.

use std::{error, fmt, io, path::PathBuf, sync::Arc};

use rustix::io::Errno;
use sievedb_format::Corruption;

use crate::{handle_counts::OpenHandles, text};

/// The `op` of an [`Error::Io`] that a failed sync caused.
pub(crate) const SYNC: &str = "sync";
/// The `op` of an [`Error::Io`] that a failed lock of the store caused.
pub(crate) const LOCK: &str = "lock";

/// The end of each message about damage.
const TO_DO_ABOUT_DAMAGE: &str = "run `sieve verify` to list all damage, then restore a backup or \
                                  copy what can be read with `sieve repair`";

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a store operation failed.
///
/// What it displays leaves out the cause, which [`source`](error::Error::source) tells: what the
/// operating system said, which field is damaged, why the store is read-only. Print both, as
/// `anyhow` does with `{error:#}`, or by hand:
///
/// ```
/// # use std::error::Error as _;
/// # let Err(error) = sievedb::Db::open("/dev/null/store") else { return };
/// let mut text = error.to_string();
/// let mut cause = error.source();
/// while let Some(error) = cause {
///     text += &format!(": {error}");
///     cause = error.source();
/// }
/// eprintln!("{text}");
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum Error {
    /// The operating system refused `op` on `path`.
    Io { op: &'static str, path: PathBuf, source: Arc<io::Error> },
    /// The file's bytes break its format near `offset`. Never the caller's fault.
    Corrupt { path: PathBuf, offset: u64, source: Corruption },
    /// The file at `path`, of `keyspace` if it is about one, needs the feature `feature` of this
    /// crate, which this build is without. Nothing is damaged, and nothing was changed.
    NeedsFeature { path: PathBuf, keyspace: Option<String>, feature: &'static str },
    /// A later release wrote the file at `path`, and it needs the feature `needs`, which this
    /// release does not have. Open the store with that release. Nothing is damaged, and nothing was
    /// changed.
    NewerRelease { path: PathBuf, needs: String },
    /// The folder `path` holds `name`, which is no file of a store, and it holds no store: none is
    /// made there. Nothing was changed.
    ForeignDirectory { path: PathBuf, name: String },
    /// The folder `path` is to be empty, and holds `name`. Nothing was changed.
    DirectoryNotEmpty { path: PathBuf, name: String },
    /// One of the directories `from` and `to` of a [repair](crate::Options::repair) is the other
    /// one, or is inside of it. Nothing was changed.
    DirectoriesOverlap { from: PathBuf, to: PathBuf },
    /// The folder `path` is missing, or holds no store, and none is to be made:
    /// [`Options::create_if_missing`](crate::Options::create_if_missing), or what only reads.
    /// Nothing was changed.
    NoStore { path: PathBuf },
    /// `path`, or something that it should lie in, is a file, and a store is a folder.
    NotADirectory { path: PathBuf },
    /// Another process, or this one, has the store at `path` open: in this one as long as a handle
    /// of any kind lives, a keyspace, snapshot, batch or iterator too. Only those that open it
    /// [read-only](crate::Options::read_only) may have it open together.
    ///
    /// `process` is the process id in the file `LOCK`, if any: that of the last process that opened
    /// the store for writing. It is a hint and may be stale. Read-only processes write none.
    Locked { path: PathBuf, process: Option<u32> },
    /// The directory `path` already contains a store, and
    /// [`Options::create_new`](crate::Options::create_new) was set. Nothing was changed.
    StoreExists { path: PathBuf },
    /// [`Db::open_keyspace`](crate::Db::open_keyspace) found no keyspace `name`. Nothing was
    /// changed.
    NoKeyspace { name: String },
    /// [`Db::close`](crate::Db::close) did not close the store at `path`, because other `handles`
    /// exist. The drop of the last one closes it, and so does
    /// [`Db::shutdown`](crate::Db::shutdown).
    StillOpen { path: PathBuf, handles: OpenHandles },
    /// [`Db::shutdown`](crate::Db::shutdown) did not close the store at `path`: work in flight did
    /// not end within the timeout. All calls fail with [`Closed`](Self::Closed), and the store
    /// stays locked. Call `shutdown` again.
    StillBusy { path: PathBuf },
    /// `cause` made it unsafe to write on; reads go on.
    ///
    /// Reopening the store recovers. A damaged table is never the cause: see
    /// [`Event::TableQuarantined`](crate::Event::TableQuarantined).
    ///
    /// If `cause` is [`OpenedReadOnly`](Self::OpenedReadOnly), nothing is wrong.
    ReadOnly { cause: Arc<Error> },
    /// The store at `path` was opened with [`Options::read_only`](crate::Options::read_only). Only
    /// as the cause of [`ReadOnly`](Self::ReadOnly).
    OpenedReadOnly { path: PathBuf },
    /// The key has `bytes` bytes; at most `bytes_max` are allowed. Nothing was changed.
    KeyTooLong { bytes: usize, bytes_max: usize },
    /// The value has `bytes` bytes; at most `bytes_max` are allowed. Nothing was changed.
    ValueTooLong { bytes: usize, bytes_max: usize },
    /// The write takes `bytes` bytes of memory ([`Batch::bytes`](crate::Batch::bytes)); at most
    /// `bytes_max` are allowed, three quarters of what
    /// [`Options::memtable_bytes_max`](crate::Options::memtable_bytes_max) gives to memtables, by
    /// default a quarter of [`Options::memory_budget`](crate::Options::memory_budget), and a little
    /// less if empty memtables take some of it. Nothing was changed, and a batch is as it was:
    /// commit it again after [`Db::set_memory_budget`](crate::Db::set_memory_budget), or write it
    /// in parts. If `memtable_bytes_max` was set, no budget changes it while the store is open.
    WriteTooLarge { bytes: u64, bytes_max: u64 },
    /// Building the filter of a table anew takes `bytes` bytes of memory; at most `bytes_max` are
    /// allowed, what one worker has of the memory for writing. The table goes on without it.
    FilterTooLarge { bytes: u64, bytes_max: u64 },
    /// The memory budget, or one of its parts, has `bytes` bytes and needs `bytes_min`; `what` says
    /// what it is, and `made_of` what makes up the minimum. Nothing was changed.
    BudgetTooSmall { what: &'static str, bytes: u64, bytes_min: u64, made_of: String },
    /// The option `name` has an invalid value; `allowed` states the valid ones.
    InvalidOption { name: &'static str, allowed: &'static str },
    /// The name of a keyspace is empty, or longer than 255 bytes.
    InvalidKeyspaceName { name: String },
    /// The keyspace `name` is always there, and cannot be dropped.
    RequiredKeyspace { name: String },
    /// The keyspace `name` was dropped; the handle is of no use any more.
    KeyspaceDropped { name: String },
    /// The batch holds a keyspace of another store.
    ForeignKeyspace { name: String },
    /// This process was forked from the one that opened the store at `path`. Nothing was changed.
    /// Drop the inherited handles, and open the store in this process after the parent has closed
    /// it.
    ForkedChild { path: PathBuf },
    /// The store has taken its 2^56 writes.
    SequenceNumbersExhausted,
    /// A background thread panicked, or a caller's thread while it wrote to the log or the
    /// manifest. The panic is a bug of this library, of a [`PrefixFunction`](crate::PrefixFunction)
    /// or of an [`Fs`](crate::fs::Fs). The panic hook received its message.
    WorkerPanicked,
    /// [`Db::shutdown`](crate::Db::shutdown) closed the store, before the call or during it.
    Closed,
}

impl Error {
    /// Wraps what the operating system said about `op` on `path`.
    pub(crate) fn io(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { op, path: path.into(), source: Arc::new(source) }
    }

    /// Adds the place to what a decoder said.
    pub(crate) fn corrupt(path: impl Into<PathBuf>, offset: u64, source: Corruption) -> Self {
        let path = path.into();
        match source {
            Corruption::NeedsFeature { feature, .. } => {
                Self::NeedsFeature { path, keyspace: None, feature }
            }
            source => Self::Corrupt { path, offset, source },
        }
    }

    /// Converts the error to one of opening a store: bytes with good checksums that this release
    /// does not know were written by a later one.
    pub(crate) fn of_opening(self) -> Self {
        match self {
            Self::Corrupt { path, source: Corruption::Unsupported { what, value }, .. } => {
                Self::NewerRelease { path, needs: format!("{what} {value}") }
            }
            other => other,
        }
    }

    /// Adds the keyspace to an error that can name one.
    pub(crate) fn of_keyspace(mut self, name: &str) -> Self {
        if let Self::NeedsFeature { keyspace, .. } = &mut self {
            *keyspace = Some(name.to_owned());
        }
        self
    }

    /// Whether the disk, or a quota on it, is full: a state that passes.
    ///
    /// Not if a sync said so. Then it is unknown what is on the disk, as after any failed sync.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, Self::Io { op, source, .. } if *op != SYNC && full.contains(&source.kind()))
    }

    /// Returns whether the same call may succeed later, and the state on disk is known until then:
    /// the disk is full, no file descriptor is left, memory is short, or the call was interrupted.
    pub(crate) fn is_passing(&self) -> bool {
        use io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
        let is_short = |error: &io::Error| {
            is_out_of_files(error) || matches!(error.kind(), OutOfMemory | Interrupted | WouldBlock)
        };
        self.is_no_space()
            || matches!(self, Self::Io { op, source, .. } if *op != SYNC && is_short(source))
    }
}

/// Returns whether a call failed because the process or the system has no file descriptor left.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    let limits = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| limits.contains(&code))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `source()` tells the cause; a message that repeats it prints it twice.
        match self {
            Self::Io { op, path, source } => {
                write!(f, "cannot {op} {}", path.display())?;
                match source.kind() {
                    _ if self.is_no_space() => {
                        write!(
                            f,
                            "; free space on this file system or raise the quota, then try again"
                        )
                    }
                    io::ErrorKind::PermissionDenied if *op == LOCK => write!(
                        f,
                        "; give this user read and write permission for the directory and its \
                         files, or read permission and open the store with Options::read_only"
                    ),
                    io::ErrorKind::PermissionDenied => {
                        write!(f, "; give this user permission for the file and its directory")
                    }
                    _ => Ok(()),
                }
            }
            // About the file as a whole.
            Self::Corrupt { path, offset: 0, source: Corruption::Missing { .. } } => {
                write!(f, "{} cannot be used; {TO_DO_ABOUT_DAMAGE}", path.display())
            }
            Self::Corrupt { path, offset, .. } => {
                let path = path.display();
                write!(f, "{path} is corrupt near byte {offset}; {TO_DO_ABOUT_DAMAGE}")
            }
            Self::NeedsFeature { path, keyspace, feature } => {
                if let Some(name) = keyspace {
                    write!(f, "the keyspace {name:?} in ")?;
                }
                let path = path.display();
                write!(
                    f,
                    "{path} needs the feature {feature}, which this build is without; build \
                     sievedb with it"
                )
            }
            Self::NewerRelease { path, needs } => write!(
                f,
                "{} was written by a newer release: needs {needs}; open the store with that \
                 release",
                path.display()
            ),
            Self::ForeignDirectory { path, name } => write!(
                f,
                "not a store: {} holds {name:?}; use an empty directory, which may hold subdirectories",
                path.display()
            ),
            Self::DirectoryNotEmpty { path, name } => {
                write!(
                    f,
                    "{} is not empty: it holds {name:?}; use an empty directory",
                    path.display()
                )
            }
            Self::DirectoriesOverlap { from, to } => write!(
                f,
                "{} and {} must not lie in one another, since a repair never changes the damaged \
                 store; name a new directory elsewhere",
                from.display(),
                to.display()
            ),
            Self::NoStore { path } => write!(f, "there is no store in {}", path.display()),
            Self::NotADirectory { path } => {
                write!(f, "not a directory: {}, or one of its parents, is a file", path.display())
            }
            Self::Locked { path, process } => {
                write!(
                    f,
                    "{} is open in another process, or by a handle in this process",
                    path.display()
                )?;
                match process {
                    Some(id) if *id == std::process::id() => {
                        write!(f, " (LOCK names this process)")?;
                    }
                    Some(id) => {
                        write!(f, " (LOCK names process {id}, which may have ended)")?;
                    }
                    None => {}
                }
                write!(f, "; close it there first, or open it read-only everywhere")
            }
            Self::StoreExists { path } => write!(
                f,
                "{} already contains a store; use another directory, or do not set \
                 Options::create_new",
                path.display()
            ),
            Self::NoKeyspace { name } => write!(
                f,
                "the store has no keyspace {name:?}; list keyspaces with Db::keyspaces, or create \
                 one with Db::keyspace"
            ),
            Self::StillOpen { path, handles } => write!(
                f,
                "{} is still open: other handles exist ({handles}); drop them, or call \
                 Db::shutdown",
                path.display()
            ),
            Self::StillBusy { path } => write!(
                f,
                "{} is not closed: work in flight has not ended; call Db::shutdown again",
                path.display()
            ),
            Self::ReadOnly { cause } if matches!(**cause, Self::OpenedReadOnly { .. }) => {
                write!(f, "the store is open for reading only")
            }
            Self::ReadOnly { .. } => {
                write!(f, "the store is read-only after an error; reopen it to recover")
            }
            Self::OpenedReadOnly { path } => {
                write!(f, "{} was opened with Options::read_only", path.display())
            }
            Self::KeyTooLong { bytes, bytes_max } => {
                write!(f, "a key of {bytes} bytes is too long: at most {bytes_max} are allowed")
            }
            Self::ValueTooLong { bytes, bytes_max } => {
                write!(f, "a value of {bytes} bytes is too long: at most {bytes_max} are allowed")
            }
            Self::WriteTooLarge { bytes, bytes_max } => {
                let (size, most) = (text::bytes(*bytes), text::bytes(*bytes_max));
                write!(
                    f,
                    "a write that takes {size} ({bytes} bytes) of memory is too large: at most {most} ({bytes_max}) \
                     are allowed, three quarters of what empty memtables leave of Options::memtable_bytes_max, a quarter of \
                     Options::memory_budget unless it is set"
                )
            }
            Self::FilterTooLarge { bytes, bytes_max } => write!(
                f,
                "a filter that takes {bytes} bytes of memory to build is too large: at most {bytes_max} are allowed"
            ),
            Self::BudgetTooSmall { what, bytes, bytes_min, made_of } => {
                let (size, least) = (text::bytes(*bytes), text::bytes(*bytes_min));
                write!(
                    f,
                    "{what} of {size} ({bytes} bytes) is too small: at least {least} ({bytes_min}) are needed, \
                     {made_of}"
                )
            }
            Self::InvalidOption { name, allowed } => {
                write!(f, "the option {name} is invalid: {allowed}")
            }
            Self::InvalidKeyspaceName { name } => {
                write!(f, "{name:?} cannot name a keyspace: 1 to 255 bytes are allowed")
            }
            Self::RequiredKeyspace { name } => {
                write!(f, "the keyspace {name:?} cannot be dropped: every store has it")
            }
            Self::KeyspaceDropped { name } => write!(f, "the keyspace {name:?} was dropped"),
            Self::ForeignKeyspace { name } => {
                write!(f, "the keyspace {name:?} belongs to another store")
            }
            Self::ForkedChild { path } => write!(
                f,
                "{} was opened by the parent of this forked process; drop the inherited handles, \
                 and open the store after the parent has closed it",
                path.display()
            ),
            Self::SequenceNumbersExhausted => write!(f, "the store has no sequence numbers left"),
            Self::WorkerPanicked => write!(f, "a background thread or a write panicked"),
            Self::Closed => write!(f, "the store is closed; open it again"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Corrupt { source, .. } => Some(source),
            Self::ReadOnly { cause } => Some(cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n16_messages_say_what_to_do() {
        let io = |op, kind: io::ErrorKind| Error::io(op, "/store/000007.log", kind.into());
        let locked = |process| Error::Locked { path: "/store".into(), process };
        let what = "segment of the log";
        let lost = Error::corrupt("/store/000007.log", 0, Corruption::Missing { what });
        let damaged = Error::corrupt("/store/000007.log", 64, Corruption::Missing { what });
        let name = "notes".to_owned();
        let panicked = Arc::new(Error::WorkerPanicked);
        let cases: [(Error, [&str; 2]); 12] = [
            (io("create", io::ErrorKind::StorageFull), ["cannot create /store", "; free space"]),
            (io("append to", io::ErrorKind::QuotaExceeded), ["000007.log", "raise the quota"]),
            (io(LOCK, io::ErrorKind::PermissionDenied), ["cannot lock", "Options::read_only"]),
            (io("open", io::ErrorKind::PermissionDenied), ["cannot open", "give this user"]),
            (lost, ["000007.log cannot be used; run `sieve verify`", "`sieve repair`"]),
            (damaged, ["000007.log is corrupt near byte 64; run", "restore a backup"]),
            (locked(None), ["/store is open", "; close it there first"]),
            (locked(Some(0)), ["LOCK names process 0", "; close it there first"]),
            (
                Error::DirectoryNotEmpty { path: "/new".into(), name: name.clone() },
                ["/new", "; use"],
            ),
            (Error::NoKeyspace { name }, ["\"notes\"", "; list keyspaces"]),
            (Error::ReadOnly { cause: panicked }, ["read-only", "; reopen it"]),
            (Error::Closed, ["closed", "; open it again"]),
        ];
        for (error, parts) in cases {
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
