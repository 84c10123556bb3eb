//! A RocksDB directory.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    entries::{Entries, Merge, Place, Run},
    error::{Error, Result},
    file, lock,
    manifest::{Family, Manifest, TableFile},
    options_file::{FamilyOptions, OptionsFile},
    tombstone::{Tombstone, Tombstones},
    value::{BlobFiles, MergeOperator, StringAppend, UInt64Add},
    wal::{Memtable, Replay},
};

/// Merge operators of RocksDB that this crate implements.
const STRING_APPEND: [&str; 2] = ["StringAppendOperator", "StringAppendTESTOperator"];
const UINT64_ADD: &str = "UInt64AddOperator";

/// Options for opening a RocksDB directory.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use sievedb_migrate::{Options, StringAppend};
///
/// let options = Options::new().merge_operator("default", Arc::new(StringAppend::new(";")));
/// assert!(options.open("no-such-directory").is_err());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Options {
    merge_operators: BTreeMap<String, Arc<dyn MergeOperator>>,
    wal_dir: Option<PathBuf>,
}

impl Options {
    /// Returns the defaults: the file OPTIONS names the merge operators, and the logs are in the
    /// directory of the database.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the merge operator of the column family `name`. Overrides the operator that the file
    /// OPTIONS names.
    #[must_use]
    pub fn merge_operator(
        mut self,
        name: impl Into<String>,
        operator: Arc<dyn MergeOperator>,
    ) -> Self {
        self.merge_operators.insert(name.into(), operator);
        self
    }

    /// Sets the directory of the write-ahead logs, RocksDB's option `wal_dir`. Default: the
    /// directory of the database.
    #[must_use]
    pub fn wal_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.wal_dir = Some(path.into());
        self
    }

    /// Opens the directory `path`. See [`RocksDb::open`].
    ///
    /// # Errors
    ///
    /// Those of [`RocksDb::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<RocksDb> {
        RocksDb::open_with(path.as_ref(), self)
    }
}

/// A RocksDB directory that no process has open. Changes nothing in it.
///
/// The entries of the live write-ahead logs are in memory: their keys and values, and about 80
/// bytes for each. RocksDB bounds them by the sizes of its memtables (`db_write_buffer_size`, or 64
/// MiB for each column family).
///
/// # Examples
///
/// ```
/// # fn main() -> sievedb_migrate::Result<()> {
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/families");
/// use sievedb_migrate::RocksDb;
///
/// let db = RocksDb::open(path)?;
/// for name in db.column_families() {
///     for entry in db.entries(name)? {
///         let (key, value) = entry?;
///         assert!(!key.is_empty() && value.len() < 4096);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RocksDb {
    directory: PathBuf,
    wal_dir: PathBuf,
    manifest: Manifest,
    options: OptionsFile,
    merge_operators: BTreeMap<String, Arc<dyn MergeOperator>>,
    memtables: BTreeMap<u32, Arc<Memtable>>,
}

