//! The picker as stories: `testdata/picker` has the commands above `----` and the answers below it.
//!
//! | command                          | input                      | answer                         |
//! |----------------------------------|----------------------------|--------------------------------|
//! | `levels`                         | a line per run, see below  | bytes, target, score per level |
//! | `pick [start]`                   |                            | the choice, or `none`          |
//! | `idle [start]`                   |                            | the same in an idle store      |
//! | `long-idle [start]`              |                            | the same, if idle for long     |
//! | `crowded n [start]`              |                            | with n times the share of tables |
//! | `range from..to [start]`         |                            | the choice, `wait` or `done`   |
//! | `flush table`                    |                            | as `levels`; a run is added    |
//! | `finish n`                       |                            | the n-th running one is gone   |
//! | `skipped id=n …`                 |                            | what scans stepped over        |
//! | `covered id=bytes …`             |                            | what range tombstones delete   |
//! | `otherwise-compressed id …`      |                            | all of them so far             |
//! | `blob-garbage id …`              |                            | all of them                    |
//! | `quarantine id …`                |                            | as `levels`                    |
//! | `clock n [snapshots [number]]`   |                            | what the next due table awaits |
//! | `below level from..to key key …` |                            | which keys may be deeper       |
//!
//! `levels` also takes `runs=`, `merge=`, `base=`, `lazy=`, `fan-out=`, `clock=`, `snapshot=`,
//! `tiered=` for the runs of a merge, and `fifo=` and `age=`; `start` leaves the choice running.
//! A run is `L1 4:a-e 5:m-z,10M,del=60%,seq=3-9,exp=100-200x40`: ids, bounds, and then what
//! differs from 1M bytes, 100 entries, no tombstones and the sequence numbers 1 to 100; 40 entries
//! expire evenly from 100 to 200 ms, `at=9` for the time when it was written. Runs of level 0:
//! newest first.

use std::{collections::BTreeSet, fmt::Write as _, ops::Bound, time::Duration};

use sievedb_format::{Decoder, Encode, SequenceNumber, TableBounds};
use sievedb_sstable::TableExpiry;

use crate::{
    compaction::{
        choice::Compaction,
        crowded::rewrite_max,
        deeper_levels::DeeperLevels,
        expired::ExpiryClock,
        levels::{LevelOptions, Levels},
        picker::{Picker, RangeChoice},
        tombstones::{Covered, Overwritten, OverwrittenEntries, Skipped},
    },
    compaction_style::{CompactionStyle, Fifo, SizeTiered},
    iter::bounds::KeyBounds,
    resolve::ReadPoint,
    table::TableMeta,
    tests::scenario,
};

/// A table with ordinary properties.
pub(super) fn table(id: u64, level: u8, run: u64, smallest: &[u8], largest: &[u8]) -> TableMeta {
    TableMeta {
        id,
        level,
        run,
        bytes: 1 << 20,
        checksum: 0,
        salt: 0,
        filter: None,
        prefix_filter: None,
        range_filter: None,
        global_sequence: None,
        bounds: TableBounds::inclusive(smallest, largest),
        entries: 100,
        tombstones: 0,
        range_tombstones: 0,
        smallest_sequence: 1,
        largest_sequence: 100,
        expiry: None,
        blob_files: Vec::new(),
        blob_depth: 0,
        written_ms: None,
    }
}

