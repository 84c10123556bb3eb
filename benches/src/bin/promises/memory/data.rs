//! Entries that are generated from their numbers.

use std::error::Error;

use sievedb::Keyspace;
use sievedb_benches::{KEY_BYTES, key};
use sievedb_workload::{
    clock::now,
    random::{Random, mix},
};

/// A number of entries with values of one length.
#[derive(Debug, Clone)]
pub(super) struct Data {
    /// Number of entries.
    pub(super) entries: u64,
    value: Vec<u8>,
}

impl Data {
    /// Entries with values of `value_bytes` that have `bytes` in all.
    pub(super) fn of(bytes: u64, value_bytes: usize) -> Self {
        let entries = bytes / (KEY_BYTES + value_bytes) as u64;
        Self { entries, value: vec![0; value_bytes] }
    }

    /// Entry number `number`. Half of its value does not compress.
    pub(super) fn entry(&mut self, number: u64) -> ([u8; KEY_BYTES], &[u8]) {
        let half = self.value.len() / 2;
        for (part, place) in self.value[..half].chunks_mut(size_of::<u64>()).zip(0_u64..) {
            let noise = mix(number << 16 | place).to_le_bytes();
            part.copy_from_slice(&noise[..part.len()]);
        }
        (key(number), &self.value)
    }

    /// Inserts all entries one by one. The keyspaces take turns.
    pub(super) fn load(&mut self, keyspaces: &[Keyspace]) -> sievedb::Result<()> {
        for number in 0..self.entries {
            let (key, value) = self.entry(number);
            keyspace_of(keyspaces, number).insert(key, value)?;
        }
        Ok(())
    }

    /// Looks up random entries of a loaded store for `seconds`, and at least `lookups`. Fails if one is absent.
    pub(super) fn read(
        &self,
        keyspaces: &[Keyspace],
        seconds: f64,
        lookups: u64,
        random: &mut Random,
    ) -> Result<(), Box<dyn Error>> {
        let (begun, mut done) = (now(), 0);
        while done < lookups || begun.elapsed().as_secs_f64() < seconds {
            self.read_one(keyspaces, random)?;
            done += 1;
        }
        Ok(())
    }

    /// Looks up a random entry of a loaded store. Fails if it is absent.
    pub(super) fn read_one(
        &self,
        keyspaces: &[Keyspace],
        random: &mut Random,
    ) -> Result<(), Box<dyn Error>> {
        self.read_number(keyspaces, random.below(self.entries))
    }

    /// Looks up entry number `number` of a loaded store. Fails if it is absent.
    pub(super) fn read_number(
        &self,
        keyspaces: &[Keyspace],
        number: u64,
    ) -> Result<(), Box<dyn Error>> {
        match keyspace_of(keyspaces, number).get(key(number))? {
            Some(value) if value.len() == self.value.len() => Ok(()),
            _ => Err(format!("entry {number} is absent or has another value").into()),
        }
    }
}

/// The keyspace that holds entry number `number`.
fn keyspace_of(keyspaces: &[Keyspace], number: u64) -> &Keyspace {
    &keyspaces[(number % keyspaces.len() as u64) as usize]
}