impl RocksDb {
    /// Opens the directory `path` with default options. Reads its manifest and its newest file
    /// OPTIONS, and replays its logs into memory.
    ///
    /// Drops an incomplete record at the end of the last log, as RocksDB does. Other damage in a
    /// log is an error. Drops prepared transactions that were not committed.
    ///
    /// # Errors
    ///
    /// * [`Error::NotRocksDb`]: the directory has no file CURRENT that names a manifest.
    /// * [`Error::Locked`]: another process has the database open.
    /// * [`Error::Unsupported`]: a comparator, or another feature that this crate does not read.
    /// * [`Error::Corrupt`]: damage in the manifest or in a log.
    /// * [`Error::Io`]: the operating system refused to list the directory, or to open or read a
    ///   file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    fn open_with(directory: &Path, options: &Options) -> Result<Self> {
        lock::check(directory)?;
        let manifest = Manifest::read(directory)?;
        let options_file = OptionsFile::read(directory)?;
        let logs = match &options.wal_dir {
            Some(path) => logs(path)?,
            None => logs(directory)?,
        };
        let wal_dir = options.wal_dir.as_deref().unwrap_or(directory);
        let elsewhere = Path::new(&options_file.wal_dir);
        if logs.is_empty()
            && options.wal_dir.is_none()
            && !options_file.wal_dir.is_empty()
            && elsewhere != directory
        {
            let feature = format!(
                "the logs are in {}; set the directory of the logs, or move them here",
                elsewhere.display()
            );
            return Err(Error::unsupported(directory, feature));
        }
        for (number, bytes) in manifest.required_logs() {
            let path = file::numbered(wal_dir, number, "log");
            let len = match logs.contains(&number) {
                true => file::File::open(path.as_path())?.len(),
                false => return Err(Error::corrupt(&path, 0, "the log is missing")),
            };
            if len < bytes {
                let reason = format!("the log has {len} bytes, and {bytes} in the manifest");
                return Err(Error::corrupt(&path, len, reason));
            }
        }
        let mut replay = Replay::new(&manifest);
        for number in logs.into_iter().filter(|number| *number >= manifest.first_log()) {
            replay.log(&file::numbered(wal_dir, number, "log"), number)?;
        }
        let memtables = replay.finish();
        Ok(Self {
            directory: directory.to_owned(),
            wal_dir: wal_dir.to_owned(),
            memtables: memtables.into_iter().map(|(id, table)| (id, Arc::new(table))).collect(),
            manifest,
            options: options_file,
            merge_operators: options.merge_operators.clone(),
        })
    }

    /// Returns the names of the column families, in the order of their creation. The first one is
    /// `default`.
    pub fn column_families(&self) -> impl Iterator<Item = &str> {
        self.manifest.families.values().map(|family| &family.name[..])
    }

    /// Returns the newest value of each key of the column family `name`, in the order of its
    /// comparator.
    ///
    /// Opens all tables to read their range tombstones. Opens each table again when the iterator
    /// reaches it. Every block is verified by its checksum.
    ///
    /// # Errors
    ///
    /// * [`Error::NoColumnFamily`]: the database has no column family of this name.
    /// * [`Error::Unsupported`]: a table needs a feature that this crate does not read.
    /// * [`Error::Corrupt`], [`Error::Io`]: a table cannot be opened.
    ///
    /// The iterator also yields the last three errors, for tables that it reaches later. An unknown
    /// merge operator is an error at the first key with operands. So is a `StringAppendOperator`
    /// whose delimiter is not in the file OPTIONS, as of older releases of RocksDB.
    pub fn entries(&self, name: &str) -> Result<Entries> {
        let family = self.manifest.families.iter().find(|(_, family)| family.name == name);
        let Some((id, family)) = family else {
            return Err(Error::NoColumnFamily { name: name.to_owned() });
        };
        let options = self.options.families.get(name).cloned().unwrap_or_default();
        if let Some(class) = options.ttl_class() {
            let feature =
                format!("values of `DBWithTTL`, which end with a time ({class:?} in OPTIONS)");
            return Err(Error::unsupported(&self.directory, feature));
        }
        let place =
            Place { directory: self.directory.clone(), comparator: family.comparator_name.clone() };
        let memtable = self.memtables.get(id).cloned().unwrap_or_default();
        let mut tombstones = memtable.tombstones.clone();
        for table in family.tables.values() {
            tombstones.extend(table_tombstones(&place, table, family)?);
        }
        let mut runs = Vec::from_iter(Run::of_logs(memtable, &self.wal_dir));
        for tables in sorted_runs(family) {
            runs.extend(Run::of_tables(place.clone(), tables)?);
        }
        Ok(Entries::new(
            runs,
            Tombstones::new(tombstones, family.comparator),
            family.comparator,
            self.merge(name, &options),
            BlobFiles::new(&self.directory),
        ))
    }

    fn merge(&self, name: &str, options: &FamilyOptions) -> Merge {
        if let Some(operator) = self.merge_operators.get(name) {
            return Merge::By(Arc::clone(operator));
        }
        match options.merge_operator.as_deref() {
            Some(class) if STRING_APPEND.contains(&class) => match &options.delimiter {
                Some(delimiter) => Merge::By(Arc::new(StringAppend::new(delimiter.as_str()))),
                // Older releases store no delimiter.
                None => Merge::Unknown(format!(
                    "the merge operator {class:?}, whose delimiter is not in the file OPTIONS"
                )),
            },
            Some(UINT64_ADD) => Merge::By(Arc::new(UInt64Add)),
            Some(class) => Merge::Unknown(format!("the merge operator {class:?}")),
            None => Merge::Unknown("a merge operator not named in the file OPTIONS".to_owned()),
        }
    }
}

/// Returns the range tombstones of a table, within its key range.
fn table_tombstones(place: &Place, table: &TableFile, family: &Family) -> Result<Vec<Tombstone>> {
    let mut found = place.open(table)?.range_tombstones()?;
    for tombstone in &mut found {
        tombstone.truncate(&table.bounds, family.comparator);
    }
    Ok(found)
}

/// Returns the tables of each sorted run, the newest run first.
fn sorted_runs(family: &Family) -> Vec<Vec<TableFile>> {
    let (mut first, mut levels) = (Vec::new(), BTreeMap::<u32, Vec<TableFile>>::new());
    for table in family.tables.values() {
        match table.level {
            0 => first.push(table.clone()),
            level => levels.entry(level).or_default().push(table.clone()),
        }
    }
    first.sort_by_key(|table| std::cmp::Reverse((table.largest_sequence, table.number)));
    let mut runs: Vec<_> = first.into_iter().map(|table| vec![table]).collect();
    for mut tables in levels.into_values() {
        tables.sort_by(|left, right| {
            let (left, right) = (&left.bounds.smallest, &right.bounds.smallest);
            family.comparator.compare_versions((&left.0, left.1), (&right.0, right.1))
        });
        runs.push(tables);
    }
    runs
}

/// Returns the numbers of the logs in a directory, in order.
fn logs(path: &Path) -> Result<Vec<u64>> {
    let names = file::names(path)?;
    let numbers = names.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    Ok(numbers)
}
