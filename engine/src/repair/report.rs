//! Report of a repair.

use std::fmt;

use crate::{VerifyProblem, text, text::counted};

/// Report of [`Options::repair`](crate::Options::repair).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Damage, with its keyspace, and its keys if it held entries.
    pub lost: Vec<VerifyProblem>,
    /// Damaged files whose content is known from other files. Nothing is lost.
    pub replaced: Vec<VerifyProblem>,
    /// Keys whose only readable values may be outdated: omitted, unless
    /// [`OlderValues::Keep`](crate::OlderValues::Keep) is passed. Counted by 64 bits of hash: of a
    /// billion keys one may be missed in the count, but not in the store.
    pub older: u64,
    /// Tables read, including those with damaged blocks.
    pub tables: u64,
    /// Tables among them that were scanned block by block, because footer or index is damaged.
    pub tables_rescanned: u64,
    /// Batches of the log read.
    pub log_batches: u64,
    /// `true` if the manifest is lost: the keyspaces were taken from tables and log. A missing
    /// table was not noticed then, and values may be older than those it had.
    pub is_rebuilt: bool,
    /// Without a manifest: tables omitted, because they were replaced or their keyspace was
    /// dropped.
    pub tables_left_out: u64,
    /// Without a manifest: new names of keyspaces whose name is lost, also by a rename since their
    /// newest table. Those without a table have default options.
    pub keyspaces_unnamed: Vec<String>,
    /// Without a manifest: older logs whose end is missing, obsolete or lost. Keys that only they
    /// have count as [`older`](Self::older).
    pub logs_cut: u64,
    /// Without a manifest: lost tables with unknown keyspace and keys.
    pub tables_unknown: u64,
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for lost in &self.lost {
            writeln!(f, "lost: {lost}")?;
        }
        for replaced in &self.replaced {
            writeln!(f, "rebuilt: {replaced}; its content is known from other files")?;
        }
        let read = format!(
            "{} and {} of the log were read",
            counted(self.tables, ["table", "tables"]),
            counted(self.log_batches, ["batch", "batches"])
        );
        if self.tables_rescanned > 0 {
            let tables = counted(self.tables_rescanned, ["table", "tables"]);
            writeln!(f, "{tables} scanned block by block, because footer or index is damaged")?;
        }
        if self.is_rebuilt {
            writeln!(
                f,
                "the manifest is lost: keyspaces are taken from tables and log, later renames are lost"
            )?;
            writeln!(
                f,
                "without it, missing tables cannot be noticed; values may be older than theirs"
            )?;
        }
        if self.tables_left_out > 0 {
            let tables = counted(self.tables_left_out, ["table", "tables"]);
            writeln!(f, "{tables} left out: replaced by others, or of a dropped keyspace")?;
        }
        for name in &self.keyspaces_unnamed {
            writeln!(f, "the name of the keyspace {name:?} is lost")?;
        }
        if self.logs_cut > 0 {
            let logs = counted(self.logs_cut, ["older log", "older logs"]);
            writeln!(f, "the end of {logs} is missing; values that only they have may be older")?;
        }
        if self.tables_unknown > 0 {
            let tables = counted(self.tables_unknown, ["table", "tables"]);
            writeln!(f, "keyspace and keys of {tables} are unknown; other values may be older")?;
        }
        if self.lost.is_empty() {
            return write!(f, "nothing is lost: {read}");
        }
        let places = counted(self.lost.len() as u64, ["place", "places"]);
        write!(f, "{read}, {places} cannot be read")?;
        let lost_bytes = self.lost.iter().fold(0, |sum: u64, lost| sum.saturating_add(lost.bytes));
        if lost_bytes > 0 {
            write!(f, " ({} of blocks)", text::bytes(lost_bytes))?;
        }
        if self.older > 0 {
            let keys = counted(self.older, ["key", "keys"]);
            write!(
                f,
                "; omitted, unless older values were kept: {keys} whose newest value may be lost"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VerifyProblemKind;

    #[test]
    fn a_report_says_what_there_is_to_say() {
        let lost = VerifyProblem {
            path: "000012.sst".into(),
            offset: 7,
            keyspace: None,
            keys: None,
            bytes: 0,
            kind: VerifyProblemKind::Damaged,
            message: "is gone".to_owned(),
        };
        let nothing = RepairReport { tables: 3, log_batches: 1, ..RepairReport::default() };
        let some = RepairReport { lost: vec![lost], ..nothing.clone() };
        let older = RepairReport { older: 2, ..some.clone() };
        let read = "3 tables and 1 batch of the log were read";
        let damaged =
            format!("lost: 000012.sst near byte 7: is gone\n{read}, 1 place cannot be read");
        let current = VerifyProblem { path: "CURRENT".into(), offset: 0, ..some.lost[0].clone() };
        let rebuilt = RepairReport { replaced: vec![current], ..nothing.clone() };
        let older_text =
            "; omitted, unless older values were kept: 2 keys whose newest value may be lost";
        let all = "its content is known from other files\nnothing is lost: ";
        let cases = [
            (rebuilt, format!("rebuilt: CURRENT: is gone; {all}{read}")),
            (nothing, format!("nothing is lost: {read}")),
            (some, damaged.clone()),
            (older, damaged + older_text),
        ];
        for (report, want) in cases {
            assert_eq!(report.to_string(), want);
        }
    }
}
