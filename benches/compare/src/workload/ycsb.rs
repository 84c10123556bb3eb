//! The core workloads of YCSB on records of one field of 100 bytes.
//!
//! Source: Cooper, Silberstein, Tam, Ramakrishnan and Sears, "Benchmarking Cloud Serving Systems
//! with YCSB", SoCC 2010, and the files `workloada` to `workloadf` that it publishes.

use std::{collections::BTreeSet, slice};

use sievedb_workload::random::Random;

use super::{
    digest::Digest,
    lookups::check_value,
    model::Model,
    operations::Operations,
    zipf::{ScrambledZipf, Zipf},
};
use crate::{
    contestant::{Engine, Reader},
    failure::Result,
    keys::{Entry, Key, Value},
};

/// Maximum length of a scan in entries; lengths are uniform from 1 on.
const SCAN_ENTRIES_MAX: u64 = 100;

/// A workload: percentages of operations other than reads, and popularity of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) updates: u64,
    pub(crate) inserts: u64,
    pub(crate) scans: u64,
    pub(crate) read_modify_writes: u64,
    /// `true` if the latest records are the most popular.
    pub(crate) latest: bool,
}

impl Mix {
    const READS: Self =
        Self { updates: 0, inserts: 0, scans: 0, read_modify_writes: 0, latest: false };
    pub(crate) const A: Self = Self { updates: 50, ..Self::READS };
    pub(crate) const B: Self = Self { updates: 5, ..Self::READS };
    pub(crate) const C: Self = Self::READS;
    pub(crate) const D: Self = Self { inserts: 5, latest: true, ..Self::READS };
    pub(crate) const E: Self = Self { inserts: 5, scans: 95, ..Self::READS };
    pub(crate) const F: Self = Self { read_modify_writes: 50, ..Self::READS };

    fn choose(self, random: &mut Random) -> Kind {
        let mut draw = random.below(100);
        let shares = [
            (self.updates, Kind::Update),
            (self.inserts, Kind::Insert),
            (self.scans, Kind::Scan),
            (self.read_modify_writes, Kind::ReadModifyWrite),
        ];
        for (share, kind) in shares {
            if draw < share {
                return kind;
            }
            draw -= share;
        }
        Kind::Read
    }
}

/// Kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

/// Operations of one thread.
#[derive(Debug)]
pub(crate) struct Ycsb<'a, E: Engine> {
    mix: Mix,
    engine: &'a E,
    reader: E::Reader<'a>,
    model: &'a mut Model,
    random: Random,
    popular: ScrambledZipf,
    /// Popularity of records by age, if the latest are the most popular.
    ages: Option<Zipf>,
    /// Inserted keys, in order.
    inserted: BTreeSet<Key>,
    /// Number of records.
    records: u64,
    steps: Vec<Step>,
}

/// An operation and its answer.
#[derive(Debug)]
struct Step {
    kind: Kind,
    key: Key,
    /// Value to write.
    written: Value,
    /// Expected value of a read.
    want: Value,
    found: bool,
    value: Value,
    scan_entries: usize,
    scan_want: Digest,
    scan: Digest,
}

impl<'a, E: Engine> Ycsb<'a, E> {
    /// Creates operations on a store of `records` records.
    pub(crate) fn new(
        mix: Mix,
        engine: &'a E,
        model: &'a mut Model,
        random: Random,
        records: u64,
    ) -> Result<Self> {
        Ok(Self {
            mix,
            engine,
            reader: engine.reader()?,
            model,
            random,
            popular: ScrambledZipf::new(records),
            ages: mix.latest.then(|| Zipf::new(records)),
            inserted: BTreeSet::new(),
            records,
            steps: Vec::new(),
        })
    }

