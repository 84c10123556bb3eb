//! Plans as stories: `testdata/filter_plan` has the commands above `----` and the answers below it.
//!
//! | command                     | input                 | answer                                      |
//! |-----------------------------|-----------------------|---------------------------------------------|
//! | `store [max=BYTES]`         | keyspaces, runs; below | keys                                       |
//! | `bound max=BYTES`           |                       | another bound for the store                 |
//! | `policy K KIND BITS`        |                       | another policy for keyspace K               |
//! | `use K RUN P/L ...`         |                       | probes and lookups of the tables of a run   |
//! | `plan [apply]`              |                       | what should be resident; `apply`: it is now |
//! | `rebuild`                   |                       | which filters, the first ten                |
//! | `choose K LEVEL/RUN KEYS`   |                       | the filter of new tables                    |
//!
//! A keyspace is `keyspace auto 10 [max=BYTES] [lookups=L]`; its runs follow, the newest first, as
//! `run 0/7 TABLES`. `3x600K:ribbon10` are three tables of 600,000 keys with ribbons of ten
//! columns; the other filters are `bloom10`, `fuse9` and `none`.

use std::{collections::BTreeMap, fmt::Write as _};

use sievedb_filter::FilterKind;

use crate::{
    filter_policy::{FilterPolicy, FilterPolicyKind},
    filters::plan::{
        KeyspaceShape, Residence, RunShape, StoreShape, StoredFilter, TableShape, TableUse, choose,
        curve::Curve, plan, rebuilds,
    },
    table::TablePlace,
    tests::scenario,
};

/// Reads `10M`, `4K` or `7`, in thousands.
fn number(text: &str) -> u64 {
    let (digits, unit) = match text.split_at(text.len() - 1) {
        (digits, "K") => (digits, 1e3),
        (digits, "M") => (digits, 1e6),
        _ => (text, 1.0),
    };
    let digits: f64 = digits.parse().unwrap_or_else(|_| panic!("{text} is no number"));
    (digits * unit) as u64
}

fn kind(text: &str) -> FilterPolicyKind {
    match text {
        "auto" => FilterPolicyKind::Auto,
        "bloom" => FilterPolicyKind::Bloom,
        "ribbon" => FilterPolicyKind::Ribbon,
        "fuse" => FilterPolicyKind::Fuse,
        "none" => FilterPolicyKind::None,
        _ => panic!("{text} is no policy"),
    }
}

fn policy(words: &[&str]) -> FilterPolicy {
    FilterPolicy::new(kind(words[0])).bits_per_key(words[1].parse().expect("bits"))
}

/// The value of `name=value` among `words`.
fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn place(text: &str) -> TablePlace {
    let (level, run) = text.split_once('/').expect("level/run");
    TablePlace { level: level.parse().expect("a level"), run: run.parse().expect("a run") }
}

pub(super) fn stored(kind: FilterKind, keys: u64, bits: f64) -> StoredFilter {
    let whole_bytes = Curve::of_new(kind, keys, 40.0).bytes(bits).ceil() as u64;
    StoredFilter { kind, columns: bits, whole_bytes }
}

fn stored_of(text: &str, keys: u64) -> Option<StoredFilter> {
    let kinds = [
        ("ribbon", FilterKind::Ribbon),
        ("bloom", FilterKind::BlockedBloom),
        ("fuse", FilterKind::BinaryFuse),
    ];
    let (kind, bits) =
        kinds.into_iter().find_map(|(name, kind)| Some((kind, text.strip_prefix(name)?)))?;
    Some(stored(kind, keys, bits.parse().expect("bits")))
}

#[derive(Default)]
struct Story {
    store: StoreShape,
    tables: u64,
}

