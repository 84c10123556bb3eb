//! Lookups one by one: hits or misses.
//!
//! Most chunks of lookups lie between two looks at the clocks, for the mean; every eighth is timed
//! lookup by lookup, for the percentiles. Keys are made, and answers checked, while no clock runs.

use sievedb_workload::{clock::now, random::Random};

use super::meter::Meter;
use crate::{
    contestant::{Engine, Reader},
    failure::Result,
    keys::{Key, Keys, Value},
    settings::Settings,
};

/// Lookups between two looks at the clocks: keys and values fit the caches beside the engine's data.
const CHUNK: u64 = 256;

/// Of so many chunks one is timed lookup by lookup.
const SINGLE_SHARE: u64 = 8;

/// What is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Present,
    Absent,
    /// Absent, and seen as of now: a reader that keeps an old state begins anew with each chunk.
    AbsentNow,
}

/// Lookups of one thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookups<'a> {
    pub(crate) asked: Asked,
    pub(crate) settings: &'a Settings,
    /// How many, if there is time.
    pub(crate) lookups: u64,
}

impl Lookups<'_> {
    /// Looks keys up and checks what is found.
    pub(crate) fn run<E: Engine>(
        self,
        engine: &E,
        random: &mut Random,
        meter: &mut Meter,
    ) -> Result<()> {
        let mut reader = engine.reader()?;
        let mut slots: Vec<Slot> = Vec::new();
        let start = now();
        let chunks = self.lookups.div_ceil(CHUNK).max(SINGLE_SHARE);
        for chunk in 0..chunks {
            slots.clear();
            slots.extend((0..CHUNK).map(|_| self.slot(random)));
            if chunk % SINGLE_SHARE == 0 {
                for slot in &mut slots {
                    meter.single(|| slot.ask(&mut reader))?;
                }
            } else {
                meter.together(slots.len(), || {
                    if self.asked == Asked::AbsentNow {
                        reader.refresh()?;
                    }
                    slots.iter_mut().try_for_each(|slot| slot.ask(&mut reader))
                })?;
            }
            slots.iter().try_for_each(|slot| self.check(slot))?;
            if chunk >= SINGLE_SHARE && start.elapsed().as_secs_f64() > self.settings.seconds_max {
                break;
            }
        }
        Ok(())
    }

    fn slot(&self, random: &mut Random) -> Slot {
        let keys = Keys::new(self.settings.seed);
        let index = random.below(self.settings.keys);
        let key = match self.asked {
            Asked::Present => keys.present(index),
            Asked::Absent | Asked::AbsentNow => keys.absent(index),
        };
        Slot { key, found: false, value: [0; _] }
    }

    fn check(&self, slot: &Slot) -> Result<()> {
        let present = self.asked == Asked::Present;
        let right = slot.found == present
            && (!present || slot.value == Keys::new(self.settings.seed).value(&slot.key));
        if right {
            return Ok(());
        }
        let fault = match (present, slot.found) {
            (true, false) => "was lost",
            (true, true) => "has another value",
            (false, _) => "was invented",
        };
        Err(format!("key {} {fault}", slot.key.escape_ascii()).into())
    }
}

/// A key and its answer.
#[derive(Debug)]
struct Slot {
    key: Key,
    found: bool,
    value: Value,
}

impl Slot {
    fn ask(&mut self, reader: &mut impl Reader) -> Result<()> {
        self.found = reader.get(&self.key, &mut self.value)?;
        Ok(())
    }
}
