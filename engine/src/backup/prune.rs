//! Removes backups.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    BackupSet, Retention,
    objects::{BACKUPS, LOG, OBJECTS},
    record::StoredFile,
    record_name,
};
use crate::{Error, Result};

/// The result of [`BackupSet::prune`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Numbers of the removed backups, ascending.
    pub removed: Vec<u64>,
    /// Numbers of the backups whose records are damaged, ascending. If there are any, no files were
    /// removed.
    pub damaged: Vec<u64>,
}

impl BackupSet {
    /// Removes the backups that `retention` does not keep, with their archived logs, and the files
    /// that no other backup needs. The rules count the backups of each store. Reads each record
    /// once, and those of kept backups twice.
    ///
    /// A backup whose record is damaged is kept. Its files are unknown, so no files are removed
    /// until its record is deleted: the file `backups/000007` of backup 7. Never delete the newest
    /// record, because the next backup would get its number.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidOption`]: `retention` has no rule with a count above 0. Nothing was
    ///   removed.
    /// * [`Error::Locked`], [`Error::Io`].
    /// * [`Error::NewerRelease`], [`Error::Encrypted`], [`Error::NotEncrypted`], [`Error::NoKey`],
    ///   [`Error::WrongKey`]: a record cannot be read. Nothing was removed.
    pub fn prune(&self, retention: &Retention) -> Result<Pruned> {
        if !retention.has_rule() {
            let allowed = "a rule with a count above 0 is required";
            return Err(Error::InvalidOption { name: "retention", allowed });
        }
        let _lock = self.lock()?;
        self.remove_unfinished()?;
        let numbers = self.numbers()?;
        let (mut stores, mut damaged) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
        for &number in &numbers {
            match self.record(number) {
                Err(Error::Corrupt { .. }) => damaged.push(number),
                record => {
                    let record = record?;
                    let of_store = stores.entry(record.state.store_id).or_default();
                    of_store.push((number, record.time_ms));
                }
            }
        }
        let mut kept: BTreeSet<_> =
            stores.values().flat_map(|backups| retention.kept(backups)).collect();
        // Reads the records again, because all of them may not fit into memory.
        let mut needed = BTreeSet::new();
        for &number in &kept {
            needed.extend(self.record(number)?.files.iter().map(StoredFile::object));
        }
        let removes_files = damaged.is_empty();
        kept.extend(&damaged);
        let removed: Vec<_> = numbers.into_iter().filter(|number| !kept.contains(number)).collect();
        for &number in &removed {
            self.delete(BACKUPS, &record_name(number))?;
        }
        // Synced before the files are removed: a crash must not restore the record.
        self.sync(BACKUPS)?;
        let names = self.objects.list(OBJECTS);
        for name in names.map_err(|error| Error::io("list", &self.path, error))? {
            if removes_files && !needed.contains(&name) {
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
        Ok(Pruned { removed, damaged })
    }

    fn delete(&self, directory: &str, name: &str) -> Result<()> {
        let name = format!("{directory}/{name}");
        let deleted = self.objects.delete(&name);
        deleted.map_err(|error| Error::io("remove", self.path.join(name), error))
    }
}
