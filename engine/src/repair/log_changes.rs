//! Changes of keyspaces in the log, for a repair without a manifest.

use std::collections::{BTreeMap, BTreeSet};

use sievedb_format::SequenceNumber;

use crate::wal::batch::Entry;

/// Changes of keyspaces in the readable part of all logs. Tables lack them.
#[derive(Debug, Clone, Default)]
pub(super) struct LogChanges {
    /// Sequence number of the last clear of each keyspace.
    cleared: BTreeMap<u64, SequenceNumber>,
    /// Last name of each keyspace, with the sequence number of its record.
    renamed: BTreeMap<u64, (SequenceNumber, String)>,
    dropped: BTreeSet<u64>,
    /// Sequence numbers of ingested tables, by their ids.
    ingested: BTreeMap<u64, SequenceNumber>,
}

impl LogChanges {
    /// Records an entry of the log. Entries may come in any order, and more than once.
    pub(super) fn note(&mut self, sequence: SequenceNumber, entry: &Entry<'_>) {
        match entry {
            &Entry::ClearKeyspace { keyspace } => {
                let cleared = self.cleared.entry(keyspace).or_default();
                *cleared = sequence.max(*cleared);
            }
            &Entry::RenameKeyspace { keyspace, name } => {
                let renamed = self.renamed.entry(keyspace).or_default();
                if renamed.0 < sequence {
                    *renamed = (sequence, name.to_owned());
                }
            }
            &Entry::DropKeyspace { keyspace } => {
                self.dropped.insert(keyspace);
            }
            Entry::Ingest { tables, .. } => {
                self.ingested.extend(tables.iter().map(|&id| (id, sequence)));
            }
            Entry::CreateKeyspace { .. }
            | Entry::Point { .. }
            | Entry::RemoveRange { .. }
            | Entry::Ignored { .. } => {}
        }
    }

    /// Returns the sequence number up to which a keyspace was cleared.
    pub(super) fn cleared(&self, keyspace: u64) -> SequenceNumber {
        self.cleared.get(&keyspace).copied().unwrap_or(0)
    }

    /// Returns the name of a keyspace, if it was renamed.
    pub(super) fn name(&self, keyspace: u64) -> Option<&str> {
        self.renamed.get(&keyspace).map(|(_, name)| &**name)
    }

    /// Returns the sequence number of all entries of a table, if it was ingested.
    pub(super) fn ingested(&self, table: u64) -> Option<SequenceNumber> {
        self.ingested.get(&table).copied()
    }

    pub(super) fn is_dropped(&self, keyspace: u64) -> bool {
        self.dropped.contains(&keyspace)
    }
}
