//! Incremental backups: a set of backups stores the content of each file once.
//!
//! | file          | content                                                  |
//! |---------------|----------------------------------------------------------|
//! | `mod`         | the set, its lock and its records                        |
//! | [`create`]    | stores the files that the set lacks, then the record     |
//! | [`archive`]   | stores the log after a backup, part by part              |
//! | [`restore`]   | writes a backup and its log to a new store               |
//! | [`restore_options`] | selection of a restore                             |
//! | [`chain`]     | selects the backup and the parts of the log for a restore |
//! | [`replica`]   | opens a backup before its tables have arrived            |
//! | [`restrict`]  | restricts a backup to some keyspaces                     |
//! | [`check`]     | reads every object again                                 |
//! | [`prune`]     | removes backups, and objects that no other needs         |
//! | [`retention`] | selects the backups that a prune keeps; pure             |
//! | [`record`]    | bytes of the record of a backup                          |
//! | [`log_part`]  | bytes of a part of the log                               |
//! | [`frame`]     | magic number, version and checksum of both               |
//! | [`objects`]   | objects in a directory                                   |
//! | `remote`      | objects elsewhere, with the feature `object-store`       |
//!
//! A set is a directory with three subdirectories. `objects` has the contents of files, named by
//! their digests, and `backups` the record of each backup, by number. The record is written last,
//! when all of its objects are durable, so a listed backup is complete. `log` has the parts of the
//! archived logs. The name of a part contains its range, so a missing part is detected.

mod archive;
mod chain;
mod check;
mod create;
#[cfg(feature = "encryption")]
mod encrypted;
mod frame;
mod log_part;
mod objects;
mod prune;
mod record;
#[cfg(feature = "object-store")]
mod remote;
mod replica;
mod restore;
mod restore_options;
mod restrict;
mod retention;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use sievedb_format::{Corruption, FileHeader};

pub use self::{
    archive::{Archive, ArchiveUpdate},
    check::BackupReport,
    prune::Pruned,
    replica::{Replica, ReplicaStats},
    restore_options::RestoreOptions,
    retention::Retention,
};
use self::{
    objects::{BACKUPS, Directory, OBJECTS, ObjectStore},
    record::{Record, StoredFile},
};
use crate::{
    Error, Result,
    clock::{Clock, SystemClock},
    encryption::Keys,
    error::LOCK,
    fs::{FileLock, Fs, ReadFile, RealFs},
};

/// Maximum length of a record that is read, in bytes: about five million tables.
const RECORD_BYTES_MAX: u64 = if cfg!(test) { 1 << 16 } else { 1 << 30 };

/// A set of backups in a directory, or in an object store with the feature `object-store`.
///
/// The set stores the content of each file once, so a backup copies only files that are new since
/// an earlier backup. Backups of several stores can share a set. One call at a time may change the
/// set; other calls fail with [`Error::Locked`].
///
/// A checkpoint or a restored store counts as the same store, so use a new set for it. In one set,
/// a prune may keep only backups of the copy, and a restore to a point may mix their histories.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let (path, set, new) = (dir.path().join("db"), dir.path().join("set"), dir.path().join("new"));
/// use sievedb::{BackupSet, Db};
///
/// let db = Db::open(path)?;
/// db.insert("key", "value")?;
/// let set = BackupSet::new(set);
/// let backup = set.create(&db)?;
///
/// set.restore(backup.number, &new)?;
/// assert_eq!(Db::open(new)?.get("key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Clone)]
pub struct BackupSet {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    objects: Arc<dyn ObjectStore>,
    /// `None` without encryption.
    keys: Option<Keys>,
}

impl fmt::Debug for BackupSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupSet").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A backup of a [set](BackupSet).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Number of the backup in its set. Later backups have larger ones.
    pub number: u64,
    /// Id of the store, drawn at random when it was created. Its copies by checkpoints and restores
    /// have the same id.
    pub store: u128,
    /// Time of the backup, by the wall clock.
    pub time: SystemTime,
    /// Sequence number of the newest write: see [`Snapshot::sequence`](crate::Snapshot::sequence).
    pub sequence: u64,
    /// Number of files.
    pub files: u64,
    /// Length of all files, in bytes.
    pub bytes: u64,
    /// In a list, sequence number up to which the log after the backup is
    /// [archived](BackupSet::archive) without a gap; otherwise equal to `sequence`.
    pub archived_to: u64,
    /// Bytes that [`BackupSet::create`] added to the set; 0 in a list.
    pub bytes_added: u64,
}

