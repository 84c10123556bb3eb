//! Copies entries into a store.

use sievedb::{Batch, Db, Durability, Keyspace};

use crate::Digest;

/// Target bytes of keys and values in a batch. A larger entry is written alone.
const BATCH_BYTES: u64 = 256 << 10;

/// A keyspace that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Name of the keyspace.
    pub name: String,
    /// Bytes of its keys and values.
    pub bytes: u64,
    /// Number and digest of its entries.
    pub digest: Digest,
}

/// Writes entries into a keyspace in batches of about 256 KiB, and counts them.
///
/// # Examples
///
/// ```
/// # fn main() -> sievedb::Result<()> {
/// use sievedb_migrate::store::{KeyspaceWriter, digest};
///
/// let directory = tempfile::tempdir().expect("a temporary directory");
/// let db = sievedb::Options::new().open(directory.path())?;
/// let mut writer = KeyspaceWriter::create(&db, "copy")?;
/// writer.add(b"key", b"value")?;
/// let copied = writer.finish()?;
/// assert_eq!(copied.digest, digest(&db.open_keyspace("copy")?)?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct KeyspaceWriter<'a> {
    db: &'a Db,
    keyspace: Keyspace,
    batch: Batch,
    copied: Copied,
}

impl<'a> KeyspaceWriter<'a> {
    /// Opens the keyspace `name`, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// Those of [`Db::keyspace`].
    pub fn create(db: &'a Db, name: &str) -> sievedb::Result<Self> {
        let copied = Copied { name: name.to_owned(), bytes: 0, digest: Digest::default() };
        Ok(Self { db, keyspace: db.keyspace(name)?, batch: db.batch(), copied })
    }

    /// Adds an entry to the current batch. Raises the memory budget of the store if the entry does
    /// not fit.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::insert`].
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> sievedb::Result<()> {
        let bytes = (key.len() + value.len()) as u64;
        if bytes > BATCH_BYTES {
            with_room(self.db, || self.keyspace.insert(key, value))?;
        } else {
            self.batch.insert(&self.keyspace, key, value)?;
        }
        if self.batch.bytes() > BATCH_BYTES {
            self.batch.commit(Durability::OsBuffer)?;
        }
        self.copied.digest.add(key, value);
        self.copied.bytes += bytes;
        Ok(())
    }

    /// Writes the last batch. The entries are durable after a [`Db::persist`].
    ///
    /// # Errors
    ///
    /// Those of [`Batch::commit`].
    pub fn finish(mut self) -> sievedb::Result<Copied> {
        self.batch.commit(Durability::OsBuffer)?;
        Ok(self.copied)
    }
}

/// Returns the digest of a keyspace. Reads all of it.
///
/// # Errors
///
/// Those of [`Keyspace::range`].
pub fn digest(keyspace: &Keyspace) -> sievedb::Result<Digest> {
    let mut digest = Digest::default();
    for entry in keyspace.range::<&[u8]>(..) {
        let (key, value) = entry?;
        digest.add(&key, &value);
    }
    Ok(digest)
}

/// Calls `write`. Calls it again with a larger memory budget if the entry does not fit.
///
/// # Errors
///
/// Those of `write` and of [`Db::set_memory_budget`].
pub fn with_room<T>(db: &Db, write: impl Fn() -> sievedb::Result<T>) -> sievedb::Result<T> {
    match write() {
        Err(sievedb::Error::WriteTooLarge { bytes, .. }) => {
            // Memtables may use a quarter of the budget, and one write three quarters of that.
            db.set_memory_budget(bytes.saturating_mul(8))?;
            write()
        }
        written => written,
    }
}
