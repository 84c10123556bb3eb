//! Short scans: a seek to a present key, and some entries from there.

use sievedb_workload::random::Random;

use super::{digest::Digest, model::Model, operations::Operations};
use crate::{contestant::Reader, failure::Result, keys::Key, settings::Settings};

/// Short scans of one thread.
#[derive(Debug)]
pub(crate) struct ShortScans<'a, R> {
    reader: R,
    model: &'a Model,
    random: Random,
    keys: u64,
    entries: usize,
    /// Start key and digest of each scan.
    scans: Vec<(Key, Digest)>,
}

impl<'a, R> ShortScans<'a, R> {
    /// Creates scans from random keys of `model`.
    pub(crate) fn new(reader: R, model: &'a Model, random: Random, settings: &Settings) -> Self {
        let Settings { keys, short_scan: entries, .. } = *settings;
        Self { reader, model, random, keys, entries, scans: Vec::new() }
    }
}

impl<R: Reader> Operations for ShortScans<'_, R> {
    const CHUNK: usize = 32;

    fn prepare(&mut self) -> Result<usize> {
        self.scans.clear();
        for _ in 0..Self::CHUNK {
            let key = self.model.key(self.random.below(self.keys));
            self.scans.push((key, Digest::default()));
        }
        Ok(Self::CHUNK)
    }

    fn operate(&mut self, index: usize) -> Result<()> {
        let (key, digest) = &mut self.scans[index];
        self.reader.scan_from(key, self.entries, |key, value| digest.add(key, value))
    }

    fn check(&mut self) -> Result<()> {
        self.scans.iter().try_for_each(|(key, digest)| {
            let keys = self.model.keys_from(key).take(self.entries);
            digest.check(Digest::of(keys.map(|key| (*key, self.model.loaded(key)))))
        })
    }
}
