//! A change of the state, and its bytes: tagged fields ([`crate::log::fields`]).
//!
//! | tag          | value               | meaning                                                 |
//! |--------------|---------------------|---------------------------------------------------------|
//! | 1, required  | 16 bytes            | store id                                                |
//! | 2, required  | u64                 | hash seed                                               |
//! | 3, required  | varint              | next file id: above that of every file there ever was   |
//! | 4, required  | varint              | next keyspace id                                        |
//! | 5, required  | varint              | last sequence number                                    |
//! | 6, required  | varint              | store clock, in milliseconds                            |
//! | 7, required  | id varint, secret u64; often | a log that must exist, and its secret           |
//! | 8, required  | varint              | log floor: logs with a smaller id are obsolete          |
//! | 9, required  | id varint, name prefixed, options prefixed; often | a new keyspace            |
//! | 10, required | varint, often       | a keyspace that is gone, with its tables                |
//! | 11, required | keyspace varint, then [`super::table_field`]; often | a new table             |
//! | 12, required | keyspace, id varints; often | a table that is gone                            |
//! | 13, required | keyspace, id, level, run varints; often | a table in another run              |
//! | 14, required | keyspace, sequence varints; often | every entry up to there is in tables      |
//! | 15, optional | two varints         | synced mark of the log: file id, offset                 |
//! | 16, optional | keyspace, id varints, then the place as in [`super::table_field`], or nothing; often | a table has this point filter from now on, or none |
//! | 17, required | id varint, options prefixed; often | other options of a keyspace             |
//! | 18, optional | as 16, with the place as of a prefix filter in [`super::table_field`]; often | the same for its prefix filter |
//! | 19, optional | as 16; often        | the same for its range filter                           |
//! | 20, required | keyspace, sequence varints; often | every entry up to there is gone, with all tables |
//! | 21, required | id, sequence varints, name prefixed; often | a keyspace has this name since then |
//! | 22, optional | time in milliseconds, sequence varints; often | what was placed last by then |
//! | 23, required | keyspace, sequence, milliseconds varints; often | start of its history |
//! | 24, required | bytes, milliseconds, sequence varints | limits of the retained changes, and their start if none were kept |
//! | 25, required | id varint, secret u64, last sequence, bytes, milliseconds varints; often | a log below the floor that is kept |
//! | 26, required | id, sequence varints | retained logs with a smaller id are obsolete; new start |
//!
//! They are applied in this order: keyspaces created, changed, renamed and cleared, tables removed,
//! moved, added, filters replaced, flushes, keyspaces dropped, logs, retained logs; whatever the
//! order of their bytes.

use std::sync::Arc;

use sievedb_format::{Corruption, Decoder, Encode, SequenceNumber};

use super::{
    retained::{self, RetainedFloor, RetainedLog, RetentionChanged},
    table_field,
};
use crate::{
    history_length::HistoryStart,
    log::{
        Position,
        fields::{EncodeFields, Field, Fields, optional, required, set_once},
    },
    sequence_times::Sample,
    table::{NewPlace, TableMeta, bookkeeping::ENCODED_BYTES},
};

pub(super) const STORE_ID: u64 = required(1);
pub(super) const HASH_SEED: u64 = required(2);
pub(super) const NEXT_FILE_ID: u64 = required(3);
pub(super) const NEXT_KEYSPACE_ID: u64 = required(4);
pub(super) const LAST_SEQUENCE: u64 = required(5);
pub(super) const STORE_CLOCK_MS: u64 = required(6);
pub(super) const LOG_CREATED: u64 = required(7);
pub(super) const LOG_FLOOR: u64 = required(8);
pub(super) const KEYSPACE_CREATED: u64 = required(9);
pub(super) const KEYSPACE_DROPPED: u64 = required(10);
pub(super) const TABLE_ADDED: u64 = required(11);
pub(super) const TABLE_REMOVED: u64 = required(12);
pub(super) const TABLE_MOVED: u64 = required(13);
pub(super) const FLUSHED: u64 = required(14);
pub(super) const LOG_MARK: u64 = optional(15);
pub(super) const FILTER_REPLACED: u64 = optional(16);
pub(super) const KEYSPACE_CHANGED: u64 = required(17);
pub(super) const PREFIX_FILTER_REPLACED: u64 = optional(18);
pub(super) const RANGE_FILTER_REPLACED: u64 = optional(19);
pub(super) const KEYSPACE_CLEARED: u64 = required(20);
pub(super) const KEYSPACE_RENAMED: u64 = required(21);
pub(super) const SEQUENCE_TIME: u64 = optional(22);
pub(super) const HISTORY_FROM: u64 = required(23);
pub(super) const RETENTION: u64 = required(24);
pub(super) const LOG_RETAINED: u64 = required(25);
pub(super) const RETAINED_FLOOR: u64 = required(26);

