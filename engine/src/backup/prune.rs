//! Removes backups.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    BackupSet, Retention,
    objects::{BACKUPS, LOG, OBJECTS},
    record_name,
};
use crate::{Error, Result};

impl BackupSet {
    /// Removes the backups that `retention` does not keep, with their archived logs, and the files
    /// that no other backup needs. The rules count the backups of each store. Returns the numbers
    /// of the removed backups.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`], [`Error::Io`]; [`Error::Corrupt`] or [`Error::NewerRelease`] if a record
    /// cannot be read: then nothing was removed.
    pub fn prune(&self, retention: &Retention) -> Result<Vec<u64>> {
        let _lock = self.lock()?;
        self.remove_unfinished()?;
        let numbers = self.numbers()?;
        let records = numbers.iter().map(|&number| Ok((number, self.record(number)?)));
        let records: Vec<_> = records.collect::<Result<_>>()?;
        let mut stores: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (number, it) in &records {
            stores.entry(it.state.store_id).or_default().push((*number, it.time_ms));
        }
        let kept: BTreeSet<_> =
            stores.values().flat_map(|backups| retention.kept(backups)).collect();
        let needed: BTreeSet<_> = records
            .iter()
            .filter(|(number, _)| kept.contains(number))
            .flat_map(|(_, record)| record.files.iter().map(|file| file.object()))
            .collect();
        let removed: Vec<_> = numbers.into_iter().filter(|number| !kept.contains(number)).collect();
        for &number in &removed {
            self.delete(BACKUPS, &record_name(number))?;
        }
        // Synced before the files are removed: a crash must not restore the record.
        self.sync(BACKUPS)?;
        let names = self.objects.list(OBJECTS);
        for name in names.map_err(|error| Error::io("list", &self.path, error))? {
            if !needed.contains(&name) {
                self.delete(OBJECTS, &name)?;
            }
        }
        self.sync(OBJECTS)?;
        for part in self.parts()? {
            if !kept.contains(&part.backup) {
                self.delete(LOG, &part.name())?;
            }
        }
        self.sync(LOG)?;
        Ok(removed)
    }

    fn delete(&self, directory: &str, name: &str) -> Result<()> {
        let name = format!("{directory}/{name}");
        let deleted = self.objects.delete(&name);
        deleted.map_err(|error| Error::io("remove", self.path.join(name), error))
    }
}
