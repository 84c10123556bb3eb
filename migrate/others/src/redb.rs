//! redb.

use std::{borrow::Cow, path::Path};

use redb::{
    Key, ReadOnlyDatabase, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    TableDefinition, TableError, TableHandle as _, Value,
};

use crate::{
    error::{Error, Result},
    source::{Add, Source},
};

const ENGINE: &str = "redb";

/// An open database.
pub(crate) struct Redb {
    transaction: ReadTransaction,
}

impl Redb {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Error::check(ENGINE, path, path)?;
        let database = ReadOnlyDatabase::open(path).map_err(failed)?;
        Ok(Self { transaction: database.begin_read().map_err(failed)? })
    }

    /// Passes all entries of the table `name` to `add`. `None` only checks the types.
    fn read(&self, name: &str, mut add: Option<&mut Add<'_>>) -> Result<()> {
        // Most common types first.
        let tried = [
            read_as::<&[u8], &[u8]>,
            read_as::<&str, &[u8]>,
            read_as::<u64, &[u8]>,
            read_as::<&str, &str>,
            read_as::<u64, &str>,
            read_as::<&[u8], &str>,
            read_as::<&str, u64>,
            read_as::<u64, u64>,
            read_as::<&[u8], u64>,
        ];
        let mut types = String::new();
        for read in tried {
            match read(&self.transaction, name, add.as_deref_mut())? {
                Found::Entries => return Ok(()),
                Found::Types(found) => types = found,
            }
        }
        let reason = format!(
            "the table has {types}; keys and values can be `&[u8]`, `&str` or `u64`: copy the table \
             to one with these types"
        );
        Err(Error::Unsupported { name: name.to_owned(), reason })
    }
}

/// Result of an attempt.
enum Found {
    /// The types match.
    Entries,
    /// Types of the table, which do not match.
    Types(String),
}

/// A type whose values are copied as bytes.
trait Bytes: Value {
    fn bytes<'a>(value: Self::SelfType<'a>) -> Cow<'a, [u8]>
    where
        Self: 'a;
}

impl Bytes for &'static [u8] {
    fn bytes<'a>(value: Self::SelfType<'a>) -> Cow<'a, [u8]> {
        Cow::Borrowed(value)
    }
}

impl Bytes for &'static str {
    fn bytes<'a>(value: Self::SelfType<'a>) -> Cow<'a, [u8]> {
        Cow::Borrowed(value.as_bytes())
    }
}

impl Bytes for u64 {
    /// The highest byte first keeps the order of keys.
    fn bytes<'a>(value: u64) -> Cow<'a, [u8]> {
        Cow::Owned(value.to_be_bytes().to_vec())
    }
}

fn read_as<K: Key + Bytes + 'static, V: Bytes + 'static>(
    transaction: &ReadTransaction,
    name: &str,
    add: Option<&mut Add<'_>>,
) -> Result<Found> {
    let table = match transaction.open_table(TableDefinition::<K, V>::new(name)) {
        Err(TableError::TableTypeMismatch { key, value, .. }) => {
            let types = format!("keys of {:?} and values of {:?}", key.name(), value.name());
            return Ok(Found::Types(types));
        }
        table => table.map_err(failed)?,
    };
    let Some(add) = add else { return Ok(Found::Entries) };
    for entry in table.iter().map_err(failed)? {
        let (key, value) = entry.map_err(failed)?;
        add(&K::bytes(key.value()), &V::bytes(value.value()))?;
    }
    Ok(Found::Entries)
}

impl Source for Redb {
    fn keyspaces(&self) -> Result<Vec<String>> {
        if let Some(table) = self.transaction.list_multimap_tables().map_err(failed)?.next() {
            return Err(Error::Unsupported {
                name: redb::MultimapTableHandle::name(&table).to_owned(),
                reason: "a multimap table has several values of a key".to_owned(),
            });
        }
        let tables = self.transaction.list_tables().map_err(failed)?;
        let mut names: Vec<_> = tables.map(|table| table.name().to_owned()).collect();
        names.sort();
        names.iter().try_for_each(|name| self.read(name, None))?;
        Ok(names)
    }

    fn entries(&self, name: &str, add: &mut Add<'_>) -> Result<()> {
        self.read(name, Some(add))
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::of(ENGINE)(error.into())
}