/// A change of the manifest's state, applied atomically. Numbers below those of the state have no
/// effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VersionEdit {
    /// Set once.
    pub(crate) store_id: Option<u128>,
    /// Set once.
    pub(crate) hash_seed: Option<u64>,
    /// Above the id of every file that ever existed.
    pub(crate) next_file_id: Option<u64>,
    /// Above the id of every keyspace that ever existed.
    pub(crate) next_keyspace_id: Option<u64>,
    /// At least the largest sequence number in a table.
    pub(crate) last_sequence: Option<SequenceNumber>,
    pub(crate) store_clock_ms: Option<u64>,
    /// Logs that must exist, each with the secret of its header.
    pub(crate) logs_created: Vec<(u64, u64)>,
    /// Logs with a smaller id are obsolete. Never decreases.
    pub(crate) log_floor: Option<u64>,
    pub(crate) keyspaces_created: Vec<KeyspaceCreated>,
    pub(crate) keyspaces_changed: Vec<KeyspaceChanged>,
    pub(crate) keyspaces_renamed: Vec<KeyspaceRenamed>,
    /// Keyspaces, and the sequence number up to which all their entries are gone, with all tables
    /// that were added before. Never decreases.
    pub(crate) keyspaces_cleared: Vec<(u64, SequenceNumber)>,
    /// Keyspaces dropped with all their tables.
    pub(crate) keyspaces_dropped: Vec<u64>,
    /// New tables, by keyspace.
    pub(crate) tables_added: Vec<(u64, Arc<TableMeta>)>,
    /// Removed tables, by keyspace and id.
    pub(crate) tables_removed: Vec<(u64, u64)>,
    pub(crate) tables_moved: Vec<TableMoved>,
    pub(crate) filters_replaced: Vec<FilterReplaced>,
    /// Keyspaces, and the sequence number up to which all their entries are in tables. Never
    /// decreases.
    pub(crate) flushed: Vec<(u64, SequenceNumber)>,
    /// Position up to which the log is durable.
    pub(crate) log_mark: Option<Position>,
    /// Samples of the times when writes were placed, ascending.
    pub(crate) sequence_times: Vec<Sample>,
    /// Keyspaces, and the point before which versions may be missing. Never decreases.
    pub(crate) history_from: Vec<(u64, HistoryStart)>,
    pub(crate) retention_changed: Option<RetentionChanged>,
    /// Retained logs below the floor, kept for their changes, ascending.
    pub(crate) logs_retained: Vec<(u64, RetainedLog)>,
    pub(crate) retained_floor: Option<RetainedFloor>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyspaceCreated {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// Encoded options; opaque here.
    pub(crate) options: Vec<u8>,
}

/// A keyspace with new options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyspaceChanged {
    pub(crate) id: u64,
    /// Encoded options; opaque here.
    pub(crate) options: Vec<u8>,
}

/// A keyspace with a new name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyspaceRenamed {
    pub(crate) id: u64,
    /// Sequence number of the record in the log.
    pub(crate) sequence: SequenceNumber,
    pub(crate) name: String,
}

/// A table that changes its run without being rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableMoved {
    pub(crate) keyspace: u64,
    pub(crate) id: u64,
    pub(crate) level: u8,
    pub(crate) run: u64,
}

