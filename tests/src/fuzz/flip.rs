//! Damage to a log after a clean close.

use std::sync::Arc;

use sievedb::{Error, fs::Fs};

use super::Run;
use crate::{observe::observe, settings::STORE_DIR};

impl Run<'_> {
    /// Flips a byte of a value in the log of a copy. A clean close marks the log as synced, so the
    /// open is refused, or no entry is missing.
    pub(super) fn flip(&mut self) -> Result<(), String> {
        let left = Arc::new(self.disk.copy());
        let mut logs: Vec<_> = left.contents().into_iter().collect();
        logs.retain(|(path, _)| path.ends_with(".log"));
        let entries =
            self.history.model().keyspaces().values().flat_map(|entries| entries.values());
        // The output of a failed append may contain a value twice.
        let place = entries.filter_map(|value| {
            let mut places = logs.iter().flat_map(|(path, bytes)| {
                let starts = bytes.windows(value.len()).enumerate();
                starts.filter(|(_, found)| found == value).map(move |(at, _)| (path, bytes, at))
            });
            places.next().filter(|_| value.len() > 4 && places.next().is_none())
        });
        // No later record has a synced mark above the newest value.
        let Some((path, bytes, at)) = place.max_by_key(|&(path, _, at)| (path, at)) else {
            return Ok(());
        };
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        left.replace(&**path, bytes).map_err(|error| error.to_string())?;
        self.counts.flips += 1;
        let options = self.options(Arc::clone(&left) as Arc<dyn Fs>);
        let db = match options.open(STORE_DIR) {
            Err(Error::Corrupt { .. }) => return Ok(()),
            opened => {
                opened.map_err(|error| format!("byte {at} of {path} is flipped: {error:?}"))?
            }
        };
        let found = observe(&db, self.history.keys()).map_err(|error| error.to_string())?;
        let legal = self.history.check(&found, self.point);
        legal.map_err(|text| format!("byte {at} of {path} is flipped, and not refused: {text}"))
    }
}
