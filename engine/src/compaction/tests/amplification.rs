//! Amplification of writes, reads and space by the picker, simulated with tables that are sets of
//! keys.
//!
//! ```sh
//! cargo test -p sievedb --release --lib amplification -- --nocapture
//! ```
//!
//! Entries have one size, and compactions take no time: all that is due follows each flush. Sizes
//! are a 64th of the defaults, and so is the data.

use std::collections::{BTreeMap, BTreeSet};

use sievedb_filter::hash::key_hash;
use sievedb_format::TableBounds;

use super::picker::table;
use crate::{
    compaction::{
        borders::Borders,
        choice::Compaction,
        expired::ExpiryClock,
        levels::{LAST_LEVEL, LevelOptions, Levels},
        picker::Picker,
        tombstones::Skipped,
    },
    keyspace_options::KeyspaceOptions,
    table::TableMeta,
};

/// Bytes of an entry in a table: a key of 16 bytes and a value of 100, by LZ4.
const ENTRY_BYTES: u64 = 71;

/// The part of the default sizes that is simulated.
const SCALE: u64 = 64;

/// A table and its keys, in order.
type Table = (TableMeta, Vec<u64>);

struct Store {
    options: LevelOptions,
    /// Entries of a memtable.
    memtable_entries: u64,
    tables: BTreeMap<u64, Table>,
    next_id: u64,
    /// Bytes of tables written so far.
    written: u64,
    flushed: u64,
}

impl Store {
    fn new(memtable_bytes: u64) -> Self {
        let defaults = LevelOptions::of(&KeyspaceOptions::new());
        let options = LevelOptions {
            base_level_bytes_max: defaults.base_level_bytes_max / SCALE,
            table_bytes: defaults.table_bytes / SCALE,
            ..defaults
        };
        // A memtable's entry has a key, a value, and 60 bytes beside them.
        let memtable_entries = memtable_bytes / SCALE / 176;
        let tables = BTreeMap::new();
        Self { options, memtable_entries, tables, next_id: 1, written: 0, flushed: 0 }
    }

    /// Writes a sorted run of `level`.
    fn add(&mut self, level: u8, run: u64, keys: &[u64]) {
        let mut borders = self.borders(level);
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

    fn borders(&self, level: u8) -> Borders {
        let levels = Levels::new(self.tables.values().map(|(meta, _)| meta), &[]);
        // Empty and exclusive: no upper bound.
        let all = TableBounds {
            smallest: [].into(),
            largest: [].into(),
            smallest_excluded: false,
            largest_excluded: true,
        };
        Borders::of_merge(&levels, level, &all, self.options.table_bytes)
    }

    fn add_table(&mut self, level: u8, run: u64, keys: &[u64]) {
        let ends = [keys[0], keys[keys.len() - 1]].map(u64::to_be_bytes);
        let mut meta = table(self.next_id, level, run, &ends[0], &ends[1]);
        meta.entries = keys.len() as u64;
        meta.bytes = meta.entries * ENTRY_BYTES;
        self.written += meta.bytes;
        self.tables.insert(self.next_id, (meta, keys.to_vec()));
        self.next_id += 1;
    }

    /// Flushes a memtable of these keys, then compacts all that is due.
    fn flush(&mut self, mut keys: Vec<u64>) {
        keys.sort_unstable();
        keys.dedup();
        self.flushed += keys.len() as u64 * ENTRY_BYTES;
        self.add(0, self.next_id, &keys);
        while let Some(compaction) = self.pick() {
            self.compact(&compaction);
        }
    }

    fn pick(&self) -> Option<Compaction> {
        let levels = Levels::new(self.tables.values().map(|(meta, _)| meta), &[]);
        let picker = Picker {
            levels: &levels,
            options: &self.options,
            oldest_snapshot: None,
            skipped: &Skipped::default(),
            clock: ExpiryClock::default(),
            history_ms: None,
            covered: &BTreeMap::new(),
            overwritten: &BTreeMap::new(),
            otherwise_compressed: &BTreeSet::new(),
            rewrites_below: 0,
            has_filter: false,
            with_blob_garbage: &super::NO_TABLES,
        };
        picker.pick()
    }

    fn compact(&mut self, compaction: &Compaction) {
        let inputs: Vec<Table> =
            compaction.tables().map(|id| self.tables.remove(&id).expect("an input")).collect();
        let level = compaction.output_level;
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
        let levels = Levels::new(self.tables.values().map(|(meta, _)| meta), &[]);
        let deeper = (1..=LAST_LEVEL).filter(|&level| !levels.run(level).is_empty()).count();
        levels.level0().len() + deeper
    }
}

/// Cost of a workload.
struct Cost {
    /// Bytes of tables written for each byte flushed.
    writes: f64,
    /// Sorted runs, on average after each flush.
    runs: f64,
    /// Bytes of tables over those of their newest versions, at most, once half is written.
    space: f64,
}

/// Writes random keys, `keys` different ones or each a new one. `writes` and `keys` are in millions
/// before they are scaled.
fn cost_of(memtable_mib: u64, writes: u64, keys: Option<u64>) -> Cost {
    const MILLION: u64 = 1_000_000 / SCALE;
    let mut store = Store::new(memtable_mib << 20);
    let key = |at: u64| {
        let random = key_hash(&at.to_le_bytes(), 7);
        keys.map_or(random, |keys| random % (keys * MILLION))
    };
    let (mut live, mut runs, mut flushes, mut space) = (BTreeSet::new(), 0, 0, 1.0_f64);
    for first in (0..writes * MILLION).step_by(store.memtable_entries as usize) {
        let written: Vec<u64> = (first..first + store.memtable_entries).map(key).collect();
        live.extend(written.iter().copied());
        store.flush(written);
        runs += store.runs();
        flushes += 1;
        if first > writes * MILLION / 2 {
            let newest = live.len() as u64 * ENTRY_BYTES;
            space = space.max(store.bytes() as f64 / newest as f64);
        }
    }
    let writes = store.written as f64 / store.flushed as f64;
    Cost { writes, runs: runs as f64 / f64::from(flushes), space }
}

#[test]
#[expect(clippy::print_stdout, reason = "a report for those who change the picker")]
fn amplification_stays_within_bounds() {
    // Memtable in MiB, writes and keys in millions, most writes and space.
    for (memtable, writes, keys, writes_max, space_max) in [
        (32, 10, None, 6.4, 1.01),
        (64, 10, None, 4.2, 1.01),
        (32, 30, Some(10), 6.8, 1.2),
        (64, 30, Some(10), 5.0, 1.25),
    ] {
        let cost = cost_of(memtable, writes, keys);
        let keys = keys.map_or_else(|| "new".to_owned(), |keys| format!("{keys} million"));
        println!(
            "{writes} million writes of {keys} keys, memtables of {memtable} MiB: \
             writes {:.2}, runs {:.1}, space {:.2}",
            cost.writes, cost.runs, cost.space
        );
        assert!(cost.writes < writes_max, "{} bytes written for each", cost.writes);
        assert!(cost.space < space_max, "{} of the space", cost.space);
        assert!(cost.runs < 4.0, "{} runs", cost.runs);
    }
}
