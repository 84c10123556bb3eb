//! A directory of tables.

use std::path::Path;

use super::{
    directory_name,
    options::{ENTRY_BYTES_MAX, ExportOptions},
    output_directory::{OutputDirectory, create_directory},
    output_file::sync_directory,
    table::TableWriter,
};
use crate::{
    digest::Digest,
    error::{Error, Result},
    file,
};

/// A directory of tables for RocksDB, with a subdirectory for each column family.
///
/// Each column family has tables `000001.sst` and so on, with disjoint key ranges in ascending
/// order. Holds one block and the index of one table in memory: about one key per 16 KiB.
///
/// The directory is `NAME.partial` until [`finish`](Self::finish) returns. Dropping an unfinished
/// export deletes its files. See [`ExportOptions`] for an example.
#[derive(Debug)]
pub struct Export {
    output: OutputDirectory,
    options: ExportOptions,
    families: Vec<ExportedFamily>,
    table: Option<TableWriter>,
    last_key: Option<Vec<u8>>,
}

/// An exported column family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFamily {
    /// Name of the column family.
    pub name: String,
    /// Name of its subdirectory, by [`directory_name`].
    pub directory: String,
    /// Number of tables, 0 if there are no entries.
    pub tables: u64,
    /// Number and digest of its entries, which were read again.
    pub digest: Digest,
}

impl Export {
    /// Creates the directory `path`, which may exist if it is empty, with default options.
    ///
    /// # Errors
    ///
    /// Those of [`OutputDirectory::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        ExportOptions::new().create(path)
    }

    pub(super) fn create_with(path: &Path, options: ExportOptions) -> Result<Self> {
        Ok(Self {
            output: OutputDirectory::create(path)?,
            options,
            families: Vec::new(),
            table: None,
            last_key: None,
        })
    }

    /// Starts the column family `name`. Later entries belong to it.
    ///
    /// # Errors
    ///
    /// * [`Error::Exists`]: the export has this column family.
    /// * Those of [`add`](Self::add).
    pub fn column_family(&mut self, name: &str) -> Result<()> {
        self.finish_family()?;
        let directory = directory_name(name, self.families.len() + 1);
        create_directory(&self.output.partial().join(&directory))?;
        self.families.push(ExportedFamily {
            name: name.to_owned(),
            directory,
            tables: 0,
            digest: Digest::default(),
        });
        Ok(())
    }

    /// Appends an entry to the column family. Before the first call of
    /// [`column_family`](Self::column_family), that is `default`.
    ///
    /// # Errors
    ///
    /// * [`Error::KeyOrder`]: the key is not greater than the last one of the column family.
    /// * [`Error::EntryTooLarge`]: key and value are longer than [`ENTRY_BYTES_MAX`] together.
    /// * [`Error::Io`]: the operating system refused to write. Drop the export.
    /// * [`Error::Corrupt`]: a finished table differs from what was written to it.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let entry_bytes = key.len().saturating_add(value.len());
        if entry_bytes > ENTRY_BYTES_MAX {
            return Err(Error::EntryTooLarge { bytes: entry_bytes as u64 });
        }
        if self.last_key.as_deref().is_some_and(|last| key <= last) {
            return Err(Error::KeyOrder { key: key.to_vec() });
        }
        let is_full = |table: &TableWriter| table.bytes_with(key, value) > self.options.file_bytes;
        if self.table.as_ref().is_some_and(is_full) {
            self.finish_table()?;
        }
        let table = match self.table.take() {
            Some(table) => table,
            None => self.next_table()?,
        };
        self.table.insert(table).add(key, value)?;
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// Finishes the last table, and renames the directory to its final name. Every table has been
    /// synced and read again. Returns the column families in the order in which they were written.
    ///
    /// # Errors
    ///
    /// * Those of [`add`](Self::add).
    /// * Those of [`OutputDirectory::finish`].
    pub fn finish(mut self) -> Result<Vec<ExportedFamily>> {
        self.finish_family()?;
        self.output.finish()?;
        Ok(self.families)
    }

    fn next_table(&mut self) -> Result<TableWriter> {
        let Some(family) = self.families.last_mut() else {
            self.column_family("default")?;
            return self.next_table();
        };
        family.tables += 1;
        let directory = self.output.partial().join(&family.directory);
        let path = file::numbered(&directory, family.tables, "sst");
        TableWriter::create(path, &family.name, self.options.is_compressed)
    }

    fn finish_family(&mut self) -> Result<()> {
        self.finish_table()?;
        self.last_key = None;
        match self.families.last() {
            Some(family) => sync_directory(&self.output.partial().join(&family.directory)),
            None => Ok(()),
        }
    }

    fn finish_table(&mut self) -> Result<()> {
        if let (Some(table), Some(family)) = (self.table.take(), self.families.last_mut()) {
            family.digest.add_all(&table.finish()?);
        }
        Ok(())
    }
}
