//! Concurrent flushes and compactions of tables that are maps: no choice may move an older version
//! of a key above a newer one, or restore a removed key. The style of compaction changes meanwhile,
//! and FIFO removes the oldest tables only.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::prelude::*;
use sievedb_format::SequenceNumber;

use super::picker::table;
use crate::{
    compaction::{
        choice::{Compaction, Reason},
        crowded::{REWRITE_MAX, rewrite_max},
        deeper_levels::DeeperLevels,
        expired::ExpiryClock,
        levels::{LAST_LEVEL, LevelOptions, Levels},
        picker::{Picker, RangeChoice},
        tombstones::Skipped,
    },
    compaction_style::{CompactionStyle, Fifo, SizeTiered},
    iter::{bounds::KeyBounds, tests::model::check},
    table::TableMeta,
};

/// Runs of level 0 at which they are compacted at any cost.
const RUNS_MAX: usize = 4;

/// The newest version of each key: its sequence number, and `true` for a put.
type Entries = BTreeMap<u8, (SequenceNumber, bool)>;

/// An event in the store.
#[derive(Debug, Clone)]
enum Event {
    /// These keys, removed or not, become a run of level 0, of two tables if split.
    Flush { writes: Vec<(u8, bool)>, split: bool },
    /// The picker chooses a compaction, which starts.
    Pick,
    /// The same in an idle store.
    Idle,
    /// The same in a store that has been idle for long.
    LongIdle,
    /// The same in a store with this multiple of its share of tables.
    Crowded(u64),
    /// The same for a range of keys.
    Range(u8, u8),
    /// A running compaction ends.
    Finish(prop::sample::Index),
    /// A running compaction fails: nothing changes.
    GiveUp(prop::sample::Index),
    /// A running compaction fails because it cannot read an input, which is quarantined.
    Quarantine(prop::sample::Index, prop::sample::Index),
    /// All quarantined tables are readable again.
    Lift,
    /// Compactions have another style from now on.
    Style(CompactionStyle),
}

fn any_event(quarantines: u32) -> impl Strategy<Value = Event> {
    let any_index = any::<prop::sample::Index>;
    let key = 0..24_u8;
    let writes = prop::collection::vec((key.clone(), prop::bool::weighted(0.6)), 1..5);
    prop_oneof![
        6 => (writes, any::<bool>()).prop_map(|(writes, split)| Event::Flush { writes, split }),
        6 => Just(Event::Pick),
        4 => prop_oneof![Just(Event::Idle), Just(Event::LongIdle)],
        3 => (1..6_u64).prop_map(Event::Crowded),
        1 => (key.clone(), key).prop_map(|(from, to)| Event::Range(from, to)),
        5 => any_index().prop_map(Event::Finish),
        1 => any_index().prop_map(Event::GiveUp),
        2 * quarantines =>
            (any_index(), any_index()).prop_map(|(at, input)| Event::Quarantine(at, input)),
        quarantines => Just(Event::Lift),
        1 => any_style().prop_map(Event::Style),
    ]
}

fn any_style() -> impl Strategy<Value = CompactionStyle> {
    let tiered = (2..4_u64, 0..3_u64, 100..300_u64, 50..300_u64);
    let tiered = tiered.prop_map(|(least, more, ratio, space)| {
        let runs = SizeTiered::new().merge_runs_min(least).runs_max(least + more);
        runs.size_ratio_percent(ratio).space_percent_max(space).into()
    });
    let fifo = (5..40_u64, prop::option::of(1..60_u64));
    let fifo = fifo
        .prop_map(|(bytes, age)| Fifo::new(bytes).age_max(age.map(Duration::from_millis)).into());
    prop_oneof![2 => Just(CompactionStyle::Leveled), 3 => tiered, 1 => fifo]
}

struct Store {
    options: LevelOptions,
    oldest_snapshot: Option<SequenceNumber>,
    tables: BTreeMap<u64, (TableMeta, Entries)>,
    /// The last level has a compression of its own.
    recompresses: bool,
    /// Ids of the tables that were not written for the last level, if `recompresses`.
    otherwise_compressed: BTreeSet<u64>,
    /// Tables that cannot be read.
    quarantined: BTreeSet<u64>,
    /// Parallel to `deeper`.
    running: Vec<Compaction>,
    deeper: Vec<DeeperLevels>,
    /// The entries that a reader must find.
    state: Entries,
    /// FIFO has removed no entry with a larger sequence number.
    lost_up_to: SequenceNumber,
    /// Sequence number, and time in milliseconds.
    sequence: SequenceNumber,
    next_id: u64,
}

