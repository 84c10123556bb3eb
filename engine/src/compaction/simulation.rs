//! Amplification of writes, reads and space by the picker, simulated with tables that are sets of
//! keys.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example amplification
//! cargo test -p sievedb --release --lib amplification -- --nocapture
//! ```
//!
//! Entries have one size, and compactions take no time: all that is due follows each flush. Sizes
//! are a 64th of those of the options, and so is the data.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use sievedb_filter::hash::key_hash;
use sievedb_format::TableBounds;

use super::{
    borders::Borders,
    choice::Compaction,
    expired::ExpiryClock,
    levels::{LevelOptions, Levels},
    picker::Picker,
    tombstones::Skipped,
};
use crate::{
    compaction_style::{CompactionStyle, Fifo, SizeTiered},
    keyspace_options::KeyspaceOptions,
    table::TableMeta,
};

/// Bytes of an entry in a table: a key of 16 bytes and a value of 100, by LZ4.
const ENTRY_BYTES: u64 = 71;
/// Bytes of an entry in a memtable: a key, a value, and 60 bytes of overhead.
const MEMTABLE_ENTRY_BYTES: u64 = 176;
/// The part of the sizes that is simulated.
const SCALE: u64 = 64;
/// Maximum bytes of entries in the tables of [`TABLE`] with FIFO.
const FIFO_BYTES_MAX: u64 = 1 << 30;

/// Random writes to a keyspace.
#[derive(Debug, Clone, Copy)]
pub struct Writes {
    /// Number of writes.
    pub count: u64,
    /// Number of different keys; `None` if each write has a new one.
    pub keys: Option<u64>,
}

/// Cost of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Amplification {
    /// Bytes of tables written for each byte flushed.
    pub writes: f64,
    /// Sorted runs that a lookup of an absent key may read, on average after each flush.
    pub runs: f64,
    /// The same, at most.
    pub runs_max: usize,
    /// Bytes of tables over those of the newest versions of all keys, at most, once half is
    /// written.
    pub space: f64,
    /// The same with the inputs of a compaction, which exist until it is installed.
    pub space_peak: f64,
    /// Bytes of tables written for each byte flushed, those of the store being idle for long after
    /// all writes included.
    pub writes_until_idle: f64,
    /// The space at the end of that.
    pub space_idle: f64,
}

/// A row of a table in Markdown.
impl fmt::Display for Amplification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, runs, runs_max, space, space_peak, .. } = self;
        write!(f, "{writes:.1} | {runs:.1} | {runs_max} | {space:.2} | {space_peak:.2} |")
    }
}

