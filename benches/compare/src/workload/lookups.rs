//! Lookups one by one: hits or misses.

use sievedb_workload::random::Random;

use super::{operations::Operations, zipf::ScrambledZipf};
use crate::{
    contestant::Reader,
    failure::Result,
    keys::{Key, Keys, Value},
    settings::Settings,
};

/// Percentage of absent keys in mixed lookups.
const ABSENT_PER_CENT: u64 = 30;

/// Keys to look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Present,
    /// Present keys, by popularity.
    PresentZipf,
    Absent,
    /// Absent keys in the current state: each chunk drops the reader's old snapshot.
    AbsentNow,
    /// Present or absent keys in the current state.
    MixedNow,
}

/// Lookups of one thread.
#[derive(Debug)]
pub(crate) struct Lookups<R> {
    asked: Asked,
    reader: R,
    random: Random,
    keys: Keys,
    count: u64,
    popular: ScrambledZipf,
    slots: Vec<Slot>,
}

impl<R> Lookups<R> {
    /// Creates lookups of random keys of `settings`.
    pub(crate) fn new(asked: Asked, reader: R, random: Random, settings: &Settings) -> Self {
        let Settings { keys: count, seed, .. } = *settings;
        let popular = ScrambledZipf::new(count);
        Self { asked, reader, random, keys: Keys::new(seed), count, popular, slots: Vec::new() }
    }

    fn slot(&mut self) -> Slot {
        let present = match self.asked {
            Asked::Present | Asked::PresentZipf => true,
            Asked::Absent | Asked::AbsentNow => false,
            Asked::MixedNow => self.random.below(100) >= ABSENT_PER_CENT,
        };
        let index = match self.asked {
            Asked::PresentZipf => self.popular.next(&mut self.random),
            _ => self.random.below(self.count),
        };
        let key = if present { self.keys.present(index) } else { self.keys.absent(index) };
        Slot { key, present, found: false, value: [0; _] }
    }
}

impl<R: Reader> Operations for Lookups<R> {
    const CHUNK: usize = 256;

    fn prepare(&mut self) -> Result<usize> {
        if matches!(self.asked, Asked::AbsentNow | Asked::MixedNow) {
            self.reader.let_go();
        }
        self.slots.clear();
        for _ in 0..Self::CHUNK {
            let slot = self.slot();
            self.slots.push(slot);
        }
        Ok(Self::CHUNK)
    }

    fn operate(&mut self, index: usize) -> Result<()> {
        let slot = &mut self.slots[index];
        slot.found = self.reader.get(&slot.key, &mut slot.value)?;
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        self.slots.iter().try_for_each(|slot| {
            let want = slot.present.then(|| self.keys.value(&slot.key));
            check_value(&slot.key, slot.found.then_some(&slot.value), want.as_ref())
        })
    }
}

/// A key and its answer.
#[derive(Debug)]
struct Slot {
    key: Key,
    present: bool,
    found: bool,
    value: Value,
}

/// Fails unless the value `found` under `key` equals `want`.
pub(crate) fn check_value(key: &Key, found: Option<&Value>, want: Option<&Value>) -> Result<()> {
    if found == want {
        return Ok(());
    }
    let fault = match (found, want) {
        (None, _) => "was lost",
        (_, Some(_)) => "has another value",
        (_, None) => "was invented",
    };
    Err(format!("key {} {fault}", key.escape_ascii()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answer_is_an_error() {
        let (one, two) = ([1; _], [2; _]);
        let cases = [
            ("right", Some(&one), Some(&one), None),
            ("rightly absent", None, None, None),
            ("lost", None, Some(&one), Some("was lost")),
            ("wrong", Some(&two), Some(&one), Some("has another value")),
            ("invented", Some(&one), None, Some("was invented")),
        ];
        for (name, found, want, fault) in cases {
            let error = check_value(b"0123456789abcdef", found, want).err();
            let text = error.map(|error| error.to_string());
            let fault = fault.map(|fault| format!("key 0123456789abcdef {fault}"));
            assert_eq!(text, fault, "{name}");
        }
    }
}