/// A table whose filter changes without a rewrite of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterReplaced {
    pub(crate) keyspace: u64,
    /// The table.
    pub(crate) id: u64,
    pub(crate) place: NewPlace,
}

impl VersionEdit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let of_table =
            |(_, table): &(u64, Arc<TableMeta>)| ENCODED_BYTES + table.bounds.memory_bytes();
        let tables: usize = self.tables_added.iter().map(of_table).sum();
        let of_keyspace =
            |created: &KeyspaceCreated| 16 + created.name.len() + created.options.len();
        let keyspaces: usize = self.keyspaces_created.iter().map(of_keyspace).sum();
        // Allocated once, with no more than is charged.
        let mut out = Vec::with_capacity(128 + tables + keyspaces + 16 * self.flushed.len());
        if let Some(store_id) = self.store_id {
            out.put_field(STORE_ID, &store_id.to_le_bytes());
        }
        if let Some(hash_seed) = self.hash_seed {
            out.put_field(HASH_SEED, &hash_seed.to_le_bytes());
        }
        let numbers = [
            (NEXT_FILE_ID, self.next_file_id),
            (NEXT_KEYSPACE_ID, self.next_keyspace_id),
            (LAST_SEQUENCE, self.last_sequence),
            (STORE_CLOCK_MS, self.store_clock_ms),
            (LOG_FLOOR, self.log_floor),
        ];
        for (tag, number) in numbers {
            if let Some(number) = number {
                out.put_varint_field(tag, number);
            }
        }
        let mut nested = Vec::new();
        for &(id, secret) in &self.logs_created {
            nested.clear();
            nested.put_varint(id);
            nested.put_u64(secret);
            out.put_field(LOG_CREATED, &nested);
        }
        for KeyspaceCreated { id, name, options } in &self.keyspaces_created {
            nested.clear();
            nested.put_varint(*id);
            nested.put_prefixed(name.as_bytes());
            nested.put_prefixed(options);
            out.put_field(KEYSPACE_CREATED, &nested);
        }
        for KeyspaceChanged { id, options } in &self.keyspaces_changed {
            nested.clear();
            nested.put_varint(*id);
            nested.put_prefixed(options);
            out.put_field(KEYSPACE_CHANGED, &nested);
        }
        for KeyspaceRenamed { id, sequence, name } in &self.keyspaces_renamed {
            nested.clear();
            nested.put_varint(*id);
            nested.put_varint(*sequence);
            nested.put_prefixed(name.as_bytes());
            out.put_field(KEYSPACE_RENAMED, &nested);
        }
        for &(keyspace, sequence) in &self.keyspaces_cleared {
            out.put_varints_field(KEYSPACE_CLEARED, &[keyspace, sequence]);
        }
        for &id in &self.keyspaces_dropped {
            out.put_varint_field(KEYSPACE_DROPPED, id);
        }
        for (keyspace, table) in &self.tables_added {
            nested.clear();
            nested.put_varint(*keyspace);
            table_field::encode(table, &mut nested);
            out.put_field(TABLE_ADDED, &nested);
        }
        for &(keyspace, id) in &self.tables_removed {
            out.put_varints_field(TABLE_REMOVED, &[keyspace, id]);
        }
        for &TableMoved { keyspace, id, level, run } in &self.tables_moved {
            out.put_varints_field(TABLE_MOVED, &[keyspace, id, level.into(), run]);
        }
        for FilterReplaced { keyspace, id, place } in &self.filters_replaced {
            nested.clear();
            nested.put_varint(*keyspace);
            nested.put_varint(*id);
            let tag = match place {
                NewPlace::Point(place) => {
                    place.iter().for_each(|place| table_field::encode_place(*place, &mut nested));
                    FILTER_REPLACED
                }
                NewPlace::Prefix(place) => {
                    place.iter().for_each(|it| table_field::encode_prefix_place(it, &mut nested));
                    PREFIX_FILTER_REPLACED
                }
                NewPlace::Range(place) => {
                    place.iter().for_each(|place| table_field::encode_place(*place, &mut nested));
                    RANGE_FILTER_REPLACED
                }
            };
            out.put_field(tag, &nested);
        }
        for &(keyspace, sequence) in &self.flushed {
            out.put_varints_field(FLUSHED, &[keyspace, sequence]);
        }
        if let Some(Position { file_id, offset }) = self.log_mark {
            out.put_varints_field(LOG_MARK, &[file_id, offset]);
        }
        for &(ms, sequence) in &self.sequence_times {
            out.put_varints_field(SEQUENCE_TIME, &[ms, sequence]);
        }
        for &(keyspace, HistoryStart { sequence, clock_ms }) in &self.history_from {
            out.put_varints_field(HISTORY_FROM, &[keyspace, sequence, clock_ms]);
        }
        if let Some(RetentionChanged { limits, from }) = self.retention_changed {
            out.put_varints_field(RETENTION, &[limits.bytes_max, limits.age_ms_max, from]);
        }
        for &(id, RetainedLog { secret, last_sequence, bytes, retired_ms }) in &self.logs_retained {
            nested.clear();
            nested.put_varint(id);
            nested.put_u64(secret);
            [last_sequence, bytes, retired_ms].iter().for_each(|&it| nested.put_varint(it));
            out.put_field(LOG_RETAINED, &nested);
        }
        if let Some(RetainedFloor { id, from }) = self.retained_floor {
            out.put_varints_field(RETAINED_FLOOR, &[id, from]);
        }
        out
    }

    /// Decodes an edit. [`super::ManifestState`] checks whether it applies.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes break the table above.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let mut edit = Self::default();
        let mut fields = Fields::new("version edit", bytes);
        while let Some(field) = fields.next()? {
            edit.decode_field(&field)?;
        }
        Ok(edit)
    }

    fn decode_field(&mut self, field: &Field<'_>) -> Result<(), Corruption> {
        match field.tag {
            STORE_ID => set_once(&mut self.store_id, field.u128("store id")?, "store id")?,
            HASH_SEED => set_once(&mut self.hash_seed, field.u64("hash seed")?, "hash seed")?,
            NEXT_FILE_ID => set_number(&mut self.next_file_id, field, "next file id")?,
            NEXT_KEYSPACE_ID => set_number(&mut self.next_keyspace_id, field, "next keyspace id")?,
            LAST_SEQUENCE => set_number(&mut self.last_sequence, field, "last sequence number")?,
            STORE_CLOCK_MS => set_number(&mut self.store_clock_ms, field, "store clock")?,
            LOG_FLOOR => set_number(&mut self.log_floor, field, "log floor")?,
            LOG_CREATED => self.logs_created.push(decode_log(field)?),
            KEYSPACE_CREATED => self.keyspaces_created.push(decode_keyspace(field)?),
            KEYSPACE_CHANGED => self.keyspaces_changed.push(decode_keyspace_change(field)?),
            KEYSPACE_RENAMED => self.keyspaces_renamed.push(decode_keyspace_rename(field)?),
            KEYSPACE_CLEARED => {
                self.keyspaces_cleared.push(field.varints("cleared keyspace")?.into());
            }
            KEYSPACE_DROPPED => self.keyspaces_dropped.push(field.varint("keyspace id")?),
            TABLE_ADDED => self.tables_added.push(decode_table(field)?),
            TABLE_REMOVED => self.tables_removed.push(field.varints("removed table")?.into()),
            TABLE_MOVED => {
                let [keyspace, id, level, run] = field.varints("moved table")?;
                let Ok(level) = u8::try_from(level) else {
                    return Err(Corruption::OutOfRange { what: "level", value: level });
                };
                self.tables_moved.push(TableMoved { keyspace, id, level, run });
            }
            FLUSHED => self.flushed.push(field.varints("flushed sequence number")?.into()),
            LOG_MARK => {
                let [file_id, offset] = field.varints("synced mark")?;
                set_once(&mut self.log_mark, Position { file_id, offset }, "synced mark")?;
            }
            FILTER_REPLACED | PREFIX_FILTER_REPLACED | RANGE_FILTER_REPLACED => {
                self.filters_replaced.push(decode_filter(field)?);
            }
            SEQUENCE_TIME => {
                self.sequence_times.push(field.varints("time of a sequence number")?.into());
            }
            HISTORY_FROM => {
                let [keyspace, sequence, clock_ms] = field.varints("start of a history")?;
                self.history_from.push((keyspace, HistoryStart { sequence, clock_ms }));
            }
            RETENTION => {
                let changed = retained::decode_retention(field)?;
                set_once(&mut self.retention_changed, changed, "retention of changes")?;
            }
            LOG_RETAINED => self.logs_retained.push(retained::decode_log(field)?),
            RETAINED_FLOOR => {
                let floor = retained::decode_floor(field)?;
                set_once(&mut self.retained_floor, floor, "floor of the retained logs")?;
            }
            _ => field.skip("field of a version edit")?,
        }
        Ok(())
    }
}

