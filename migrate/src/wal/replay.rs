//! Replay of the logs.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use super::{
    batch::{Batch, Operation},
    memtable::{LogEntry, Memtable},
    reader::{LogReader, Record},
};
use crate::{
    error::{Error, Result},
    file::File,
    internal_key::ValueType,
    manifest::Manifest,
    tombstone::Tombstone,
};

/// A write of a prepared transaction.
#[derive(Debug)]
enum Write {
    Entry { family: u32, value_type: ValueType, key: Box<[u8]>, value: Box<[u8]> },
    RangeDelete { family: u32, start: Box<[u8]>, end: Box<[u8]> },
}

impl Write {
    fn new(operation: &Operation<'_>) -> Option<Self> {
        match *operation {
            Operation::Entry { family, value_type, key, value } => {
                Some(Self::Entry { family, value_type, key: key.into(), value: value.into() })
            }
            Operation::RangeDelete { family, start, end } => {
                Some(Self::RangeDelete { family, start: start.into(), end: end.into() })
            }
            _ => None,
        }
    }

    fn family(&self) -> u32 {
        match self {
            Self::Entry { family, .. } | Self::RangeDelete { family, .. } => *family,
        }
    }
}

/// Replays logs in order.
#[derive(Debug)]
pub(crate) struct Replay<'a> {
    manifest: &'a Manifest,
    memtables: BTreeMap<u32, Memtable>,
    /// Writes of transactions that are prepared, but neither committed nor rolled back.
    prepared: HashMap<Vec<u8>, Vec<Write>>,
    /// Sequence number after the last batch.
    next_sequence: u64,
    /// Error at an incomplete record at the end of a log. No batch may be missing before the next
    /// log.
    torn: Option<Error>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(manifest: &'a Manifest) -> Self {
        Self {
            manifest,
            memtables: BTreeMap::new(),
            prepared: HashMap::new(),
            next_sequence: 0,
            torn: None,
        }
    }

    /// Replays the log `number`, which must be newer than all previous ones.
    pub(crate) fn log(&mut self, path: &Path, number: u64) -> Result<()> {
        let mut reader = LogReader::new(File::open(path)?, number);
        while let Some(record) = reader.next()? {
            self.record(&record, path, number)?;
        }
        if let Some(offset) = reader.torn() {
            let reason = "the record is incomplete, and a later log has newer data";
            self.torn = Some(Error::corrupt(path, offset, reason));
        }
        Ok(())
    }

    /// Returns the entries by column family. Drops transactions that were not committed.
    pub(crate) fn finish(mut self) -> BTreeMap<u32, Memtable> {
        for (id, memtable) in &mut self.memtables {
            if let Some(family) = self.manifest.families.get(id) {
                memtable.sort(family.comparator);
            }
        }
        self.memtables
    }

    fn record(&mut self, record: &Record, path: &Path, log: u64) -> Result<()> {
        let batch = Batch::decode(&record.bytes, path, record.offset)?;
        if let Some(torn) = self.torn.take()
            && batch.sequence != self.next_sequence
        {
            return Err(torn);
        }
        let mut sequence = batch.sequence;
        let mut preparing: Option<Vec<Write>> = None;
        let corrupt = |reason: &str| Error::corrupt(path, record.offset, reason);
        for operation in batch.operations()? {
            if let Some(write) = Write::new(&operation) {
                match &mut preparing {
                    Some(writes) => writes.push(write),
                    None => self.apply(write, &mut sequence, log),
                }
                continue;
            }
            match operation {
                Operation::BeginPrepare => preparing = Some(Vec::new()),
                Operation::EndPrepare { transaction } => {
                    let writes = preparing.take();
                    let writes = writes.ok_or_else(|| corrupt("a transaction has no start"))?;
                    self.prepared.insert(transaction.to_vec(), writes);
                }
                Operation::Commit { transaction } => {
                    // Absent if its log is no longer needed: the writes are in tables.
                    for write in self.prepared.remove(transaction).unwrap_or_default() {
                        self.apply(write, &mut sequence, log);
                    }
                }
                Operation::Rollback { transaction } => {
                    self.prepared.remove(transaction);
                }
                Operation::Entry { .. } | Operation::RangeDelete { .. } | Operation::Nothing => {}
            }
        }
        if preparing.is_some() {
            return Err(corrupt("a transaction has no end"));
        }
        // Writes take their numbers when they are applied, those of a transaction at its commit.
        self.next_sequence = sequence;
        Ok(())
    }

    /// Applies a write, unless a table has it already or its column family was dropped.
    fn apply(&mut self, write: Write, sequence: &mut u64, log: u64) {
        let number = *sequence;
        *sequence += 1;
        let id = write.family();
        let is_live = |log_number| log_number <= log;
        if !self.manifest.families.get(&id).is_some_and(|family| is_live(family.log_number)) {
            return;
        }
        let memtable = self.memtables.entry(id).or_default();
        match write {
            Write::Entry { value_type, key, value, .. } => {
                memtable.entries.push(LogEntry { key, sequence: number, value_type, value });
            }
            Write::RangeDelete { start, end, .. } => {
                memtable.tombstones.push(Tombstone::new(&start, &end, number));
            }
        }
    }
}
