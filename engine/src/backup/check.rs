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
            write!(f, "{problem}")?;
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
    /// its checksum. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the set cannot be listed. The report lists damage.
    pub fn verify(&self) -> Result<BackupReport> {
        let mut report = BackupReport::default();
        let (mut files, parts) = (BTreeMap::new(), self.parts()?);
        for number in self.numbers()? {
            match self.record(number) {
                Ok(record) => {
                    report.backups += 1;
                    let parts = parts.iter().copied().filter(|part| part.backup == number);
                    self.check_log(&record, parts, &mut report);
                    files.extend(record.files.into_iter().map(|file| (file.object(), file)));
                }
                Err(error) => report.problems.push(error),
            }
        }
        for file in files.values() {
            report.files += 1;
            report.bytes += file.bytes;
            report.problems.extend(self.check_file(file).err());
        }
        Ok(report)
    }

    fn check_log(
        &self,
        record: &Record,
        parts: impl Iterator<Item = PartRange> + Clone,
        report: &mut BackupReport,
    ) {
        let covered = covering(record.sequence, None, parts.clone());
        report.problems.extend(covered.gap.map(|gap| self.missing_part(gap)));
        for range in parts {
            match self.part(range, record.state.store_id) {
                Ok(part) => {
                    report.files += 1;
                    report.bytes += part.bytes;
                }
                Err(error) => report.problems.push(error),
            }
        }
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
