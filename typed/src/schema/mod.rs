//! Schemas of keyspaces: a name and a version, stored in the store and checked at open.

mod migration;
pub(crate) mod record;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use sievedb::{Bytes, Db, Keyspace};

use self::{
    migration::{check_operands, migrate},
    record::{SchemaRecord, Stored},
};
use crate::{
    codec::{Codec, CodecError, Postcard},
    error::{Error, Result},
};

/// Name of the keyspace that stores the schemas of all typed keyspaces of a store.
///
/// Its keys are the [ids](Keyspace::id) of keyspaces. Opening the first typed keyspace creates it.
/// A [restore of some keyspaces](sievedb::RestoreOptions::keyspaces) must include it.
pub const SCHEMA_KEYSPACE: &str = "sievedb-typed";

/// Rewrites a value, or removes its entry.
type Step = Box<dyn Fn(&[u8], Bytes) -> Result<Option<Vec<u8>>, CodecError> + Send>;

/// Name and version of the types of a typed keyspace.
///
/// [`TypedKeyspace::open`](crate::TypedKeyspace::open) stores the schema of an empty keyspace
/// durably, before the first entry. Later opens fail with [`Error::SchemaMismatch`] for another
/// name or version, unless migrations lead from the stored version to the new one.
///
/// An empty keyspace accepts any schema, unless it is an index. A
/// [renamed](Db::rename_keyspace) keyspace keeps its schema, and so does a
/// [repaired](sievedb::Options::repair) one. If a repair loses the newest writes of one keyspace,
/// the schema may be older or newer than the values: check these before a migration.
///
/// # Migrations
///
/// [`migrate`](Self::migrate) adds the step from one version to the next. `open` runs the missing
/// steps in order, each over all values. Keys and expiries never change.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use sievedb_typed::{Schema, TypedKeyspace, sievedb::Db};
///
/// #[derive(Serialize, Deserialize)]
/// struct UserV1 {
///     name: String,
/// }
///
/// #[derive(Serialize, Deserialize, Debug, PartialEq)]
/// struct User {
///     name: String,
///     logins: u64,
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let users = TypedKeyspace::<u64, UserV1>::open(&db, "users", Schema::new("user", 1))?;
/// users.insert(7, UserV1 { name: "anna".into() })?;
/// drop(users);
///
/// let schema = Schema::new("user", 2)
///     .migrate(1, |old: UserV1| User { name: old.name, logins: 0 });
/// let users = TypedKeyspace::<u64, User>::open(&db, "users", schema)?;
/// assert_eq!(users.get(7)?, Some(User { name: "anna".into(), logins: 0 }));
/// # Ok::<(), sievedb_typed::Error>(())
/// ```
///
/// **After a crash the migration continues; no value is migrated twice.** The step rewrites values
/// in key order, in batches. Each batch atomically stores its values and, with the schema, its last
/// key. The next `open` continues after that key. After the last key, one durable write stores the
/// new version.
///
/// Until then an open with the old version fails with [`Error::MigrationUnfinished`]. If a step
/// fails for a value, each `open` fails until the step accepts the value.
///
/// In a keyspace with a merge operator, a migration first folds all operands. If that fails, no
/// value is migrated. [`MergeValues`](crate::MergeValues) decodes operands as its own type: migrate
/// with the operator of the old type, then reopen the store with the new one. Folded operands
/// expire with their value.
///
/// Only `open` compares schemas. Before a migration, close older handles of the keyspace, also in
/// [followers](sievedb::Options::follow): they would decode the new values as old ones, and write
/// old ones. Untyped writes must wait, too. Snapshots from before the migration have the old
/// values.
///
/// In a process, opens of typed keyspaces and of indexes run one at a time, for all stores. A step
/// must not open one: it would wait for itself.
pub struct Schema {
    name: String,
    version: u32,
    adopts_untyped: bool,
    /// Steps by the version from which they lead.
    steps: BTreeMap<u32, Step>,
}

impl Schema {
    /// Returns the schema `name` with this version, which may be any number.
    #[must_use]
    pub fn new(name: impl Into<String>, version: u32) -> Self {
        let (adopts_untyped, steps) = (false, BTreeMap::new());
        Self { name: name.into(), version, adopts_untyped, steps }
    }