/// Returns the names and styles that the documentation compares.
#[must_use]
pub fn styles() -> [(&'static str, CompactionStyle); 4] {
    [
        ("`Leveled`", CompactionStyle::Leveled),
        ("`SizeTiered`", SizeTiered::new().into()),
        ("the same, `merge_runs_min(8)`", SizeTiered::new().merge_runs_min(8).into()),
        ("`Fifo` of 1 GiB", Fifo::new(FIFO_BYTES_MAX).into()),
    ]
}

/// Simulates writes to a keyspace with these options.
///
/// Takes about a second for 50 million writes.
#[must_use]
pub fn simulate(options: &KeyspaceOptions, writes: Writes) -> Amplification {
    let mut store = Store::new(options);
    let key = |at: u64| {
        let random = key_hash(&at.to_le_bytes(), 7);
        writes.keys.map_or(random, |keys| random % (keys / SCALE).max(1))
    };
    let (mut live, mut runs, mut runs_max, mut flushes) = (BTreeSet::new(), 0, 0, 0);
    let (mut space, mut space_peak) = (1.0_f64, 1.0_f64);
    let count = writes.count / SCALE;
    for first in (0..count).step_by(store.memtable_entries) {
        let written: Vec<u64> = (first..first + store.memtable_entries as u64).map(key).collect();
        live.extend(written.iter().copied());
        let peak = store.flush(written);
        runs += store.runs();
        runs_max = runs_max.max(store.runs());
        flushes += 1;
        if first > count / 2 {
            let newest = (live.len() as u64 * ENTRY_BYTES) as f64;
            space = space.max(store.bytes() as f64 / newest);
            space_peak = space_peak.max(peak as f64 / newest);
        }
    }
    let written = |store: &Store| store.written as f64 / store.flushed as f64;
    let writes = written(&store);
    while let Some(compaction) = store.pick(|it| it.pick_idle().or_else(|| it.pick_long_idle())) {
        store.compact(&compaction);
    }
    Amplification {
        writes,
        runs: runs as f64 / f64::from(flushes),
        runs_max,
        space,
        space_peak,
        writes_until_idle: written(&store),
        space_idle: store.bytes() as f64 / (live.len() as u64 * ENTRY_BYTES) as f64,
    }
}

/// A table and its keys, in order.
type Table = (TableMeta, Vec<u64>);

struct Store {
    options: LevelOptions,
    /// Entries of a memtable.
    memtable_entries: usize,
    tables: BTreeMap<u64, Table>,
    next_id: u64,
    /// Bytes of tables written so far.
    written: u64,
    flushed: u64,
}

impl Store {
    fn new(options: &KeyspaceOptions) -> Self {
        let whole = LevelOptions::of(options);
        let style = match whole.style {
            CompactionStyle::Fifo(fifo) => {
                Fifo { bytes_max: fifo.bytes_max / SCALE, ..fifo }.into()
            }
            other => other,
        };
        let scaled = LevelOptions {
            base_level_bytes_max: whole.base_level_bytes_max / SCALE,
            table_bytes: whole.table_bytes / SCALE,
            style,
            ..whole
        };
        let memtable_bytes = options.memtable_bytes as u64;
        let memtable_entries = (memtable_bytes / SCALE / MEMTABLE_ENTRY_BYTES).max(1) as usize;
        let tables = BTreeMap::new();
        Self { options: scaled, memtable_entries, tables, next_id: 1, written: 0, flushed: 0 }
    }

    fn levels(&self) -> Levels<'_> {
        Levels::new(self.tables.values().map(|(meta, _)| meta), &[])
    }

    /// Writes a sorted run of `level`.
    fn add(&mut self, level: u8, run: u64, keys: &[u64]) {
        // Empty and exclusive: no upper bound.
        let all = TableBounds {
            smallest: [].into(),
            largest: [].into(),
            smallest_excluded: false,
            largest_excluded: true,
        };
        let mut borders = Borders::of_merge(&self.levels(), level, &all, self.options.table_bytes);
        let mut first = 0;
        for (at, key) in keys.iter().enumerate() {
            let bytes = (at - first) as u64 * ENTRY_BYTES;
            if borders.is_end(bytes, &key.to_be_bytes()) && at > first {
                self.add_table(level, run, &keys[first..at]);
                first = at;
            }
        }
        self.add_table(level, run, &keys[first..]);
    }

    fn add_table(&mut self, level: u8, run: u64, keys: &[u64]) {
        let [Some(first), Some(last)] = [keys.first(), keys.last()] else { return };
        let entries = keys.len() as u64;
        let meta = TableMeta {
            id: self.next_id,
            level,
            run,
            bytes: entries * ENTRY_BYTES,
            checksum: 0,
            salt: 0,
            filter: None,
            prefix_filter: None,
            range_filter: None,
            global_sequence: None,
            bounds: TableBounds::inclusive(first.to_be_bytes(), last.to_be_bytes()),
            entries,
            tombstones: 0,
            range_tombstones: 0,
            smallest_sequence: 1,
            largest_sequence: self.next_id,
            expiry: None,
            blob_files: Vec::new(),
            blob_depth: 0,
            written_ms: None,
        };
        self.written += meta.bytes;
        self.tables.insert(self.next_id, (meta, keys.to_vec()));
        self.next_id += 1;
    }

    /// Flushes a memtable of these keys, then compacts everything due. Returns the peak bytes of
    /// tables.
    fn flush(&mut self, mut keys: Vec<u64>) -> u64 {
        keys.sort_unstable();
        keys.dedup();
        self.flushed += keys.len() as u64 * ENTRY_BYTES;
        self.add(0, self.next_id, &keys);
        let mut peak = self.bytes();
        while let Some(compaction) = self.pick(|picker| picker.pick()) {
            let before = self.bytes();
            let written = self.written;
            self.compact(&compaction);
            peak = peak.max(before + self.written - written);
        }
        peak
    }

    fn pick(&self, pick: impl Fn(&Picker<'_>) -> Option<Compaction>) -> Option<Compaction> {
        let none = BTreeSet::new();
        pick(&Picker {
            levels: &self.levels(),
            options: &self.options,
            oldest_snapshot: None,
            skipped: &Skipped::default(),
            clock: ExpiryClock::default(),
            history_ms: None,
            covered: &BTreeMap::new(),
            overwritten: &BTreeMap::new(),
            otherwise_compressed: &none,
            rewrites_below: 0,
            has_filter: false,
            with_blob_garbage: &none,
        })
    }

    fn compact(&mut self, compaction: &Compaction) {
        let inputs: Vec<Table> =
            compaction.tables().filter_map(|id| self.tables.remove(&id)).collect();
        let level = compaction.output_level;
        if compaction.is_unlink {
            return;
        }
        if compaction.is_trivial_move {
            for (meta, keys) in inputs {
                let meta = TableMeta { level, run: compaction.output_run, ..meta };
                self.tables.insert(meta.id, (meta, keys));
            }
            return;
        }
        let mut keys: Vec<u64> = inputs.into_iter().flat_map(|(_, keys)| keys).collect();
        keys.sort_unstable();
        keys.dedup();
        self.add(level, compaction.output_run, &keys);
    }

    fn bytes(&self) -> u64 {
        self.tables.values().map(|(meta, _)| meta.bytes).sum()
    }

    /// Returns the sorted runs.
    fn runs(&self) -> usize {
        self.levels().sorted_runs().count()
    }
}
