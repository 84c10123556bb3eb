//! Merges the tables of a keyspace whose order is unknown without a manifest.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    ops::{Bound, RangeBounds as _},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::SEQUENCE_MAX;

use super::{Repair, Saved, copied::Copied, lost::check_lost, tables::Opened};
use crate::{
    Error, Result,
    manifest::KeyspaceState,
    table::{TableMeta, files::TableFiles, open_files::OpenFiles, table_error},
};

const OPEN_FILES: usize = 64;

/// The next entry of a table.
#[derive(PartialEq, Eq)]
struct Head {
    user_key: Vec<u8>,
    sequence: u64,
    table: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |head: &Self| (Reverse(head.sequence), Reverse(head.table));
        self.user_key.cmp(&other.user_key).then_with(|| key(self).cmp(&key(other)))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Unreadable keys of a table, with the maximum of their sequence numbers.
struct Damage {
    keys: (Bound<Bytes>, Bound<Bytes>),
    largest_sequence: u64,
}

impl Repair<'_> {
    /// Copies the entry with the largest sequence number of each key.
    pub(super) fn merged(&mut self, saved: &mut Saved, state: &KeyspaceState) -> Result<()> {
        let open_files = Arc::new(OpenFiles::new(OPEN_FILES));
        let mode = crate::ReadMode::Pread;
        let files = TableFiles::new(Arc::clone(self.fs()), mode, open_files, Arc::default(), false);
        let (mut tables, mut damages): (Vec<(Opened, &TableMeta)>, _) = (Vec::new(), Vec::new());
        for meta in state.tables.values() {
            let mut opened = self.open_table(meta, &files)?;
            let largest_sequence = meta.largest_sequence;
            let doubts = opened.doubts.drain(..);
            damages.extend(doubts.map(|keys| Damage { keys, largest_sequence }));
            opened.ranges.iter().flat_map(|ranges| ranges.iter()).for_each(|range| {
                saved.ranges.insert(range.clone());
            });
            tables.push((opened, meta));
        }
        let mut heap = BinaryHeap::new();
        for table in 0..tables.len() {
            heap.extend(head(&tables, table).map(Reverse));
        }
        // The damage of any table counts: the order of tables is unknown.
        saved.doubts.extend(damages.iter().map(|damage| damage.keys.clone()));
        let mut last: Option<Vec<u8>> = None;
        let mut copied: Option<Copied> = None;
        while let Some(Reverse(Head { user_key, sequence, table })) = heap.pop() {
            let (opened, meta) = &mut tables[table];
            if last.as_ref() == Some(&user_key) {
                if let (Some(copied), Some(key)) = (&mut copied, opened.entries.key()) {
                    self.add_older(copied, opened, key)?;
                }
            } else {
                if let Some(before) = copied.take() {
                    saved.merge(self.older, &before, 0)?;
                }
                let may_be_newer = |damage: &Damage| {
                    damage.largest_sequence >= sequence && damage.keys.contains(&*user_key)
                };
                let is_older = damages.iter().any(may_be_newer);
                if let Some(key) = opened.entries.key() {
                    let cover = saved.ranges.newest_cover(&user_key, SEQUENCE_MAX).unwrap_or(0);
                    copied = self.newest(saved, opened, key, (is_older, cover))?;
                }
                if sequence > state.flushed {
                    saved.compare_newest(sequence, &user_key);
                }
            }
            if let Err(error) = opened.entries.next() {
                let error = table_error(&opened.path, error);
                let keys = opened.keys_behind(meta, Some(&user_key));
                let largest_sequence = meta.largest_sequence;
                saved.doubts.push(keys.clone());
                damages.push(Damage { keys: keys.clone(), largest_sequence });
                copied.iter_mut().for_each(Copied::doubt);
                self.stopped(&error, keys)?;
            }
            last = Some(user_key);
            heap.extend(head(&tables, table).map(Reverse));
        }
        copied.map_or(Ok(()), |last| saved.merge(self.older, &last, 0))
    }

    /// Records that the rest of a table cannot be read.
    pub(super) fn stopped(
        &mut self,
        error: &Error,
        keys: (Bound<Bytes>, Bound<Bytes>),
    ) -> Result<()> {
        check_lost(error)?;
        self.found.error_of_keys(error, Some(keys));
        Ok(())
    }
}

fn head(tables: &[(Opened, &TableMeta)], table: usize) -> Option<Head> {
    let key = tables[table].0.entries.key()?;
    let (user_key, sequence) = (key.user_key.to_vec(), key.trailer.sequence());
    Some(Head { user_key, sequence, table })
}
