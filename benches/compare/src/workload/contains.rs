//! Batched presence checks.

use sievedb_workload::{clock::now, random::Random};

use super::meter::Meter;
use crate::{
    contestant::{Engine, Reader as _},
    failure::Result,
    keys::{Key, Keys},
    page_cache::PageCache,
    settings::Settings,
};

/// Batches of one thread. The keys of a batch are in random order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contains<'a> {
    /// Share of present keys, from 0 to 1.
    pub(crate) present_share: f64,
    pub(crate) settings: &'a Settings,
    /// Maximum number of keys in all batches.
    pub(crate) keys: u64,
}

impl Contains<'_> {
    /// Checks keys in batches, and verifies the answers.
    pub(crate) fn run<E: Engine>(
        self,
        engine: &E,
        random: &mut Random,
        page_cache: Option<&PageCache>,
        meter: &mut Meter,
    ) -> Result<()> {
        let batch = self.settings.contains_batch;
        let mut reader = engine.reader()?;
        let mut answers = Vec::with_capacity(batch);
        let start = now();
        for _ in 0..self.keys.div_ceil(batch as u64) {
            let (keys, present): (Vec<Key>, Vec<bool>) =
                (0..batch).map(|_| self.key(random)).unzip();
            meter.batch(batch, || reader.contains_many(&keys, &mut answers))?;
            if answers != present {
                return Err(wrong(&keys, &present, &answers).into());
            }
            if let Some(page_cache) = page_cache {
                meter.apart(|| page_cache.empty())?;
            }
            if start.elapsed().as_secs_f64() > self.settings.seconds_max {
                break;
            }
        }
        Ok(())
    }

    /// Returns a random key and its presence.
    fn key(self, random: &mut Random) -> (Key, bool) {
        let keys = Keys::new(self.settings.seed);
        let present = random.below(1 << 32) < (self.present_share * 2_f64.powi(32)) as u64;
        let index = random.below(self.settings.keys);
        (if present { keys.present(index) } else { keys.absent(index) }, present)
    }
}

/// Describes the first wrong answer.
fn wrong(keys: &[Key], present: &[bool], answers: &[bool]) -> String {
    let first = answers.iter().zip(present).position(|(answer, present)| answer != present);
    match first {
        Some(at) if present[at] => format!("key {} was lost", keys[at].escape_ascii()),
        Some(at) => format!("key {} was invented", keys[at].escape_ascii()),
        None => format!("{} answers for {} keys", answers.len(), keys.len()),
    }
}