fn set_number(
    slot: &mut Option<u64>,
    field: &Field<'_>,
    what: &'static str,
) -> Result<(), Corruption> {
    set_once(slot, field.varint(what)?, what)
}

pub(super) fn decode_log(field: &Field<'_>) -> Result<(u64, u64), Corruption> {
    field.read("log", |decoder| Ok((decoder.varint("log id")?, decoder.u64("secret of a log")?)))
}

pub(super) fn decode_keyspace(field: &Field<'_>) -> Result<KeyspaceCreated, Corruption> {
    field.read("keyspace", |decoder| {
        let id = decoder.varint("keyspace id")?;
        let name = decode_name(decoder)?;
        let options = decoder.prefixed("options of a keyspace")?;
        Ok(KeyspaceCreated { id, name: name.to_owned(), options: options.to_vec() })
    })
}

fn decode_name<'a>(decoder: &mut Decoder<'a>) -> Result<&'a str, Corruption> {
    let what = "name of a keyspace";
    std::str::from_utf8(decoder.prefixed(what)?)
        .map_err(|e| Corruption::OutOfRange { what, value: e.valid_up_to() as u64 })
}

pub(super) fn decode_keyspace_rename(field: &Field<'_>) -> Result<KeyspaceRenamed, Corruption> {
    field.read("renamed keyspace", |decoder| {
        let id = decoder.varint("keyspace id")?;
        let sequence = decoder.varint("sequence number of a rename")?;
        Ok(KeyspaceRenamed { id, sequence, name: decode_name(decoder)?.to_owned() })
    })
}