impl Story {
    /// Runs a command and returns its answer.
    fn run(&mut self, command: &str, input: &[&str]) -> String {
        let words: Vec<_> = command.split_whitespace().collect();
        let keyspace = |word: usize| words[word].parse::<usize>().expect("an index");
        match words[0] {
            "store" => {
                *self = Self::default();
                self.store.filter_bytes_max = option(&words, "max").map(number);
                for line in input {
                    self.add(line);
                }
                self.store.keyspaces.iter().map(|k| format!("{} keys\n", k.keys())).collect()
            }
            "bound" => {
                self.store.filter_bytes_max = option(&words, "max").map(number);
                String::new()
            }
            "policy" => {
                self.store.keyspaces[keyspace(1)].policy = policy(&words[2..]);
                String::new()
            }
            "use" => {
                let run = &mut self.store.keyspaces[keyspace(1)].runs[keyspace(2)];
                for (table, word) in run.tables.iter_mut().zip(words[3..].iter().cycle()) {
                    let (probes, lookups) = word.split_once('/').expect("probes/lookups");
                    let [probes, lookups] = [probes, lookups].map(|text| number(text) as f64);
                    table.usage = TableUse { probes, lookups };
                }
                String::new()
            }
            "plan" => self.plan(words.get(1) == Some(&"apply")),
            "rebuild" => self.rebuild(),
            "choose" => {
                let choice =
                    choose(self.store.clone(), keyspace(1), place(words[2]), number(words[3]));
                format!("{:?} of {} bits\n", choice.kind, choice.bits_per_key)
            }
            _ => panic!("{command} is no command"),
        }
    }

    fn add(&mut self, line: &str) {
        let words: Vec<_> = line.split_whitespace().collect();
        if words[0] == "keyspace" {
            self.store.keyspaces.push(KeyspaceShape {
                policy: policy(&words[1..]),
                filter_bytes_max: option(&words, "max").map(number),
                lookups: option(&words, "lookups").map_or(0.0, |text| number(text) as f64),
                runs: Vec::new(),
            });
            return;
        }
        let mut run = RunShape { place: place(words[1]), tables: Vec::new() };
        for word in &words[2..] {
            let (count, table) = word.split_once('x').expect("count x table");
            let (keys, filter) = table.split_once(':').expect("keys:filter");
            let keys = number(keys);
            for _ in 0..number(count) {
                self.tables += 1;
                let stored = stored_of(filter, keys);
                let table = TableShape { id: self.tables, keys, stored, ..TableShape::default() };
                run.tables.push(table);
            }
        }
        self.store.keyspaces.last_mut().expect("a keyspace").runs.push(run);
    }

    fn plan(&mut self, is_applied: bool) -> String {
        let plan = plan(&self.store);
        let mut text = String::new();
        let mut changed = 0;
        for (keyspace, target) in self.store.keyspaces.iter_mut().zip(&plan.keyspaces) {
            for (run, target) in keyspace.runs.iter_mut().zip(&target.runs) {
                let mut counts: BTreeMap<String, u64> = BTreeMap::new();
                for (table, target) in run.tables.iter_mut().zip(&target.tables) {
                    assert_eq!(table.id, target.id);
                    *counts.entry(name(target.residence)).or_default() += 1;
                    changed += u64::from(table.resident != target.residence);
                    if is_applied {
                        table.resident = target.residence;
                    }
                }
                let TablePlace { level, run } = run.place;
                let counts: Vec<_> =
                    counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
                let rate = target.false_positives;
                writeln!(text, "{level}/{run}: {}; {rate:.6}", counts.join(", ")).expect("text");
            }
            writeln!(text, "keyspace: {:.6}", target.false_positives()).expect("text");
        }
        text + &format!("{} bytes, {changed} changed\n", plan.bytes)
    }

    fn rebuild(&self) -> String {
        let found = rebuilds(&self.store, &plan(&self.store));
        let all = found.iter().fold(0.0, |sum, rebuild| sum + rebuild.gain);
        let lines = found.iter().take(10).map(|rebuild| {
            let choice = rebuild.choice;
            let (kind, bits) = (choice.kind, choice.bits_per_key);
            let (keyspace, table, gain) = (rebuild.keyspace, rebuild.table_id, rebuild.gain);
            format!("keyspace {keyspace}, table {table}: {kind:?} of {bits} bits gains {gain:.6}\n")
        });
        let lines: String = lines.collect();
        lines + &format!("{} tables, {all:.6}\n", found.len())
    }
}

fn name(residence: Residence) -> String {
    match residence {
        Residence::Nothing => "without".to_owned(),
        Residence::Columns(columns) => format!("with {columns:.3} columns"),
        Residence::Whole => "whole".to_owned(),
    }
}

#[test]
fn stories() {
    scenario::check("filter_plan", Story::run);
}
