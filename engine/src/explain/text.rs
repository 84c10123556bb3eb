//! Text of an explanation.

use std::fmt;

use super::{
    BlockStep, ExplainedAnswer, Explanation, FilterStep, FilterVerdict, FoundVersion, LookupCost,
    MemtableStep, TableStep,
};

use crate::text::{bytes, counted, key};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keyspace, sequence, runs, .. } = self;
        writeln!(f, "key {} of keyspace {keyspace:?} at sequence {sequence}", key(&self.key))?;
        for memtable in &self.memtables {
            writeln!(f, "{memtable}")?;
        }
        for table in &self.tables {
            writeln!(f, "{table}")?;
        }
        let elsewhere = runs.saturating_sub(self.tables.len() as u64);
        if elsewhere > 0 {
            writeln!(
                f,
                "{elsewhere} of {runs} sorted runs have no table with the key in its bounds"
            )?;
        }
        if let (Some(newest), Some(oldest)) = (self.operands.first(), self.operands.last()) {
            let count = counted(self.operands.len() as u64, ["merge operand", "merge operands"]);
            let bytes = self.operands.iter().map(|step| step.operand_bytes).sum();
            let (from, to) = (oldest.sequence, newest.sequence);
            writeln!(f, "{count} of {}, with sequences from {from} to {to}", long(bytes))?;
        }
        if let Some(failure) = &self.older_failure {
            writeln!(f, "failed below a merge operand: {failure}")?;
        }
        if let Some(sequence) = self.range_tombstone {
            writeln!(f, "a range tombstone with sequence {sequence} covers the key")?;
        }
        write!(f, "{}: {}", self.answer, self.cost)
    }
}

impl fmt::Display for ExplainedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present { value_bytes } => {
                write!(f, "present, a value of {}", long(*value_bytes))
            }
            Self::Removed => write!(f, "absent, removed"),
            Self::Expired => write!(f, "absent, expired"),
            Self::Absent => write!(f, "absent"),
            Self::Unknown => write!(f, "unknown, a block cannot be read"),
        }
    }
}

impl fmt::Display for LookupCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} probed, {} searched, {} and {} requested, {} read ({})",
            counted(self.filters_probed, ["table filter", "table filters"]),
            counted(self.tables_searched, ["table", "tables"]),
            counted(self.data_block_requests, ["data block", "data blocks"]),
            counted(self.index_block_requests, ["index partition", "index partitions"]),
            self.blocks_read,
            bytes(self.bytes_read)
        )
    }
}

impl fmt::Display for MemtableStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_frozen { "frozen memtable" } else { "memtable" };
        write!(f, "{name}, {}: ", counted(self.entries, ["entry", "entries"]))?;
        match (self.may_contain, &self.found) {
            (None, _) => write!(f, "skipped, the key was found"),
            (Some(false), _) => write!(f, "filter: absent"),
            (Some(true), None) => write!(f, "filter: may match; not found"),
            (Some(true), Some(found)) => write!(f, "filter: may match; found {found}"),
        }
    }
}

impl fmt::Display for FoundVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, value_bytes, .. } = self;
        if self.is_operand {
            write!(f, "a merge operand of {} with sequence {sequence}", long(*value_bytes))
        } else if self.is_tombstone {
            write!(f, "a tombstone with sequence {sequence}")
        } else {
            write!(f, "sequence {sequence} with a value of {}", long(*value_bytes))?;
            match self.expiry_ms {
                Some(expiry_ms) => write!(f, ", expires at {expiry_ms} ms of the store clock"),
                None => Ok(()),
            }
        }
    }
}

impl fmt::Display for TableStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, run, table_id, .. } = self;
        write!(f, "level {level}, run {run}: table {table_id} from ")?;
        let entries = counted(self.entries, ["entry", "entries"]);
        write!(f, "{} to {}, {entries}", key(&self.smallest), key(&self.largest))?;
        if self.is_skipped {
            return match self.is_covered {
                true => write!(f, ": skipped, a range tombstone covers the key"),
                false => write!(f, ": skipped, the key was found"),
            };
        }
        write!(f, "\n  filter: {}", self.filter)?;
        if self.is_covered {
            return write!(f, "\n  not searched, a range tombstone covers the key");
        }
        for block in &self.blocks {
            write!(f, "\n  {block}")?;
        }
        if let Some(failure) = &self.failure {
            return write!(f, "\n  failed: {failure}");
        }
        match &self.found {
            _ if self.filter.verdict == FilterVerdict::Absent => Ok(()),
            None => write!(f, "\n  searched, not found"),
            Some(found) => write!(f, "\n  found {found}"),
        }
    }
}

impl fmt::Display for FilterStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = self.kind {
            write!(f, "{kind}, ")?;
            match (self.columns, self.columns_stored) {
                (Some(columns), Some(stored)) => {
                    write!(f, "{columns:.2} of {stored:.2} columns in memory, ")?;
                }
                (None, Some(stored)) => write!(f, "none of {stored:.2} columns in memory, ")?,
                _ => {}
            }
            let Self { bits_per_key, bits_per_key_stored, .. } = self;
            write!(f, "{bits_per_key:.2} of {bits_per_key_stored:.2} bits a key, ")?;
            write!(f, "expected false-positive rate {:.4} %: ", self.fpr_expected * 100.0)?;
        }
        write!(f, "{}", self.verdict)
    }
}

impl fmt::Display for FilterVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotProbed => write!(f, "not probed"),
            Self::Absent => write!(f, "absent"),
            Self::MayContain => write!(f, "may match"),
            Self::NotResident => write!(f, "not in memory, table searched"),
            Self::Unusable { reason } => write!(f, "unusable, table searched: {reason}"),
            Self::NoFilter => write!(f, "none, table searched"),
        }
    }
}

impl fmt::Display for BlockStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, .. } = self;
        let name = if self.is_index { "index partition" } else { "data block" };
        let from = if self.is_read { "read from the file" } else { "from the cache" };
        write!(f, "{name} at byte {offset}, {}, {from}", long(self.bytes))
    }
}

fn long(bytes: u64) -> String {
    counted(bytes, ["byte", "bytes"])
}