pub(super) fn decode_keyspace_change(field: &Field<'_>) -> Result<KeyspaceChanged, Corruption> {
    field.read("changed keyspace", |decoder| {
        let id = decoder.varint("keyspace id")?;
        let options = decoder.prefixed("options of a keyspace")?;
        Ok(KeyspaceChanged { id, options: options.to_vec() })
    })
}

pub(super) fn decode_table(field: &Field<'_>) -> Result<(u64, Arc<TableMeta>), Corruption> {
    field.read("table", |decoder| {
        let keyspace = decoder.varint("keyspace id")?;
        let rest = decoder.take("table", decoder.rest().len())?;
        Ok((keyspace, Arc::new(table_field::decode(rest)?)))
    })
}

pub(super) fn decode_filter(field: &Field<'_>) -> Result<FilterReplaced, Corruption> {
    field.read("replaced filter", |decoder| {
        let keyspace = decoder.varint("keyspace id")?;
        let id = decoder.varint("table id")?;
        let has_place = !decoder.is_empty();
        let tag = field.tag;
        let place = if tag == PREFIX_FILTER_REPLACED {
            let place = has_place.then(|| table_field::decode_prefix_place(decoder));
            NewPlace::Prefix(place.transpose()?)
        } else {
            let place = has_place.then(|| table_field::decode_place(decoder, "filter place"));
            let place = place.transpose()?;
            let is_range = tag == RANGE_FILTER_REPLACED;
            if is_range { NewPlace::Range(place) } else { NewPlace::Point(place) }
        };
        Ok(FilterReplaced { keyspace, id, place })
    })
}