impl Store {
    fn new(oldest_snapshot: Option<SequenceNumber>, recompresses: bool, lazy_bases: u64) -> Self {
        Self {
            options: LevelOptions {
                level0_runs: 2,
                base_level_bytes_max: 4,
                lazy_bases,
                fan_out: 3,
                table_bytes: 3,
                merged_runs_max: 4,
                style: CompactionStyle::Leveled,
            },
            oldest_snapshot,
            tables: BTreeMap::new(),
            recompresses,
            otherwise_compressed: BTreeSet::new(),
            quarantined: BTreeSet::new(),
            running: Vec::new(),
            deeper: Vec::new(),
            state: Entries::new(),
            lost_up_to: 0,
            sequence: 0,
            next_id: 1,
        }
    }

    fn metas(&self) -> impl Iterator<Item = &TableMeta> {
        self.tables.values().map(|(meta, _)| meta)
    }

    fn levels<'a>(&'a self, running: &'a [Compaction]) -> Levels<'a> {
        Levels::new(self.metas(), running).quarantine(self.quarantined.iter().copied())
    }

    /// Adds a table; its length is the number of its entries.
    fn add(&mut self, level: u8, run: u64, entries: Entries) {
        let ends = (entries.first_key_value(), entries.last_key_value());
        let (Some((&smallest, _)), Some((&largest, _))) = ends else { return };
        let mut meta = table(self.next_id, level, run, &[smallest], &[largest]);
        self.next_id += 1;
        let sequences: BTreeSet<_> = entries.values().map(|&(sequence, _)| sequence).collect();
        if self.recompresses && level < LAST_LEVEL {
            self.otherwise_compressed.insert(meta.id);
        }
        meta.entries = entries.len() as u64;
        meta.bytes = meta.entries;
        meta.tombstones = entries.values().filter(|&&(_, put)| !put).count() as u64;
        meta.smallest_sequence = *sequences.first().expect("an entry");
        meta.largest_sequence = *sequences.last().expect("an entry");
        meta.written_ms = Some(meta.largest_sequence).filter(|_| !meta.id.is_multiple_of(5));
        self.tables.insert(meta.id, (meta, entries));
    }

    fn flush(&mut self, writes: &[(u8, bool)], split: bool) {
        let mut entries = Entries::new();
        for &(key, put) in writes {
            self.sequence += 1;
            entries.insert(key, (self.sequence, put));
        }
        self.state.extend(entries.clone());
        let middle = entries.keys().nth(entries.len() / 2).copied().filter(|_| split);
        let right = middle.map(|middle| entries.split_off(&middle)).unwrap_or_default();
        let run = self.sequence;
        self.add(0, run, entries);
        self.add(0, run, right);
    }

    /// Returns tombstones as if scans had repeatedly skipped them in some tables.
    fn skipped(&self) -> Skipped {
        self.tables.keys().filter(|id| *id % 3 == 0).map(|id| (*id, 100)).collect()
    }

