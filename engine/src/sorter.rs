//! External sort: entries in any order become sorted runs in files, which are merged.
//!
//! A buffer is sorted when it is full, and written as a table outside of the store. Of many runs of
//! one size, all are merged into one. So each entry is written once for each power of
//! [`RUNS_MAX`] buffers. Of several values of a key the last one stays.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    mem,
    path::{Path, PathBuf},
    sync::Arc,
};

use sievedb_format::SequenceNumber;
use sievedb_sstable::{BlockCache, CursorOptions, Table, TableCursor};

use crate::{
    Error, KeyspaceOptions, Result, TableWriter,
    fs::Fs,
    gate::Gate,
    stats::Counters,
    table::{files::TableFiles, table_error},
};

/// Number of runs of one size that are merged at once.
const RUNS_MAX: usize = 32;
/// Length of the reads of a merge.
const READ_BYTES: usize = 256 << 10;
/// Minimum of the buffer.
pub(crate) const BUFFER_BYTES_MIN: usize = 64 << 10;

/// Sorts entries by key.
#[derive(Debug)]
pub(crate) struct Sorter {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    buffer_bytes_max: usize,
    /// Keys and values.
    bytes: Vec<u8>,
    entries: Vec<Place>,
    /// Runs by their size: those of one buffer, of [`RUNS_MAX`] buffers, and so on.
    runs: Vec<Vec<Run>>,
    next_run: u64,
    run_bytes: u64,
}

/// Place of an entry in the buffer.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    key_bytes: u32,
    value_bytes: u32,
}

impl Place {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..][..self.key_bytes as usize]
    }

    fn value(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start + self.key_bytes as usize..][..self.value_bytes as usize]
    }
}

/// A sorted run in a file. A drop removes the file.
#[derive(Debug)]
struct Run {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    id: u64,
    /// A forked child does not remove the file.
    gate: Gate,
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.gate.is_forked() {
            // If this fails, the caller can remove the file.
            let _ = self.fs.unlink(&self.path);
        }
    }
}

impl Sorter {
    /// Creates a sorter with its files in the directory `dir`, which must be empty or missing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::DirectoryNotEmpty`].
    pub(crate) fn new(fs: Arc<dyn Fs>, dir: &Path, buffer_bytes_max: usize) -> Result<Self> {
        let dir = fs.absolute(dir).map_err(|error| Error::io("locate", dir, error))?;
        fs.create_dir(&dir).map_err(|error| Error::io("create", &dir, error))?;
        let names = fs.list(&dir).map_err(|error| Error::io("list", &dir, error))?;
        if let Some(name) = names.into_iter().next() {
            return Err(Error::DirectoryNotEmpty { path: dir, name });
        }
        let buffer_bytes_max = buffer_bytes_max.max(BUFFER_BYTES_MIN);
        let (bytes, entries, runs) = Default::default();
        Ok(Self { fs, dir, buffer_bytes_max, bytes, entries, runs, next_run: 1, run_bytes: 0 })
    }

    /// Returns the bytes of all runs written so far.
    pub(crate) const fn run_bytes(&self) -> u64 {
        self.run_bytes
    }

