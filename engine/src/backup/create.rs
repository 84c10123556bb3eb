//! Creates a backup.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use xxhash_rust::xxh3::Xxh3;

use super::{
    Backup, BackupSet,
    objects::{BACKUPS, OBJECTS},
    record::{Record, StoredFile},
    record_name, wrong_content,
};
use crate::{
    Db, Error, Result,
    file_name::FileName,
    fs::FileLock,
    planted::PlantedBug,
    store::{
        Store, checkpoint::capture::Capture, checkpoint::parts::read_parts, folder::check_apart,
    },
};

/// Seed of the second hash of files other than tables.
const SECOND_SEED: u64 = 0x5356_4241_434b_5550;

/// A file of a captured store. It is opened only while it is copied, because a store may have more
/// files than a process can open.
struct Source {
    stored: StoredFile,
    path: PathBuf,
}

impl BackupSet {
    /// Adds a backup of `db` at one point in time: see [`Db::checkpoint`]. Writes may continue.
    ///
    /// Copies the files that the set lacks: tables since an earlier backup, and the log. After an
    /// interruption, the next call skips copied files. Reads each copied byte once; bytes of the
    /// log and of filter files twice. Copied tables are verified by their checksums.
    ///
    /// # Errors
    ///
    /// After an error, the set has the same backups as before.
    ///
    /// * [`Error::Locked`]: another call changes the set.
    /// * [`Error::Following`]: the store is a [follower](crate::Options::follow).
    /// * [`Error::NotEncrypted`]: the store is encrypted, and the set is not; or earlier backups of
    ///   the set are not.
    /// * [`Error::Encrypted`], [`Error::NoKey`], [`Error::WrongKey`]: earlier backups of the set
    ///   have other keys.
    /// * [`Error::NewerRelease`]: a newer release wrote the newest backup of the set.
    /// * [`Error::DirectoriesOverlap`]: the set is inside the directory of the store, or contains
    ///   it.
    /// * [`Error::Corrupt`]: a table of the store is damaged. Damaged records of the set
    ///   are ignored.
    /// * [`Error::ReadOnly`], [`Error::Io`], [`Error::Closed`], [`Error::ForkedChild`], as of
    ///   [`Db::checkpoint`].
    pub fn create(&self, db: &Db) -> Result<Backup> {
        let store = db.open_store().accept()?;
        let set = self.frugal_for(store);
        let _lock = set.lock_for(store)?;
        set.create_of(store)
    }

    /// Returns the set. Its calls close table files of `store` if no descriptor is left.
    pub(super) fn frugal_for(&self, store: &Store) -> Self {
        let objects = Arc::clone(&self.objects).frugal(store.tables.files.open_files());
        Self { objects, ..self.clone() }
    }

    /// Locks the set for a backup of `store`.
    pub(super) fn lock_for(&self, store: &Store) -> Result<Box<dyn FileLock>> {
        if store.target.is_encrypted() && self.keys.is_none() {
            return Err(Error::NotEncrypted { path: self.path.clone() });
        }
        if let Some(path) = self.objects.directory() {
            check_apart(&*self.fs, &store.tables.folder, path)?;
        }
        self.lock()
    }

    /// As [`create`](Self::create). The caller holds the lock.
    pub(super) fn create_of(&self, store: &Store) -> Result<Backup> {
        let created = store.capture_durable().and_then(|capture| self.add(store, &capture));
        store.release_captured();
        created.map_err(|error| store.tables.check_not_closing().err().unwrap_or(error))
    }

    fn add(&self, store: &Store, capture: &Capture<'_>) -> Result<Backup> {
        let numbers = self.numbers()?;
        let number = numbers.last().map_or(1, |newest| newest + 1);
        let continues = self.check_readable(&numbers)?;
        self.remove_unfinished()?;
        let names = self.objects.list(OBJECTS);
        let names = names.map_err(|error| Error::io("list", &self.path, error))?;
        let mut present: BTreeSet<_> = names.into_iter().collect();
        let mut record = Record {
            time_ms: u64::try_from(self.clock.unix_time().as_millis()).unwrap_or(u64::MAX),
            sequence: capture.sequence,
            state: capture.state.clone(),
            files: Vec::new(),
        };
        if store.options.has_bug(PlantedBug::RecordBackupEarly) {
            let sources = self.sources(store, capture)?;
            record.files = sources.into_iter().map(|source| source.stored).collect();
            self.put_record(number, &record)?;
            record.files.clear();
        }
        let mut bytes_added = 0;
        for source in self.sources(store, capture)? {
            let is_new = present.insert(source.stored.object());
            // An interrupted first call may have had other keys.
            if is_new || (!continues && self.open_object(&source.stored).is_err()) {
                self.put(store, &source)?;
                bytes_added += source.stored.bytes;
            }
            record.files.push(source.stored);
        }
        // Includes objects of an interrupted call.
        self.sync(OBJECTS)?;
        self.put_record(number, &record)?;
        Ok(Backup { bytes_added, ..record.backup(number) })
    }