    /// Adds the step from version `from` to the next, for values in [`Postcard`].
    ///
    /// `step` must be pure: after a crash it is called again for values whose results were not
    /// stored.
    #[must_use]
    pub fn migrate<Old, New>(self, from: u32, step: impl Fn(Old) -> New + Send + 'static) -> Self
    where
        Old: Serialize + DeserializeOwned,
        New: Serialize + DeserializeOwned,
    {
        self.migrate_bytes(from, move |_key, value| {
            let mut bytes = Vec::new();
            Postcard::encode(&step(Postcard::decode(value)?), &mut bytes)?;
            Ok(Some(bytes))
        })
    }

    /// Adds the step from version `from` to the next, for codecs other than [`Postcard`]. `step`
    /// takes the encoded key and value, and returns the encoded new value, or `None` to remove the
    /// entry.
    ///
    /// If it returns an error, the open fails with [`Error::Migration`].
    #[must_use]
    pub fn migrate_bytes(
        mut self,
        from: u32,
        step: impl Fn(&[u8], Bytes) -> Result<Option<Vec<u8>>, CodecError> + Send + 'static,
    ) -> Self {
        self.steps.insert(from, Box::new(step));
        self
    }

    /// Accepts entries without a stored schema, and stores this schema. Use it for a keyspace
    /// written by the untyped calls of [`sievedb`]. By default, such an open fails with
    /// [`Error::NoSchema`].
    ///
    /// The entries are not checked. A read of an entry of another type is an error, or a wrong
    /// value if its bytes decode as this type.
    #[must_use]
    pub fn adopt_untyped(mut self) -> Self {
        self.adopts_untyped = true;
        self
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    fn record(&self) -> SchemaRecord {
        SchemaRecord { name: self.name.clone(), version: self.version, migrated_to: None }
    }

    /// Stores this schema for `keyspace`, or compares it with the stored one and runs migrations.
    pub(crate) fn open(&self, db: &Db, keyspace: &Keyspace) -> Result<()> {
        let name: Arc<str> = keyspace.name().into();
        let _opening = opening();
        let stored = SchemaRecord::read(db, keyspace)?;
        if stored.as_ref() == Some(&self.record()) {
            return Ok(());
        }
        if keyspace.iter().is_empty()? {
            return self.record().write(db, keyspace);
        }
        match stored {
            None if self.adopts_untyped => self.record().write(db, keyspace),
            None => Err(Error::NoSchema { keyspace: name }),
            Some(stored) => self.migrate_from(stored, db, keyspace, name),
        }
    }

    /// Runs the steps from `stored` to this version.
    fn migrate_from(
        &self,
        mut stored: SchemaRecord,
        db: &Db,
        keyspace: &Keyspace,
        name: Arc<str>,
    ) -> Result<()> {
        let is_same = stored.name == self.name;
        if is_same && stored.version == self.version {
            debug_assert!(stored.migrated_to.is_some(), "a complete and equal record differs");
            return Err(Error::MigrationUnfinished { keyspace: name, from: stored.version });
        }
        // Every step must be present before the first one begins.
        let mut missing = stored.version..self.version;
        let leads_here = is_same && stored.version < self.version;
        if !leads_here || missing.any(|from| !self.steps.contains_key(&from)) {
            let stored = (stored.name, stored.version);
            let expected = (self.name.clone(), self.version);
            return Err(Error::SchemaMismatch { keyspace: name, stored, expected });
        }
        if stored.migrated_to.is_none() {
            check_operands(keyspace)?;
        }
        for (_, step) in self.steps.range(stored.version..self.version) {
            stored = migrate(db, keyspace, &name, stored, step)?;
        }
        debug_assert_eq!(stored.version, self.version);
        debug_assert_eq!(stored.migrated_to, None);
        Ok(())
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("steps", &self.steps.keys())
            .finish_non_exhaustive()
    }
}

/// Rejects the name of the keyspace of schemas, before an open creates it with other options.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name {
        SCHEMA_KEYSPACE => Err(Error::ReservedName { keyspace: name.into() }),
        _ => Ok(()),
    }
}

/// Returns the lock of all opens: two migrations of a keyspace would apply a step twice.
pub(crate) fn opening() -> MutexGuard<'static, ()> {
    static OPENING: Mutex<()> = Mutex::new(());
    // The lock protects no data, so a poisoned one is valid.
    OPENING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