impl BackupSet {
    /// Returns the set in the directory `path`, which the first backup creates. Does no I/O.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self::with_fs(path, Arc::new(RealFs), Arc::new(SystemClock::new()))
    }

    /// Returns the set in the directory `path` of the file system `fs`, with times of `clock`.
    pub fn with_fs(path: impl AsRef<Path>, fs: Arc<dyn Fs>, clock: Arc<dyn Clock>) -> Self {
        let path = path.as_ref().to_owned();
        let objects = Arc::new(Directory::new(Arc::clone(&fs), path.clone()));
        Self { path, fs, clock, objects, keys: None }
    }

    /// Encrypts the set with keys of this provider; default none. A set is encrypted as a whole,
    /// and a restored store is encrypted too.
    ///
    /// Backups of an encrypted store require it. Names of objects reveal lengths and checksums of
    /// files. Each object keeps the root key that was current when it was written.
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn encryption(mut self, keys: Arc<dyn crate::KeyProvider>) -> Self {
        let (objects, fs) = (self.objects, Arc::clone(&self.fs));
        self.objects = Arc::new(encrypted::EncryptedObjects::new(objects, Arc::clone(&keys), fs));
        self.keys = Some(keys);
        self
    }

    /// Returns the set below `prefix` in a store of the crate
    /// [`object_store`](crate::object_store): S3, GCS, Azure and others. Does no I/O.
    ///
    /// Calls block the thread until `runtime` has completed their requests: in asynchronous code,
    /// use `spawn_blocking`. A current-thread runtime must run on another thread. Uses up to 32 MiB
    /// of memory; long files are uploaded in parts of 16 MiB. An interrupted upload leaves
    /// incomplete parts: remove them by a lifecycle rule of the bucket.
    ///
    /// The store must support conditional puts (`PutMode::Create`): the object `LOCK` excludes
    /// other writers. After a crash the object remains: see [`break_lock`](Self::break_lock).
    #[cfg(feature = "object-store")]
    pub fn in_object_store(
        store: Arc<dyn object_store::ObjectStore>,
        prefix: impl Into<object_store::path::Path>,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let remote = remote::Remote::new(store, prefix.into(), runtime);
        let (path, objects) = (remote.path(), Arc::new(remote));
        let (fs, clock) = (Arc::new(RealFs), Arc::new(SystemClock::new()));
        Self { path, fs, clock, objects, keys: None }
    }

    /// Removes the lock of a crashed writer from an object store. Returns `true` if there was a
    /// lock. Does nothing for a directory, whose lock ends with its process.
    ///
    /// Call it only if no process changes the set. The backup of a running writer fails; if another
    /// writer prunes the set during that backup, the backup may lack files.
    /// [`verify`](Self::verify) detects this.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    #[cfg(feature = "object-store")]
    pub fn break_lock(&self) -> Result<bool> {
        self.objects.break_lock().map_err(|error| Error::io("unlock", &self.path, error))
    }

    /// Returns the backups, oldest first. Omits backups whose record is damaged:
    /// [`verify`](Self::verify) reports them.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if all records are damaged. [`Error::NewerRelease`],
    /// [`Error::Encrypted`], [`Error::NotEncrypted`], [`Error::NoKey`], [`Error::WrongKey`] if a
    /// record cannot be read. [`Error::Io`].
    pub fn list(&self) -> Result<Vec<Backup>> {
        let parts = self.parts()?;
        let (mut listed, mut damage) = (Vec::new(), None);
        for record in self.records(self.numbers()?) {
            match record {
                Ok((number, record)) => {
                    let backup = record.backup(number);
                    let parts = parts.iter().copied().filter(|part| part.backup == number);
                    let archived_to = chain::covering(backup.sequence, None, parts).end;
                    listed.push(Backup { archived_to, ..backup });
                }
                Err(error @ Error::Corrupt { .. }) => damage = Some(error),
                Err(error) => return Err(error),
            }
        }
        damage.filter(|_| listed.is_empty()).map_or(Ok(listed), Err)
    }

    fn lock(&self) -> Result<Box<dyn FileLock>> {
        self.objects.lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::Locked { path: self.path.clone(), process: None },
            io::ErrorKind::NotADirectory => Error::NotADirectory { path: self.path.clone() },
            _ => Error::io(LOCK, &self.path, error),
        })
    }

    /// Returns the numbers of the backups, ascending.
    fn numbers(&self) -> Result<Vec<u64>> {
        let names = self.objects.list(BACKUPS);
        let names = names.map_err(|error| Error::io("list", &self.path, error))?;
        let mut numbers: Vec<u64> = names
            .iter()
            .filter_map(|name| name.parse().ok().filter(|&number| record_name(number) == *name))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the records of backups in the order of `numbers`. Skips missing ones: a prune may
    /// remove backups after their numbers were listed.
    fn records(
        &self,
        numbers: impl IntoIterator<Item = u64>,
    ) -> impl Iterator<Item = Result<(u64, Record)>> {
        numbers.into_iter().filter_map(|number| match self.record(number) {
            Err(Error::NoBackup { .. }) => None,
            record => Some(record.map(|record| (number, record))),
        })
    }

    /// Reads the record of a backup.
    fn record(&self, number: u64) -> Result<Record> {
        let name = format!("{BACKUPS}/{}", record_name(number));
        let content = match self.content(&name, RECORD_BYTES_MAX) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoBackup { path: self.path.clone(), number });
            }
            content => content?,
        };
        let record = Record::decode(&content);
        record.map_err(|source| self.corrupt_record(number, source))
    }

    /// Returns the error of the record of a backup.
    fn corrupt_record(&self, number: u64, source: Corruption) -> Error {
        let path = self.path.join(BACKUPS).join(record_name(number));
        Error::corrupt(path, 0, source).of_opening()
    }

    /// Reads an object of at most `bytes_max` bytes as a whole.
    fn content(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        let path = self.path.join(name);
        let file = self.objects.open(name).map_err(|error| Error::io("open", &path, error))?;
        let read_error = |error| Error::io("read", &path, error);
        let bytes = file.len().map_err(read_error)?;
        if bytes > bytes_max {
            let source = Corruption::OutOfRange { what: "length of a record", value: bytes };
            return Err(Error::corrupt(path, 0, source));
        }
        let mut content = vec![0; bytes as usize];
        file.read_at(&mut content, 0).map_err(read_error)?;
        match FileHeader::decode(&content) {
            Err(encrypted @ Corruption::Encrypted) => Err(Error::corrupt(path, 0, encrypted)),
            _ => Ok(content),
        }
    }

    /// Opens the object of a file, and checks its length.
    fn open_object(&self, file: &StoredFile) -> Result<(Arc<dyn ReadFile>, PathBuf)> {
        let name = format!("{OBJECTS}/{}", file.object());
        let path = self.path.join(&name);
        let object = match self.objects.open(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let source = Corruption::Missing { what: "file of a backup" };
                return Err(Error::corrupt(path, 0, source));
            }
            object => object.map_err(|error| Error::io("open", &path, error))?,
        };
        let found = object.len().map_err(|error| Error::io("read", &path, error))?;
        if found != file.bytes {
            let what = "length of a file of a backup";
            let source = Corruption::Mismatch { what, expected: file.bytes, found };
            return Err(Error::corrupt(path, 0, source));
        }
        Ok((object, path))
    }
}

impl Record {
    fn backup(&self, number: u64) -> Backup {
        Backup {
            number,
            store: self.state.store_id,
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(self.time_ms),
            sequence: self.sequence,
            archived_to: self.sequence,
            files: self.files.len() as u64,
            bytes: self.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.bytes)),
            bytes_added: 0,
        }
    }
}

fn record_name(number: u64) -> String {
    format!("{number:06}")
}

/// Returns the error of a file whose content does not match its digest.
fn wrong_content(path: &Path, expected: u64, found: u64) -> Error {
    let (what, stored, computed) = ("file of a backup", expected, found);
    Error::corrupt(path, 0, Corruption::Checksum { what, stored, computed })
}
