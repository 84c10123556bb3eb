//! Errors of store operations.

mod text;

use std::{
    error, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use rustix::io::Errno;
use sievedb_format::Corruption;

use crate::{PointInTime, StallReason, handle_counts::OpenHandles, merge_operator::MergeError};

/// The `op` of an [`Error::Io`] that a failed sync caused.
pub(crate) const SYNC: &str = "sync";
/// The `op` of an [`Error::Io`] that a failed lock of the store caused.
pub(crate) const LOCK: &str = "lock";

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a store operation.
///
/// The message omits the cause, which [`source`](error::Error::source) returns: the error of the
/// operating system, the damaged field, the reason why the store is read-only. Print both, as
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
///
/// The variants can be constructed, so that a wrapper of the store can return these errors. Match
/// their fields with `..`: a breaking release may add fields.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum Error {
    /// The operating system failed `op` on `path`. `op` is text for people, and may change: see
    /// [`is_retryable`](Self::is_retryable) and [`is_failed_sync`](Self::is_failed_sync).
    Io { op: &'static str, path: PathBuf, source: Arc<io::Error> },
    /// The bytes of the file break its format near `offset`.
    Corrupt { path: PathBuf, offset: u64, source: Corruption },
    /// The file `path`, and its `keyspace` if known, needs the feature `feature` of this crate,
    /// which this build lacks. Nothing is damaged or changed.
    NeedsFeature { path: PathBuf, keyspace: Option<String>, feature: &'static str },
    /// A later release wrote the file `path`. It needs the feature `needs`, which this release
    /// lacks. Open the store with that release. Nothing is damaged or changed.
    NewerRelease { path: PathBuf, needs: String },
    /// The file `path` is encrypted. Open the store with its keys:
    /// `Options::encryption`, of the feature `encryption`. Nothing was changed.
    Encrypted { path: PathBuf },
    /// The file `path` is not encrypted, but the store was opened with `Options::encryption`.
    /// Nothing was changed.
    NotEncrypted { path: PathBuf },
    /// The key provider failed, or has no root key `key_id`, which `path` requires. Nothing was
    /// changed.
    NoKey { path: PathBuf, key_id: u64, source: Arc<dyn error::Error + Send + Sync> },
    /// The root key `key_id` of the key provider is not the one that encrypted the file `path`.
    /// Nothing was changed.
    WrongKey { path: PathBuf, key_id: u64 },
    /// The directory `path` contains the file `name` and no store, so no store was created. Nothing
    /// was changed.
    ForeignDirectory { path: PathBuf, name: String },
    /// The directory `path` must be empty, but contains `name`. Nothing was changed.
    DirectoryNotEmpty { path: PathBuf, name: String },
    /// The directories `from` and `to` of a [repair](crate::Options::repair), a
    /// [checkpoint](crate::Db::checkpoint) or a [backup](crate::BackupSet) are the same, or one
    /// contains the other. Nothing was changed.
    DirectoriesOverlap { from: PathBuf, to: PathBuf },
    /// The directory `path` is missing or contains no store, and
    /// [`Options::create_if_missing`](crate::Options::create_if_missing) is `false` or the call
    /// only reads. Nothing was changed.
    NoStore { path: PathBuf },
    /// The [backup set](crate::BackupSet) in the directory `path` has no backup `number`, or no
    /// backup at all if `number` is 0. Nothing was changed.
    NoBackup { path: PathBuf, number: u64 },
    /// The [backup set](crate::BackupSet) in the directory `path` cannot restore the point `at`.
    /// The point is after the end of the archived log, `archived_to`, or before the first backup.
    /// Nothing was changed.
    NotArchived { path: PathBuf, at: PointInTime, archived_to: u64 },
    /// Files of the [replica](crate::Replica) in the directory `path` have not been fetched. Open
    /// it by [`open_replica`](crate::BackupSet::open_replica). Nothing was changed.
    IncompleteReplica { path: PathBuf },
    /// The [repair](crate::Options::repair) that wrote the store in the directory `path` did not
    /// end. Remove the directory and repeat the repair. Nothing was changed.
    IncompleteRepair { path: PathBuf },
    /// The store in the directory `path` cannot be refreshed: it is not a
    /// [replica](crate::Replica), or was opened for writing. Nothing was changed.
    NoReplica { path: PathBuf },
    /// `path`, or one of its parents, is a file.
    NotADirectory { path: PathBuf },
    /// The store at `path` is open in another process or in this one. Any handle keeps it open: see
    /// [`OpenHandles`](crate::OpenHandles). [Read-only](crate::Options::read_only) opens share the
    /// lock, and a [follower](crate::Options::follow) needs none.
    ///
    /// `process` is the process id in the file `LOCK`, if any: that of the last process that opened
    /// the store for writing. It may have ended, and a [forked child](crate::Db#forks) of it may
    /// hold the lock. Read-only processes do not write their ids.
    Locked { path: PathBuf, process: Option<u32> },
    /// The directory `path` already contains a store, and
    /// [`Options::create_new`](crate::Options::create_new) was set. Nothing was changed.
    StoreExists { path: PathBuf },
    /// [`Db::open_keyspace`](crate::Db::open_keyspace) found no keyspace `name`. Nothing was
    /// changed.
    NoKeyspace { name: String },
    /// [`Db::close`](crate::Db::close) did not close the store at `path`, because other `handles`
    /// exist. Drop them, or call [`Db::shutdown`](crate::Db::shutdown).
    StillOpen { path: PathBuf, handles: OpenHandles },
    /// [`Db::shutdown`](crate::Db::shutdown) did not close the store at `path`: work in flight did
    /// not end within the timeout. All calls fail with [`Closed`](Self::Closed), and the store
    /// stays locked. Call `shutdown` again.
    StillBusy { path: PathBuf },
    /// The store rejects writes because of `cause`; reads continue.
    ///
    /// Reopen the store to recover. A damaged table is never the cause: see
    /// [`Event::TableQuarantined`](crate::Event::TableQuarantined). If `cause` is
    /// [`OpenedReadOnly`](Self::OpenedReadOnly), nothing is wrong.
    ReadOnly { cause: Arc<Error> },
    /// The store at `path` was opened with [`Options::read_only`](crate::Options::read_only).
    /// Occurs only as the cause of [`ReadOnly`](Self::ReadOnly).
    OpenedReadOnly { path: PathBuf },
    /// The writer of a [followed](crate::Options::follow) store has deleted the file `path`, which
    /// this read requires and which was not open. Refresh the follower
    /// ([`Db::refresh`](crate::Db::refresh)) and read again. Existing snapshots, iterators and
    /// change streams cannot continue.
    FilesGone { path: PathBuf },
    /// A refresh of a [follower](crate::Options::follow) found an older store at `path`. The store
    /// ends at the sequence number `store`, but the follower has shown writes up to `follower`. The
    /// directory was replaced by an older copy, or failed writes were withdrawn. Open the follower
    /// again.
    FollowerAhead { path: PathBuf, follower: u64, store: u64 },
    /// The store at `path` is a [follower](crate::Options::follow), and the call requires files
    /// that the writer may delete. Call it in the writing process, or open the store without
    /// `follow` while there is no writer.
    Following { path: PathBuf },
    /// The key has `bytes` bytes; at most `bytes_max` are allowed. Nothing was changed.
    KeyTooLong { bytes: usize, bytes_max: usize },
    /// The value has `bytes` bytes; at most `bytes_max` are allowed. Nothing was changed.
    ValueTooLong { bytes: usize, bytes_max: usize },
    /// The reader of a value for `key` failed, or returned fewer or more bytes than the given
    /// length. Nothing was written: see
    /// [`Keyspace::insert_reader`](crate::Keyspace::insert_reader).
    ReaderFailed { key: Bytes, source: Arc<io::Error> },
    /// `key` was added to an [ingestion](crate::Ingestion) or a [table](crate::TableWriter) after
    /// an equal or larger key. The entry was not added.
    KeysNotAscending { key: Bytes },
    /// The file `path` cannot be [ingested](crate::Keyspace::ingest_files) because of `reason`.
    /// Nothing was changed.
    NotIngestible { path: PathBuf, reason: String },
    /// The [backup set](crate::BackupSet) in the directory `path` cannot restore the requested
    /// point. An [ingest](crate::Keyspace::ingest) at the sequence number `sequence`, finished or
    /// interrupted, is not part of the archived log. Restore a backup made after it, or a point
    /// before it. Nothing was changed.
    IngestNotArchived { path: PathBuf, sequence: u64 },
    /// The write takes `bytes` bytes of memory ([`Batch::bytes`](crate::Batch::bytes)); at most
    /// `bytes_max` are allowed. Nothing was changed, and a batch keeps its writes.
    ///
    /// The limit is 3/4 of [`Options::memtable_bytes_max`](crate::Options::memtable_bytes_max).
    /// Split the batch, or raise `memtable_bytes_max`. If that is not set,
    /// [`Db::set_memory_budget`](crate::Db::set_memory_budget) raises the limit.
    WriteTooLarge { bytes: u64, bytes_max: u64 },
    /// A write such as [`try_insert`](crate::Keyspace::try_insert) was refused, because background
    /// work would delay a blocking write. The delay would be `delay`, or until the work is done if
    /// `None`. Nothing was changed, and a batch keeps its writes. Wait for
    /// [`Keyspace::room`](crate::Keyspace::room) or [`Batch::room`](crate::Batch::room).
    WouldStall { reason: StallReason, delay: Option<Duration> },
    /// Rebuilding the filter of a table takes `bytes` bytes of memory; the share of one worker is
    /// `bytes_max`. The table has no filter.
    FilterTooLarge { bytes: u64, bytes_max: u64 },
    /// The memory budget, or its part `what`, has `bytes` bytes and requires at least `bytes_min`.
    /// `made_of` lists the parts of the minimum. Nothing was changed.
    BudgetTooSmall { what: &'static str, bytes: u64, bytes_min: u64, made_of: String },
    /// The option `name` has an invalid value; `allowed` states the valid ones.
    InvalidOption { name: &'static str, allowed: &'static str },
    /// Another keyspace has the new name `name`. Nothing was changed. See
    /// [`Db::rename_keyspace`](crate::Db::rename_keyspace).
    KeyspaceExists { name: String },
    /// The name of a keyspace is empty, or longer than 255 bytes.
    InvalidKeyspaceName { name: String },
    /// The keyspace `name` cannot be dropped or renamed, because every store has it.
    RequiredKeyspace { name: String },
    /// The keyspace `name` was dropped; its handles cannot be used again.
    KeyspaceDropped { name: String },
    /// The keyspace belongs to another store than the batch or snapshot.
    ForeignKeyspace { name: String },
    /// [`fetch_add`](crate::Keyspace::fetch_add) found a value of `bytes` bytes under `key`; a
    /// counter has 8. Nothing was changed.
    NotACounter { key: Bytes, bytes: usize },
    /// A transaction depends on `key` of `keyspace`, which another write changed after the
    /// transaction began. Nothing was changed: run the transaction again, as
    /// [`Db::transaction`](crate::Db::transaction) does.
    ///
    /// After a [`clear`](crate::Keyspace::clear), or a deletion by [`Fifo`](crate::Fifo), `key` is
    /// any key of `keyspace` that the transaction depends on, or empty.
    Conflict { keyspace: String, key: Bytes },
    /// The transaction would need `bytes` bytes of memory for its writes and its read set; at most
    /// `bytes_max` are allowed
    /// ([`TransactionOptions::bytes_max`](crate::TransactionOptions::bytes_max)). The call had no
    /// effect: the transaction can be committed or rolled back.
    TransactionTooLarge { bytes: u64, bytes_max: u64 },
    /// A write to a [read-only](crate::TransactionOptions::read_only) transaction.
    ReadOnlyTransaction,
    /// The savepoint belongs to another transaction, or was released.
    NoSavepoint,
    /// The keyspace `keyspace` requires the merge operator `operator`, which is not built in and
    /// was not passed to [`Options::merge_operator`](crate::Options::merge_operator). Nothing was
    /// changed.
    UnknownMergeOperator { keyspace: String, operator: String },
    /// A write of a merge operand to `keyspace`, which has no
    /// [merge operator](crate::KeyspaceOptions::merge_operator). Nothing was changed.
    NoMergeOperator { keyspace: String },
    /// A change or removal of the merge operator `operator` of `keyspace`: stored operands need it.
    /// Nothing was changed.
    MergeOperatorFixed { keyspace: String, operator: String },
    /// The merge operator `operator` of `keyspace` failed or panicked for `key`. The operands are
    /// kept. The key can be removed or overwritten.
    MergeFailed { keyspace: Box<str>, operator: Box<str>, key: Box<[u8]>, source: MergeError },
    /// The compaction filter `filter` of `keyspace` panicked for `key`, or returned a value that is
    /// too long: see `reason`. The compaction changed nothing. Later compactions run without the
    /// filter until the options of the keyspace are set or the store is reopened.
    CompactionFilterFailed {
        keyspace: Box<str>,
        filter: Box<str>,
        key: Box<[u8]>,
        reason: &'static str,
    },
    /// The keyspace `keyspace` cannot be read at the point `at`. It has no
    /// [history](crate::KeyspaceOptions::keep_history), its history begins later, at the sequence
    /// number `oldest`, or the point is in the future.
    NotInHistory { keyspace: String, at: PointInTime, oldest: Option<u64> },
    /// [`Db::changes`](crate::Db::changes) cannot return all changes after `since`. The store keeps
    /// the changes after `oldest`, and `newest` is its last sequence number. Rebuild the copy from
    /// a [snapshot](crate::Db::snapshot), and stream the changes after its [sequence
    /// number](crate::Snapshot::sequence).
    ChangesLost { since: u64, oldest: u64, newest: u64 },
    /// The store at `path` keeps no changes: see
    /// [`Options::retain_changes`](crate::Options::retain_changes).
    ChangesNotRetained { path: PathBuf },
    /// This process was forked from the one that opened the store at `path`. Nothing was changed.
    /// Drop the inherited handles, and open the store in this process after the parent has closed
    /// it.
    ForkedChild { path: PathBuf },
    /// [`Db::wait_durable`](crate::Db::wait_durable) was called for a sequence number that no write
    /// has yet; `newest` is the last one.
    NotWritten { sequence: u64, newest: u64 },
    /// The store has used all 2^56 sequence numbers.
    SequenceNumbersExhausted,
    /// A background thread panicked, or a caller's thread while it wrote to the log or the
    /// manifest. The cause is a bug of this library, of a [`PrefixFunction`](crate::PrefixFunction)
    /// or of an [`Fs`](crate::fs::Fs). The panic hook received its message.
    WorkerPanicked,
    /// A compaction was requested while compactions are [paused](crate::Db::pause_compactions).
    /// Drop the guard of the pause, then call again.
    CompactionsPaused,
    /// [`Db::shutdown`](crate::Db::shutdown) closed the store, before or during the call.
    Closed,
}

impl Error {
    pub(crate) fn io(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        #[cfg(feature = "encryption")]
        if let Some(cause) = source.get_ref().and_then(|cause| cause.downcast_ref()) {
            return Self::of_encryption(path, cause);
        }
        Self::Io { op, path, source: Arc::new(source) }
    }

    #[cfg(feature = "encryption")]
    fn of_encryption(path: PathBuf, cause: &crate::encryption::EncryptionError) -> Self {
        use crate::encryption::EncryptionError;
        match cause.clone() {
            EncryptionError::Plain => Self::NotEncrypted { path },
            EncryptionError::NoKey { id, source } => {
                Self::NoKey { path, key_id: id, source: Arc::new(source) }
            }
            EncryptionError::WrongKey { id } => Self::WrongKey { path, key_id: id },
            EncryptionError::Corrupt { offset, source } => Self::corrupt(path, offset, source),
        }
    }

    /// Adds the file to the error of a decoder.
    pub(crate) fn corrupt(path: impl Into<PathBuf>, offset: u64, source: Corruption) -> Self {
        let path = path.into();
        match source {
            Corruption::NeedsFeature { feature, .. } => {
                Self::NeedsFeature { path, keyspace: None, feature }
            }
            Corruption::Encrypted => Self::Encrypted { path },
            source => Self::Corrupt { path, offset, source },
        }
    }

    /// Converts an error of opening a store. Checksummed bytes that this release does not know were
    /// written by a later release.
    pub(crate) fn of_opening(self) -> Self {
        match self {
            Self::Corrupt { path, source: Corruption::Unsupported { what, value }, .. } => {
                Self::NewerRelease { path, needs: format!("{what} {value}") }
            }
            other => other,
        }
    }

    /// Returns the error of a sync of a file without references yet. On a full disk it counts as a
    /// failed write, after which the file is discarded: encrypted files write their end in a sync.
    pub(crate) fn sync_of_new_file(path: &Path, source: io::Error) -> Self {
        match Self::io("write", path, source) {
            error if error.is_no_space() => error,
            Self::Io { path, source, .. } => Self::Io { op: SYNC, path, source },
            error => error,
        }
    }

    /// Adds the keyspace to an error that can name one.
    pub(crate) fn of_keyspace(mut self, name: &str) -> Self {
        if let Self::NeedsFeature { keyspace, .. } = &mut self {
            *keyspace = Some(name.to_owned());
        }
        self
    }

    /// Returns `true` if the disk or a quota on it is full, or the process may not extend the file
    /// further (`ulimit -f`): temporary states.
    ///
    /// Returns `false` for a [failed sync](Self::is_failed_sync).
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let full = [StorageFull, QuotaExceeded, FileTooLarge];
        let is_full = |source: &io::Error| full.contains(&source.kind());
        matches!(self, Self::Io { source, .. } if !self.is_failed_sync() && is_full(source))
    }

    /// Returns `true` if the same call may succeed later. The causes: a [full](Self::is_no_space)
    /// disk, no file descriptor, no memory, an interrupted system call, or a failed call of the key
    /// provider. The store did not become [read-only](Self::ReadOnly). Wait before the retry: most
    /// causes last until an operator or another process removes them.
    ///
    /// A write that failed with such an error is not visible: repeat it. The exception is a failed
    /// [`CommitFuture`](crate::CommitFuture), whose write stays visible: call
    /// [`Db::wait_durable`](crate::Db::wait_durable).
    ///
    /// Returns `false` for errors with a remedy of their own: run a transaction again after a
    /// [`Conflict`](Self::Conflict), wait for room after [`WouldStall`](Self::WouldStall). After a
    /// [failed sync](Self::is_failed_sync) of a file of the store, reopen the store.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let is_known = !self.is_failed_sync();
        self.is_no_space()
            || matches!(self, Self::NoKey { .. })
            || matches!(self, Self::Io { source, .. } if is_known && is_shortage(source))
    }

    /// Returns `true` if a sync failed: it is unknown which bytes of the file are on the disk, and
    /// a repeated sync could succeed although bytes are lost.
    ///
    /// A write that fails so is not visible, or is an asynchronous one that stays visible. In both
    /// cases it may be lost or present when the store is reopened, as a whole: read it then.
    #[must_use]
    pub fn is_failed_sync(&self) -> bool {
        matches!(self, Self::Io { op, .. } if *op == SYNC)
    }

    /// Returns `true` if the bytes of a file are damaged or cannot be read.
    pub(crate) fn is_of_file(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_of_file(source),
            Self::Corrupt { .. } => true,
            _ => false,
        }
    }
}

