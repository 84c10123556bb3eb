//! Verifies a backup set.

use std::{collections::BTreeMap, fmt};

use xxhash_rust::xxh3::Xxh3;

use super::{
    BackupSet,
    chain::covering,
    log_part::PartRange,
    record::{Record, StoredFile},
    wrong_content,
};
use crate::{Error, Result, store::checkpoint::parts::read_parts, text::counted};

/// The result of [`BackupSet::verify`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct BackupReport {
    /// Number of backups whose records were read.
    pub backups: u64,
    /// Number of files, each counted once, and parts of archived logs.
    pub files: u64,
    /// Length of these, in bytes.
    pub bytes: u64,
    /// Damaged records and files, and missing ones. A damaged file damages every backup that has
    /// it.
    pub problems: Vec<Error>,
}

impl fmt::Display for BackupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            // Without the advice of the message, which is about files of a store.
            match problem {
                Error::Corrupt { path, .. } => write!(f, "{}", path.display())?,
                other => write!(f, "{other}")?,
            }
            let source = std::error::Error::source(problem);
            source.map_or(Ok(()), |source| write!(f, ": {source}"))?;
            writeln!(f)?;
        }
        write!(
            f,
            "{}, {}, {} verified, {}",
            counted(self.backups, ["backup", "backups"]),
            counted(self.files, ["file", "files"]),
            crate::text::bytes(self.bytes),
            counted(self.problems.len() as u64, ["problem", "problems"])
        )
    }
}

impl BackupSet {
    /// Reads every file of every backup and every part of the archived logs, and compares it with
    /// its checksum. Changes nothing, and takes no lock: the set may be changed meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the set cannot be listed. The report lists damage.
    pub fn verify(&self) -> Result<BackupReport> {
        let mut report = BackupReport::default();
        let (mut files, mut problems) = (BTreeMap::new(), Vec::new());
        let parts = self.parts()?;
        for number in self.numbers()? {
            match self.record(number) {
                Ok(record) => {
                    report.backups += 1;
                    let parts = parts.iter().copied().filter(|part| part.backup == number);
                    let found = self.check_log(&record, parts, &mut report);
                    problems.extend(found.into_iter().map(|error| (vec![number], error)));
                    for file in record.files {
                        let of_file = files.entry(file.object());
                        let (_, numbers) = of_file.or_insert_with(|| (file, Vec::new()));
                        numbers.push(number);
                    }
                }
                Err(error) => problems.push((vec![number], error)),
            }
        }
        for (file, numbers) in files.into_values() {
            report.files += 1;
            report.bytes += file.bytes;
            problems.extend(self.check_file(&file).err().map(|error| (numbers, error)));
        }
        if !problems.is_empty() {
            // A prune may have removed backups meanwhile.
            let left = self.numbers()?;
            problems.retain(|(numbers, _)| numbers.iter().any(|number| left.contains(number)));
        }
        report.problems = problems.into_iter().map(|(_, error)| error).collect();
        Ok(report)
    }

    /// Returns the problems of the log after a backup.
    fn check_log(
        &self,
        record: &Record,
        parts: impl Iterator<Item = PartRange> + Clone,
        report: &mut BackupReport,
    ) -> Vec<Error> {
        let covered = covering(record.sequence, None, parts.clone());
        let mut problems: Vec<_> =
            covered.gap.map(|gap| self.missing_part(gap)).into_iter().collect();
        for range in parts {
            match self.part(range, record.state.store_id) {
                Ok(part) => {
                    report.files += 1;
                    report.bytes += part.bytes;
                }
                Err(error) => problems.push(error),
            }
        }
        problems
    }

    fn check_file(&self, file: &StoredFile) -> Result<()> {
        let (object, path) = self.open_object(file)?;
        let mut hasher = Xxh3::new();
        read_parts(&*object, &path, file.bytes, |part| {
            hasher.update(part);
            Ok(())
        })?;
        let (expected, found) = (file.digest[0], hasher.digest());
        if found == expected { Ok(()) } else { Err(wrong_content(&path, expected, found)) }
    }
}