    /// Returns the number of records.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Returns the next operation. Earlier ones count as done.
    fn step(&mut self) -> Step {
        let kind = self.mix.choose(&mut self.random);
        let index = match (kind, &self.ages) {
            (Kind::Insert, _) => self.records,
            (_, Some(ages)) => self.records - 1 - ages.next(&mut self.random),
            (_, None) => self.popular.next(&mut self.random),
        };
        let (key, want) = (self.model.key(index), self.model.value(index));
        let mut written = want;
        let (mut scan_entries, mut scan_want) = (0, Digest::default());
        match kind {
            Kind::Read => {}
            Kind::Update | Kind::ReadModifyWrite => (_, written) = self.model.change(index),
            Kind::Insert => self.insert(key),
            Kind::Scan => {
                scan_entries = 1 + self.random.below(SCAN_ENTRIES_MAX) as usize;
                scan_want = self.expect(&key, scan_entries);
            }
        }
        let (found, value, scan) = (false, [0; _], Digest::default());
        Step { kind, key, written, want, found, value, scan_entries, scan_want, scan }
    }

    fn insert(&mut self, key: Key) {
        self.records += 1;
        self.inserted.insert(key);
        if let Some(ages) = &mut self.ages {
            ages.grow();
        }
    }

    /// Returns the expected digest of a scan from `key` on.
    fn expect(&self, key: &Key, entries: usize) -> Digest {
        let mut loaded = self.model.keys_from(key).peekable();
        let mut inserted = self.inserted.range::<Key, _>(key..).peekable();
        let keys = std::iter::from_fn(|| match (loaded.peek(), inserted.peek()) {
            (Some(one), Some(two)) if two < one => inserted.next(),
            (None, _) => inserted.next(),
            _ => loaded.next(),
        });
        Digest::of(keys.take(entries).map(|key| (*key, self.model.loaded(key))))
    }
}

impl<E: Engine> Operations for Ycsb<'_, E> {
    const CHUNK: usize = 128;

    fn prepare(&mut self) -> Result<usize> {
        self.steps.clear();
        for _ in 0..Self::CHUNK {
            let step = self.step();
            self.steps.push(step);
        }
        Ok(Self::CHUNK)
    }

    fn operate(&mut self, index: usize) -> Result<()> {
        let step = &mut self.steps[index];
        match step.kind {
            Kind::Read => step.read(&mut self.reader),
            Kind::Update | Kind::Insert => step.write(self.engine, &mut self.reader),
            Kind::ReadModifyWrite => {
                step.read(&mut self.reader)?;
                step.write(self.engine, &mut self.reader)
            }
            Kind::Scan => {
                let digest = &mut step.scan;
                let add = |key: &[u8], value: &[u8]| digest.add(key, value);
                self.reader.scan_from(&step.key, step.scan_entries, add)
            }
        }
    }

    fn check(&mut self) -> Result<()> {
        self.steps.iter().try_for_each(|step| match step.kind {
            Kind::Read | Kind::ReadModifyWrite => {
                check_value(&step.key, step.found.then_some(&step.value), Some(&step.want))
            }
            Kind::Update | Kind::Insert => Ok(()),
            Kind::Scan => step.scan.check(step.scan_want),
        })
    }
}

impl Step {
    fn read(&mut self, reader: &mut impl Reader) -> Result<()> {
        self.found = reader.get(&self.key, &mut self.value)?;
        Ok(())
    }

    fn write(&self, engine: &impl Engine, reader: &mut impl Reader) -> Result<()> {
        let entry: Entry = (self.key, self.written);
        reader.let_go();
        engine.write(slice::from_ref(&entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_follow_the_published_mix() {
        let cases = [
            ("A", Mix::A, [50, 50, 0, 0, 0]),
            ("B", Mix::B, [95, 5, 0, 0, 0]),
            ("C", Mix::C, [100, 0, 0, 0, 0]),
            ("D", Mix::D, [95, 0, 5, 0, 0]),
            ("E", Mix::E, [0, 0, 5, 95, 0]),
            ("F", Mix::F, [50, 0, 0, 0, 50]),
        ];
        let kinds = [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];
        for (name, mix, want) in cases {
            let mut random = Random::new(9);
            let chosen: Vec<Kind> = (0..10_000).map(|_| mix.choose(&mut random)).collect();
            for (kind, want) in kinds.into_iter().zip(want) {
                let count = chosen.iter().filter(|&&one| one == kind).count();
                // Five standard deviations of a binomial count are 250 at most.
                assert!(count.abs_diff(want * 100) < 250, "{name}: {count} of {kind:?}");
                assert!(want > 0 || count == 0, "{name}: {count} of {kind:?}");
            }
        }
    }
}