/// Returns `true` if there was no file descriptor or memory, the call was interrupted, or the key
/// provider had no key.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
    #[cfg(feature = "encryption")]
    if let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref()) {
        use crate::encryption::EncryptionError;
        return matches!(cause, EncryptionError::NoKey { .. });
    }
    is_out_of_files(error) || matches!(error.kind(), OutOfMemory | Interrupted | WouldBlock)
}

/// Returns `true` if the process or the system has no file descriptor left.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    let limits = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| limits.contains(&code))
}

/// Returns `true` if a retry would not help: the file is missing or too short, or the device cannot
/// read it. Other errors, such as too many open files or a missing key, are unrelated to the file.
pub(crate) fn is_of_file(error: &io::Error) -> bool {
    #[cfg(feature = "encryption")]
    if let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref()) {
        use crate::encryption::EncryptionError;
        return matches!(cause, EncryptionError::Plain | EncryptionError::Corrupt { .. });
    }
    let codes = [
        Errno::IO,
        Errno::NXIO,
        Errno::BADMSG,
        // A lost sector, and a damaged file system.
        #[cfg(target_os = "linux")]
        Errno::NODATA,
        #[cfg(target_os = "linux")]
        Errno::UCLEAN,
    ];
    match error.raw_os_error() {
        Some(code) if codes.map(Errno::raw_os_error).contains(&code) => true,
        _ => matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
        ),
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::ReaderFailed { source, .. } => Some(&**source),
            Self::Corrupt { source, .. } => Some(source),
            Self::ReadOnly { cause } => Some(&**cause),
            Self::NoKey { source, .. } => Some(&**source),
            Self::MergeFailed { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_the_file_itself_are_losses() {
        for code in [Errno::NOENT, Errno::IO, Errno::BADMSG] {
            assert!(is_of_file(&code.into()), "{code}");
        }
        for code in [Errno::MFILE, Errno::NFILE, Errno::ACCESS, Errno::PERM, Errno::NOMEM] {
            assert!(!is_of_file(&code.into()), "{code}");
        }
        assert!(is_of_file(&io::ErrorKind::UnexpectedEof.into()));
    }

    #[test]
    fn a_failed_sync_is_not_retryable() {
        let cases = [
            (Errno::NOSPC, true),
            (Errno::MFILE, true),
            (Errno::INTR, true),
            (Errno::IO, false),
            (Errno::ACCESS, false),
        ];
        for (code, is_retryable) in cases {
            let error = |op| Error::io(op, "000007.log", code.into());
            let (write, sync) = (error("write"), error(SYNC));
            assert_eq!((write.is_retryable(), write.is_failed_sync()), (is_retryable, false));
            assert_eq!((sync.is_retryable(), sync.is_failed_sync()), (false, true), "{code}");
        }
    }

    #[test]
    fn causes_can_be_downcast() {
        let full = Error::io("write", "000007.log", Errno::NOSPC.into());
        let error = crate::CloseError::new(Error::ReadOnly { cause: Arc::new(full) }, None);
        let cause = error::Error::source(&error).and_then(|cause| cause.downcast_ref::<Error>());
        let cause = cause.expect("the cause of a read-only store is an error of this crate");
        assert!(cause.is_no_space());
        let source = error::Error::source(cause).and_then(|cause| cause.downcast_ref());
        let source: &io::Error = source.expect("the error of the operating system");
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        let failed = Error::ReaderFailed { key: Bytes::new(), source: Arc::new(Errno::IO.into()) };
        assert!(error::Error::source(&failed).is_some_and(<dyn error::Error>::is::<io::Error>));
    }
}