    /// Starts the compaction that the picker chooses. Returns `true` if there is one.
    fn start(&mut self, pick: impl FnOnce(&Picker<'_>) -> Option<Compaction>) -> bool {
        let levels = self.levels(&self.running);
        let Self { options, oldest_snapshot, .. } = &*self;
        let skipped = self.skipped();
        let picker = Picker {
            levels: &levels,
            options,
            oldest_snapshot: *oldest_snapshot,
            skipped: &skipped,
            clock: ExpiryClock { for_all_ms: self.sequence, now_ms: self.sequence, snapshot: None },
            history_ms: None,
            covered: &BTreeMap::new(),
            overwritten: &BTreeMap::new(),
            otherwise_compressed: &self.otherwise_compressed,
            rewrites_below: 0,
            has_filter: false,
            with_blob_garbage: &super::NO_TABLES,
        };
        let Some(choice) = pick(&picker) else { return false };
        let inputs: BTreeSet<u64> = choice.tables().collect();
        let kept = Levels::new(self.metas().filter(|table| !inputs.contains(&table.id)), &[]);
        let Compaction { output_level, output_run, .. } = choice;
        let deeper = DeeperLevels::new(&kept, output_level, output_run, &choice.bounds);
        let is_merged = !choice.is_trivial_move && !choice.is_unlink;
        assert!(!is_merged || inputs.is_disjoint(&self.quarantined), "{choice} reads damage");
        assert_eq!(inputs.len(), choice.tables().count(), "a table is there twice: {choice}");
        if choice.reason == Reason::Fifo {
            let (old, rest): (Vec<_>, Vec<_>) =
                self.metas().partition(|meta| inputs.contains(&meta.id));
            let is_newest = |meta: &&TableMeta| old.iter().all(|old| is_above(meta, old));
            assert!(rest.iter().all(is_newest), "{choice} is not of the oldest tables");
        }
        for running in &self.running {
            assert!(running.tables().all(|id| !inputs.contains(&id)), "{choice} beside {running}");
        }
        self.running.push(choice);
        self.deeper.push(deeper);
        true
    }

    fn finish(&mut self, index: usize) {
        let (choice, mut deeper) = (self.running.remove(index), self.deeper.remove(index));
        let level = choice.output_level;
        let inputs: Vec<_> =
            choice.tables().map(|id| self.tables.remove(&id).expect("an input")).collect();
        if choice.is_trivial_move {
            for (meta, entries) in inputs {
                let meta = TableMeta { level, run: choice.output_run, ..meta };
                self.tables.insert(meta.id, (meta, entries));
            }
            return;
        }
        if choice.is_unlink {
            let newest = inputs.iter().map(|(meta, _)| meta.largest_sequence).max();
            self.lost_up_to = self.lost_up_to.max(newest.expect("an input"));
            return;
        }
        let mut merged = Entries::new();
        for (key, version) in inputs.into_iter().flat_map(|(_, entries)| entries) {
            let newest = merged.entry(key).or_insert(version);
            *newest = version.max(*newest);
        }
        merged.retain(|&key, &mut (sequence, put)| {
            let is_seen = self.oldest_snapshot.is_none_or(|oldest| sequence <= oldest);
            put || !is_seen || deeper.may_hold(&[key])
        });
        while let Some(cut) = merged.keys().nth(3).copied() {
            let rest = merged.split_off(&cut);
            self.add(level, choice.output_run, merged);
            merged = rest;
        }
        self.add(level, choice.output_run, merged);
    }

    fn abort(&mut self, index: prop::sample::Index) -> Compaction {
        let index = index.index(self.running.len());
        self.deeper.remove(index);
        self.running.remove(index)
    }

    /// Looks every key up, newest table first, and checks the levels.
    fn check(&self) -> Result<(), TestCaseError> {
        Levels::new(self.metas(), &self.running).check_invariants();
        let mut order: Vec<_> = self.tables.values().collect();
        order.sort_by_key(|(meta, _)| (meta.level, u64::MAX - meta.run));
        for (key, &(sequence, put)) in &self.state {
            let found = order.iter().find_map(|(_, entries)| entries.get(key));
            match found {
                Some(&found) => prop_assert_eq!(found, (sequence, put), "key {}", key),
                None => prop_assert!(!put || sequence <= self.lost_up_to, "key {} is lost", key),
            }
        }
        Ok(())
    }
}

/// Returns `true` if `table` is of a newer part than `old`, or of the same level below 0.
fn is_above(table: &TableMeta, old: &TableMeta) -> bool {
    let place = |table: &TableMeta| (table.level, u64::MAX - table.run);
    place(table) < place(old) || table.level == old.level && table.level > 0
}

#[test]
fn no_choice_uncovers_an_older_version() {
    let plain = prop::collection::vec(any_event(0), 0..120);
    // Level 0 must also reach its limit of runs.
    let long = prop::collection::vec(any_event(1), 0..300);
    let events = prop_oneof![plain, long];
    let snapshot = prop::option::of(0..60_u64);
    let cases = (events, snapshot, any::<bool>(), 0..4_u64);
    check(1000, &cases, |(events, snapshot, recompresses, lazy_bases)| {
        let mut store = Store::new(snapshot, recompresses, lazy_bases);
        for event in events {
            match event {
                Event::Flush { writes, split } => store.flush(&writes, split),
                Event::Pick => drop(store.start(|picker| picker.pick())),
                Event::Idle => drop(store.start(|picker| picker.pick_idle())),
                Event::LongIdle => drop(store.start(|picker| picker.pick_long_idle())),
                Event::Crowded(times) => {
                    let rewrite_max = rewrite_max(times, 1);
                    store
                        .start(|picker| picker.pick_crowded(rewrite_max).map(|(_, choice)| choice));
                }
                Event::Range(from, to) => {
                    let range = KeyBounds::new(&([from]..=[to]));
                    store.start(|picker| match picker.pick_range(&range) {
                        RangeChoice::Compact(choice) => Some(choice),
                        _ => None,
                    });
                }
                Event::Lift => store.quarantined.clear(),
                Event::Style(style) => store.options.style = style,
                Event::Finish(_) | Event::GiveUp(_) | Event::Quarantine(..)
                    if store.running.is_empty() => {}
                Event::Finish(index) => store.finish(index.index(store.running.len())),
                Event::GiveUp(index) => drop(store.abort(index)),
                Event::Quarantine(index, input) => {
                    let failed = store.abort(index);
                    let inputs: Vec<_> = failed.tables().collect();
                    if !failed.is_trivial_move {
                        store.quarantined.insert(*input.get(&inputs));
                    }
                }
            }
            store.check()?;
        }
        settle(&mut store)
    });
}

/// Runs the chosen compactions until there is none.
fn rest(store: &mut Store) -> Result<(), TestCaseError> {
    let mut steps = 0;
    let crowded = |picker: &Picker<'_>| picker.pick_crowded(REWRITE_MAX).map(|(_, choice)| choice);
    let idle = |picker: &Picker<'_>| picker.pick_idle().or_else(|| picker.pick_long_idle());
    while store.start(|picker| picker.pick().or_else(|| crowded(picker)).or_else(|| idle(picker))) {
        store.finish(0);
        store.check()?;
        steps += 1;
        prop_assert!(steps < 500, "no rest");
    }
    Ok(())
}

/// Runs compactions until the store is idle. They must end, even with quarantined tables, which
/// bounds the runs of level 0. Without quarantined tables, every level is then within its target,
/// and a compacted range is one sorted run with the compression of the last level.
fn settle(store: &mut Store) -> Result<(), TestCaseError> {
    while !store.running.is_empty() {
        store.finish(0);
    }
    rest(store)?;
    match store.options.style {
        CompactionStyle::Leveled => {}
        CompactionStyle::SizeTiered(options) => {
            store.quarantined.clear();
            rest(store)?;
            let levels = Levels::new(store.metas(), &[]);
            let deeper = (1..=LAST_LEVEL).filter(|&level| !levels.run(level).is_empty());
            let runs = (levels.level0().len() + deeper.count()) as u64;
            prop_assert!(runs <= options.runs_max, "{} runs", runs);
            store.options.style = CompactionStyle::Leveled;
            rest(store)?;
        }
        CompactionStyle::Fifo(fifo) => {
            let levels = Levels::new(store.metas(), &[]);
            let bytes: u64 = store.metas().map(|meta| meta.bytes).sum();
            let newest = levels.level0().first().map_or(3, |run| run.iter().map(|t| t.bytes).sum());
            prop_assert!(bytes <= fifo.bytes_max.max(newest), "{} bytes", bytes);
            store.options.style = CompactionStyle::Leveled;
            rest(store)?;
        }
    }
    let debt = store.levels(&[]).debt(&store.options);
    let runs = debt.level0_runs - debt.level0_runs_kept;
    prop_assert!(runs < RUNS_MAX, "{} runs", runs);
    prop_assert_eq!(debt.bytes, 0);
    store.quarantined.clear();
    rest(store)?;
    let levels = Levels::new(store.metas(), &[]);
    let targets = levels.targets(&store.options);
    prop_assert!(levels.level0().len() < RUNS_MAX);
    for level in 1..=LAST_LEVEL {
        let score = levels.score(level, &store.options, &targets);
        prop_assert!(score < 1.0, "level {} has score {}", level, score);
    }
    prop_assert_eq!(levels.debt(&store.options).bytes, 0);
    for steps in 0.. {
        prop_assert!(steps < 500, "no rest");
        let mut last = RangeChoice::Done;
        let started = store.start(|picker| {
            last = picker.pick_range(&KeyBounds::ALL);
            match &last {
                RangeChoice::Compact(choice) => Some(choice.clone()),
                _ => None,
            }
        });
        if !started {
            prop_assert_eq!(last, RangeChoice::Done);
            break;
        }
        store.finish(0);
        store.check()?;
    }
    for meta in store.metas() {
        prop_assert_eq!(meta.level, LAST_LEVEL);
        prop_assert!(!store.otherwise_compressed.contains(&meta.id), "{:?}", meta);
        let pinned = store.oldest_snapshot.is_some_and(|oldest| meta.largest_sequence > oldest);
        prop_assert!(meta.tombstones == 0 || pinned, "{:?}", meta);
    }
    Ok(())
}