    /// Checks that the keys of the set read its newest undamaged record: a backup with other keys
    /// cannot share objects. Returns `false` if there is no such record.
    ///
    /// # Errors
    ///
    /// Those of [`record`](Self::record), except [`Error::Corrupt`]: a damaged record must not stop
    /// backups.
    fn check_readable(&self, numbers: &[u64]) -> Result<bool> {
        for &number in numbers.iter().rev() {
            match self.record(number) {
                Err(Error::Corrupt { .. }) => {}
                record => return record.map(|_| true),
            }
        }
        Ok(false)
    }

    /// Returns the files of a captured store.
    fn sources(&self, store: &Store, capture: &Capture<'_>) -> Result<Vec<Source>> {
        let folder = &*store.tables.folder;
        let (mut sources, mut blobs) = (Vec::new(), BTreeMap::new());
        for table in capture.state.keyspaces.values().flat_map(|known| known.tables.values()) {
            let (name, digest) = (FileName::Table(table.id), [table.checksum, table.salt]);
            let stored = StoredFile { name: name.to_string(), bytes: table.bytes, digest };
            sources.push(Source { stored, path: name.path(folder) });
            blobs.extend(table.blob_files.iter().map(|used| (used.file_id, *used)));
            let filters: BTreeSet<_> = table.filter_files().filter(|&id| id != table.id).collect();
            for id in filters {
                match hashed(store, FileName::Filter(id), None) {
                    // The restored store rebuilds a missing filter.
                    Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                    source => sources.push(source?),
                }
            }
        }
        for (id, used) in blobs {
            let (name, digest) = (FileName::Blobs(id), [used.checksum, used.salt]);
            let stored = StoredFile { name: name.to_string(), bytes: used.bytes, digest };
            sources.push(Source { stored, path: name.path(folder) });
        }
        for (id, bytes) in capture.value_files() {
            sources.push(hashed(store, FileName::Blobs(id), bytes)?);
        }
        for segment in &capture.segments {
            sources.push(hashed(store, FileName::Log(segment.id), Some(segment.bytes))?);
        }
        Ok(sources)
    }

    /// Stores the content of a file, and checks its digest.
    fn put(&self, store: &Store, source: &Source) -> Result<()> {
        let Source { stored, path } = source;
        let file = store.tables.fs.open(path).map_err(|error| Error::io("open", path, error))?;
        let name = format!("{OBJECTS}/{}", stored.object());
        let target = self.path.join(&name);
        let to_set = |error| Error::io("write", &target, error);
        let mut object = self.objects.create(&name).map_err(to_set)?;
        let mut hasher = Xxh3::new();
        read_parts(&*file, path, stored.bytes, |part| {
            store.tables.check_not_closing()?;
            hasher.update(part);
            object.append(part).map_err(to_set)
        })?;
        let found = hasher.digest();
        if found != stored.digest[0] {
            return Err(wrong_content(path, stored.digest[0], found));
        }
        object.finish().map_err(to_set)
    }

    /// Stores the record of a backup, durable on return. Its objects must be durable.
    fn put_record(&self, number: u64, record: &Record) -> Result<()> {
        self.put_object(BACKUPS, &record_name(number), &record.encode())?;
        self.sync(BACKUPS)
    }

    /// Stores an object, which is durable after a sync of its directory.
    pub(super) fn put_object(&self, directory: &str, name: &str, bytes: &[u8]) -> Result<()> {
        let name = format!("{directory}/{name}");
        let path = self.path.join(&name);
        let to_set = |error| Error::io("write", &path, error);
        let mut object = self.objects.create(&name).map_err(to_set)?;
        object.append(bytes).map_err(to_set)?;
        object.finish().map_err(to_set)
    }

    pub(super) fn remove_unfinished(&self) -> Result<()> {
        let removed = self.objects.remove_unfinished();
        removed.map_err(|error| Error::io("clean up", &self.path, error))
    }

    pub(super) fn sync(&self, directory: &str) -> Result<()> {
        let synced = self.objects.sync(directory);
        synced.map_err(|error| Error::io(crate::error::SYNC, self.path.join(directory), error))
    }
}

/// Returns the first `bytes` bytes of a file, or all of it, with its digest.
fn hashed(store: &Store, name: FileName<'_>, bytes: Option<u64>) -> Result<Source> {
    let path = name.path(&store.tables.folder);
    let opened = store.tables.fs.open(&path);
    let file = opened.map_err(|error| Error::io("open", &path, error))?;
    let bytes = match bytes {
        Some(bytes) => bytes,
        None => file.len().map_err(|error| Error::io("read", &path, error))?,
    };
    let (mut first, mut second) = (Xxh3::new(), Xxh3::with_seed(SECOND_SEED));
    read_parts(&*file, Path::new(&path), bytes, |part| {
        first.update(part);
        second.update(part);
        Ok(())
    })?;
    let digest = [first.digest(), second.digest()];
    Ok(Source { stored: StoredFile { name: name.to_string(), bytes, digest }, path })
}