/// Reads `10M`, `4K` or `7`.
fn number(text: &str) -> u64 {
    let (digits, unit) = match text.split_at(text.len() - 1) {
        (digits, "K") => (digits, 1 << 10),
        (digits, "M") => (digits, 1 << 20),
        (digits, "G") => (digits, 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().unwrap_or_else(|_| panic!("{text} is no number")) * unit
}

fn parse_table(word: &str, level: u8, run: u64) -> TableMeta {
    let mut parts = word.split(',');
    let (id, bounds) = parts.next().and_then(|name| name.split_once(':')).expect("id:from-to");
    let (smallest, largest) = bounds.split_once('-').expect("from-to");
    let mut table =
        table(id.parse().expect("an id"), level, run, smallest.as_bytes(), largest.as_bytes());
    for part in parts {
        if let Some(percent) = part.strip_prefix("del=") {
            table.tombstones = number(percent.trim_end_matches('%'));
        } else if let Some(text) = part.strip_prefix("exp=") {
            table.expiry = Some(expiry(text).into());
        } else if let Some((from, to)) = part.strip_prefix("seq=").and_then(|s| s.split_once('-')) {
            (table.smallest_sequence, table.largest_sequence) = (number(from), number(to));
        } else if let Some(text) = part.strip_prefix("at=") {
            table.written_ms = Some(number(text));
        } else {
            table.bytes = number(part);
        }
    }
    table
}

/// Reads `100-200x40`.
fn expiry(text: &str) -> TableExpiry {
    let (times, entries) = text.split_once('x').expect("times and entries");
    let (from, to) = times.split_once('-').expect("from-to");
    let (entries, from, to) = (number(entries), number(from), number(to));
    let mut encoded = Vec::new();
    [entries, 20 * entries, from].into_iter().for_each(|number| encoded.put_varint(number));
    (0..8).for_each(|_| encoded.put_varint((to - from) / 8));
    TableExpiry::decode("expiry", &mut Decoder::new(&encoded)).expect("well formed")
}

fn bounds(text: &str) -> KeyBounds {
    let bound = |key: &str| match key {
        "" => Bound::Unbounded,
        key => Bound::Included(key.to_owned()),
    };
    let (from, to) = text.split_once("..").expect("from..to");
    KeyBounds::new(&(bound(from), bound(to)))
}

/// State on which the commands act.
#[derive(Default)]
struct Story {
    tables: Vec<TableMeta>,
    options: LevelOptions,
    oldest_snapshot: Option<SequenceNumber>,
    clock: ExpiryClock,
    history_ms: Option<u64>,
    running: Vec<Compaction>,
    skipped: Skipped,
    covered: Covered,
    overwritten: Overwritten,
    otherwise_compressed: BTreeSet<u64>,
    with_blob_garbage: BTreeSet<u64>,
    quarantined: BTreeSet<u64>,
}

impl Story {
    /// Runs a command and returns its answer.
    fn run(&mut self, command: &str, input: &[&str]) -> String {
        let mut words = command.split_whitespace();
        match words.next() {
            Some("levels") => {
                *self = Self::default();
                for word in words {
                    let (name, value) = word.split_once('=').expect("name=value");
                    let value = number(value);
                    match name {
                        "runs" => self.options.level0_runs = value as usize,
                        "base" => self.options.base_level_bytes_max = value,
                        "lazy" => self.options.lazy_bases = value,
                        "merge" => self.options.merged_runs_max = value as usize,
                        "fan-out" => self.options.fan_out = value,
                        "tiered" => {
                            self.options.base_level_bytes_max = u64::MAX;
                            self.options.style = SizeTiered::new().merge_runs_min(value).into();
                        }
                        "fifo" => self.options.style = Fifo::new(value).into(),
                        "age" => {
                            if let CompactionStyle::Fifo(fifo) = self.options.style {
                                let age = Duration::from_millis(value);
                                self.options.style = fifo.age_max(age).into();
                            }
                        }
                        "snapshot" => self.oldest_snapshot = Some(value),
                        "history" => self.history_ms = Some(value),
                        "clock" => self.set_clock(value, value, None),
                        _ => panic!("{name} is no option"),
                    }
                }
                for (line, index) in input.iter().zip(0..) {
                    let (level, tables) = line.split_once(' ').expect("a level and tables");
                    let level = level.trim_start_matches('L').parse().expect("a level");
                    let run = if level == 0 { 100 - index } else { 0 };
                    let tables = tables.split_whitespace();
                    self.tables.extend(tables.map(|table| parse_table(table, level, run)));
                }
                self.describe()
            }
            Some("pick") => {
                let choice = self.picker(|picker| picker.pick());
                self.answer(choice, words.next() == Some("start"), "none")
            }
            Some("idle") => {
                let choice = self.picker(|picker| picker.pick_idle());
                self.answer(choice, words.next() == Some("start"), "none")
            }
            Some("long-idle") => {
                let choice = self.picker(|picker| picker.pick_long_idle());
                self.answer(choice, words.next() == Some("start"), "none")
            }
            Some("crowded") => {
                let times = words.next().map(number).expect("how many times");
                let choice = self.picker(|picker| picker.pick_crowded(rewrite_max(times, 1)));
                let price = choice.as_ref().map(|(price, _)| format!(", {price:?}"));
                let start = words.next() == Some("start");
                let answer = self.answer(choice.map(|(_, choice)| choice), start, "none");
                format!("{}{}\n", answer.trim_end(), price.unwrap_or_default())
            }
            Some("range") => {
                let range = bounds(words.next().expect("a range"));
                let start = words.next() == Some("start");
                match self.picker(|picker| picker.pick_range(&range)) {
                    RangeChoice::Compact(compaction) => self.answer(Some(compaction), start, ""),
                    RangeChoice::Wait => "wait\n".to_owned(),
                    RangeChoice::Done => "done\n".to_owned(),
                    RangeChoice::Quarantined(id) => format!("{id} is quarantined\n"),
                }
            }
            Some("flush") => {
                let run = 101 + self.tables.len() as u64;
                self.tables.extend(words.map(|word| parse_table(word, 0, run)));
                self.describe()
            }
            Some("skipped") => {
                let one = |word: &str| {
                    let (id, skipped) = word.split_once('=').expect("id=n");
                    (id.parse().expect("an id"), number(skipped))
                };
                self.skipped.extend(words.map(one));
                format!("{:?}\n", self.skipped)
            }
            Some("overwritten") => {
                let one = |word: &str| {
                    let (id, entries) = word.split_once('=').expect("id=entries");
                    let (entries, has_operands) = match entries.strip_suffix('m') {
                        Some(entries) => (number(entries), true),
                        None => (number(entries), false),
                    };
                    let overwritten = OverwrittenEntries { entries, has_operands };
                    (id.parse().expect("an id"), overwritten)
                };
                self.overwritten.extend(words.map(one));
                format!("{:?}\n", self.overwritten.keys().collect::<Vec<_>>())
            }
            Some("covered") => {
                let one = |word: &str| {
                    let (id, bytes) = word.split_once('=').expect("id=bytes");
                    (id.parse().expect("an id"), number(bytes))
                };
                self.covered.extend(words.map(one));
                format!("{:?}\n", self.covered)
            }
            Some("otherwise-compressed") => {
                self.otherwise_compressed.extend(words.map(number));
                format!("{:?}\n", self.otherwise_compressed)
            }
            Some("blob-garbage") => {
                self.with_blob_garbage = words.map(number).collect();
                format!("{:?}\n", self.with_blob_garbage)
            }
            Some("quarantine") => {
                self.quarantined.extend(words.map(number));
                self.describe()
            }
            Some("finish") => {
                let index: usize = words.next().and_then(|n| n.parse().ok()).expect("a number");
                self.running.remove(index);
                format!("{} running\n", self.running.len())
            }
            Some("clock") => {
                let now_ms = words.next().map(number).expect("a time");
                let for_all_ms = words.next().map_or(now_ms, number);
                self.set_clock(for_all_ms, now_ms, words.next().map(number));
                let next = self.picker(|picker| picker.awaited_clock_ms());
                let awaited = self.picker(|picker| picker.awaited_snapshot());
                let awaited = awaited.map(|point| (point.sequence, point.clock_ms()));
                format!("next {next:?}, snapshot {awaited:?}\n")
            }
            Some("below") => {
                let level = words.next().and_then(|n| n.parse().ok()).expect("a level");
                let (from, to) =
                    words.next().and_then(|range| range.split_once("..")).expect("from..to");
                let levels = self.levels();
                let bounds = TableBounds::inclusive(from.as_bytes(), to.as_bytes());
                let mut deeper = DeeperLevels::new(&levels, level, u64::MAX, &bounds);
                let held: Vec<_> = words.filter(|key| deeper.may_hold(key.as_bytes())).collect();
                format!("{held:?}\n")
            }
            _ => panic!("{command} is no command"),
        }
    }

    /// `beside_history`: number of a snapshot that is newer than the start of the history, and
    /// whose clock is older.
    fn set_clock(&mut self, for_all_ms: u64, now_ms: u64, beside_history: Option<u64>) {
        let oldest = self.oldest_snapshot.filter(|_| self.history_ms.is_none());
        let snapshot = beside_history.or(oldest).map(|it| ReadPoint::at_time(it, for_all_ms));
        self.clock = ExpiryClock { for_all_ms, now_ms, snapshot };
    }

    fn levels(&self) -> Levels<'_> {
        let levels = Levels::new(&self.tables, &self.running);
        levels.quarantine(self.quarantined.iter().copied())
    }

    fn picker<T>(&self, ask: impl FnOnce(Picker<'_>) -> T) -> T {
        let levels = self.levels();
        levels.check_invariants();
        let Self { options, oldest_snapshot, skipped, otherwise_compressed, .. } = self;
        ask(Picker {
            levels: &levels,
            options,
            oldest_snapshot: *oldest_snapshot,
            skipped,
            clock: self.clock,
            history_ms: self.history_ms,
            covered: &self.covered,
            overwritten: &self.overwritten,
            otherwise_compressed,
            rewrites_below: 0,
            has_filter: false,
            with_blob_garbage: &self.with_blob_garbage,
        })
    }

    fn answer(&mut self, choice: Option<Compaction>, start: bool, none: &str) -> String {
        let Some(compaction) = choice else { return format!("{none}\n") };
        let answer = format!("{:?}: {compaction}\n", compaction.reason);
        if start {
            self.running.push(compaction);
        }
        answer
    }

    fn describe(&self) -> String {
        let levels = self.levels();
        let targets = levels.targets(&self.options);
        let debt = levels.debt(&self.options);
        let mut text = format!("base L{}, debt {} KiB\n", targets.base_level, debt.bytes >> 10);
        for level in 0..=levels.last() {
            let score = levels.score(level, &self.options, &targets);
            let bytes: u64 =
                self.tables.iter().filter(|table| table.level == level).map(|t| t.bytes).sum();
            let bytes = bytes >> 10;
            let line = match level {
                _ if bytes == 0 => continue,
                0 => format!("L0 {} runs, score {score:.2}", debt.level0_runs),
                _ if level == levels.last() => format!("L{level} {bytes} KiB"),
                _ => {
                    format!("L{level} {bytes} of {} KiB, score {score:.2}", targets.of(level) >> 10)
                }
            };
            writeln!(text, "{line}").expect("a string takes all");
        }
        text
    }
}

#[test]
fn stories() {
    scenario::check("picker", Story::run);
}
