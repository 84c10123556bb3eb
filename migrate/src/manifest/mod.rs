//! The manifest: live tables, column families and logs.

mod edit;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

pub(crate) use edit::TableFile;

use self::edit::Edit;
use crate::{
    error::{Error, Result},
    file::File,
    internal_key::Comparator,
    wal::LogReader,
};

/// Name of the file that names the manifest.
const CURRENT: &str = "CURRENT";

const MANIFEST_PREFIX: &str = "MANIFEST-";

/// Maximum length of the file CURRENT that is read.
const CURRENT_BYTES_MAX: usize = 4096;

/// A column family, as the manifest describes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) comparator: Comparator,
    pub(crate) comparator_name: String,
    /// Logs with smaller numbers have no data of the column family that is not in tables.
    pub(crate) log_number: u64,
    /// Live tables by level and number.
    pub(crate) tables: BTreeMap<(u32, u64), TableFile>,
    pub(crate) blob_files: BTreeSet<u64>,
}

/// The state after all edits of a manifest.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    pub(crate) path: PathBuf,
    pub(crate) families: BTreeMap<u32, Family>,
    min_log_number: u64,
    /// Logs that must exist, with their durable length.
    logs: BTreeMap<u64, u64>,
}

impl Manifest {
    /// Reads the manifest that the file CURRENT of `directory` names.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let not_rocksdb = || Error::NotRocksDb { path: directory.to_owned() };
        let current = match File::open(directory.join(CURRENT)) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(not_rocksdb());
            }
            current => current?.read_all(CURRENT_BYTES_MAX)?,
        };
        let name = str::from_utf8(&current).ok().and_then(|text| text.strip_suffix('\n'));
        let number = name.and_then(|name| name.strip_prefix(MANIFEST_PREFIX)?.parse::<u64>().ok());
        let (Some(name), Some(number)) = (name, number) else { return Err(not_rocksdb()) };
        let path = directory.join(name);
        let mut reader = LogReader::new(File::open(path.as_path())?, number);
        let mut manifest = Self { path: path.clone(), ..Self::default() };
        let default = Family { name: "default".to_owned(), ..Family::default() };
        manifest.families.insert(0, default);
        let mut group = Vec::new();
        while let Some(record) = reader.next()? {
            let edit = Edit::decode(&record.bytes, &path, record.offset)?;
            let left = edit.group_left.unwrap_or(0);
            group.push((edit, record.offset));
            if left == 0 {
                for (edit, offset) in group.drain(..) {
                    manifest.apply(edit, offset)?;
                }
            }
        }
        // An incomplete record or group at the end was never acknowledged.
        Ok(manifest)
    }

    /// Returns the number of the first log with data that is not in tables.
    pub(crate) fn first_log(&self) -> u64 {
        match self.min_log_number {
            0 => self.families.values().map(|family| family.log_number).min().unwrap_or(0),
            number => number,
        }
    }

    /// Returns the logs that must exist, with their durable length.
    pub(crate) fn required_logs(&self) -> impl Iterator<Item = (u64, u64)> {
        let first = self.first_log();
        self.logs.range(first..).map(|(number, bytes)| (*number, *bytes))
    }

    fn apply(&mut self, edit: Edit, offset: u64) -> Result<()> {
        let path = &self.path;
        let corrupt = |reason: String| Error::corrupt(path, offset, reason);
        if let Some(number) = edit.min_log_number {
            self.min_log_number = self.min_log_number.max(number);
        }
        for (number, bytes) in edit.logs {
            let known = self.logs.entry(number).or_default();
            *known = bytes.max(*known);
        }
        if let Some(first) = edit.first_log {
            self.logs = self.logs.split_off(&first);
        }
        let id = edit.family;
        if let Some(name) = edit.added_family {
            let family = Family { name, ..Family::default() };
            if self.families.insert(id, family).is_some() {
                return Err(corrupt(format!("the column family {id} is added twice")));
            }
        }
        if edit.is_dropped {
            self.families.remove(&id);
            return Ok(());
        }
        let Some(family) = self.families.get_mut(&id) else {
            return Err(corrupt(format!(
                "an edit of the column family {id}, which does not exist"
            )));
        };
        if let Some(name) = edit.comparator {
            family.comparator = Comparator::from_name(&name, path)?;
            family.comparator_name = name;
        }
        if let Some(number) = edit.log_number {
            family.log_number = family.log_number.max(number);
        }
        for (level, number) in edit.deleted {
            if family.tables.remove(&(level, number)).is_none() {
                return Err(corrupt(format!(
                    "the table {number} is removed from level {level}, \
                                            which does not have it"
                )));
            }
        }
        for table in edit.added {
            let (level, number) = (table.level, table.number);
            if family.tables.insert((level, number), table).is_some() {
                return Err(corrupt(format!("the table {number} is added twice to level {level}")));
            }
        }
        family.blob_files.extend(edit.blob_files);
        Ok(())
    }
}