    /// Adds an entry whose lengths were checked.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let more = key.len() + value.len();
        let places = (self.entries.len() + 1) * size_of::<Place>();
        if !self.entries.is_empty() && self.bytes.len() + more + places > self.buffer_bytes_max {
            self.write_buffer()?;
        }
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("lengths were checked");
        let (key_bytes, value_bytes) = (length(key), length(value));
        self.entries.push(Place { start: self.bytes.len(), key_bytes, value_bytes });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Calls `add` for each key and its last value, in ascending order.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`], errors of `add`.
    pub(crate) fn finish(mut self, mut add: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        if self.runs.iter().all(Vec::is_empty) {
            self.sort();
            return self.each_of_buffer(add);
        }
        self.write_buffer()?;
        (self.bytes, self.entries) = Default::default();
        let runs: Vec<_> = self.runs.drain(..).flatten().collect();
        self.merge(&runs, |_, key, value| add(key, value))
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|left, right| {
            // An empty key with an empty value has no bytes: the next entry has the same start.
            let age = |place: &Place| (place.start, place.value_bytes);
            left.key(bytes).cmp(right.key(bytes)).then(age(left).cmp(&age(right)))
        });
    }

    /// Calls `add` for the last value of each key of the sorted buffer.
    fn each_of_buffer(&self, mut add: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let bytes = &self.bytes;
        for (at, place) in self.entries.iter().enumerate() {
            let next = self.entries.get(at + 1).map(|next| next.key(bytes));
            if next != Some(place.key(bytes)) {
                add(place.key(bytes), place.value(bytes))?;
            }
        }
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.sort();
        let id = self.next_run;
        let run = self
            .write_run(id, |writer| self.each_of_buffer(|key, value| writer.add(id, key, value)))?;
        self.next_run += 1;
        self.bytes.clear();
        // A long value may have exceeded the limit.
        self.bytes.shrink_to(self.buffer_bytes_max);
        self.entries.clear();
        self.keep(0, run)
    }

    /// Writes a run.
    fn write_run(
        &self,
        id: u64,
        write: impl FnOnce(&mut TableWriter) -> Result<()>,
    ) -> Result<(Run, u64)> {
        let path = self.dir.join(format!("{id:06}.sst"));
        let mut writer =
            TableWriter::with_fs(&path, Arc::clone(&self.fs), &KeyspaceOptions::new())?;
        write(&mut writer)?;
        let bytes = writer.end()?.bytes;
        let (fs, path, gate) = (Arc::clone(&self.fs), writer.keep(), Gate::new());
        Ok((Run { fs, path, id, gate }, bytes))
    }

    /// Keeps a run, and merges all of its size if there are many.
    fn keep(&mut self, mut size: usize, (mut run, mut bytes): (Run, u64)) -> Result<()> {
        loop {
            self.run_bytes += bytes;
            if self.runs.len() == size {
                self.runs.push(Vec::new());
            }
            self.runs[size].push(run);
            if self.runs[size].len() < RUNS_MAX {
                return Ok(());
            }
            let merged = mem::take(&mut self.runs[size]);
            let id = self.next_run;
            self.next_run += 1;
            (run, bytes) = self.write_run(id, |writer| {
                self.merge(&merged, |sequence, key, value| writer.add(sequence, key, value))
            })?;
            // The entries keep their age: runs of a larger size are older.
            size += 1;
        }
    }

    /// Calls `add` for each key of `runs`, with its newest value and the number of that value.
    fn merge(
        &self,
        runs: &[Run],
        mut add: impl FnMut(SequenceNumber, &[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let files = TableFiles::few_at_once(Arc::clone(&self.fs), Arc::<Counters>::default());
        let cache = Arc::new(BlockCache::new(0));
        let open = |run: &Run| {
            let source = files.source(run.id, run.path.as_path())?;
            let table = Table::open_foreign(source, Arc::clone(&cache));
            let table = table.map_err(|error| table_error(&run.path, error))?;
            let options =
                CursorOptions { read_ahead_bytes_max: READ_BYTES, ..CursorOptions::whole_table() };
            let mut cursor = Arc::new(table).cursor(options);
            cursor.seek_to_first().map_err(|error| table_error(&run.path, error))?;
            Ok(cursor)
        };
        let mut cursors = runs.iter().map(open).collect::<Result<Vec<_>>>()?;
        let mut heads: BinaryHeap<_> =
            cursors.iter().zip(0..).filter_map(|(cursor, at)| head(cursor, at)).collect();
        let mut last: Option<Vec<u8>> = None;
        while let Some(Reverse((key, Reverse(sequence), at))) = heads.pop() {
            let cursor = &mut cursors[at];
            if last.as_ref() != Some(&key) {
                add(sequence, &key, cursor.value_ref())?;
            }
            cursor.next().map_err(|error| table_error(&runs[at].path, error))?;
            heads.extend(head(cursor, at));
            last = Some(key);
        }
        Ok(())
    }
}

/// An entry of a run: by key, of equals the newest first.
type Head = Reverse<(Vec<u8>, Reverse<SequenceNumber>, usize)>;

fn head(cursor: &TableCursor, at: usize) -> Option<Head> {
    let key = cursor.key()?;
    Some(Reverse((key.user_key.to_vec(), Reverse(key.trailer.sequence()), at)))
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::fs::MemoryFs;

    #[test]
    fn a_long_value_leaves_no_longer_buffer() {
        let mut sorter = Sorter::new(Arc::new(MemoryFs::new()), "runs".as_ref(), BUFFER_BYTES_MIN)
            .expect("an empty directory");
        for key in [b"a", b"b"] {
            sorter.add(key, &vec![7; 1 << 20]).expect("there is room");
        }
        sorter.add(b"c", b"1").expect("there is room");
        assert!(sorter.bytes.capacity() <= BUFFER_BYTES_MIN, "{} bytes", sorter.bytes.capacity());
        let mut keys = Vec::new();
        let all = sorter.finish(|key, _| {
            keys.push(key.to_vec());
            Ok(())
        });
        all.expect("they are merged");
        assert_eq!(keys, [b"a", b"b", b"c"]);
    }

    #[test]
    fn the_last_value_of_an_empty_key_is_kept() {
        let mut sorter = Sorter::new(Arc::new(MemoryFs::new()), "runs".as_ref(), BUFFER_BYTES_MIN)
            .expect("an empty directory");
        // Enough keys that the sort is not an insertion sort, which is stable.
        for key in (0..500_u32).rev() {
            sorter.add(&key.to_be_bytes(), b"").expect("there is room");
            if key == 250 {
                for value in [&b""[..], b"", b"", b"last"] {
                    sorter.add(b"", value).expect("there is room");
                }
            }
        }
        let mut values = Vec::new();
        let all = sorter.finish(|key, value| {
            if key.is_empty() {
                values.push(value.to_vec());
            }
            Ok(())
        });
        all.expect("they are merged");
        assert_eq!(values, [b"last"]);
    }
}
