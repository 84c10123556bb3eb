//! Merges the tables of a keyspace whose order is unknown without a manifest.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
};

use sievedb_format::SEQUENCE_MAX;

use super::{
    Repair, Saved,
    copied::Copied,
    doubts::{Damage, MergedDamages},
    lost::check_lost,
    tables::{Keys, Opened},
};
use crate::{
    Error, Result,
    manifest::KeyspaceState,
    open_files::OpenFiles,
    table::{TableMeta, files::TableFiles, table_error},
};

const OPEN_FILES: usize = 64;

/// The next entry of a table.
#[derive(PartialEq, Eq)]
struct Head {
    user_key: Vec<u8>,
    sequence: u64,
    /// The table is ingested, and newer than entries with its sequence number.
    is_unordered: bool,
    /// Its id.
    table: u64,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |head: &Self| Reverse((head.sequence, head.is_unordered, head.table));
        self.user_key.cmp(&other.user_key).then_with(|| key(self).cmp(&key(other)))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Repair<'_> {
    /// Copies the entry with the largest sequence number of each key. The order of an ingested
    /// table without a known number and of entries with a larger one is unknown.
    pub(super) fn merged(&mut self, saved: &mut Saved, state: &KeyspaceState) -> Result<()> {
        let open_files = Arc::new(OpenFiles::new(OPEN_FILES));
        let mode = crate::ReadMode::Pread;
        let files = TableFiles::new(Arc::clone(self.fs()), mode, open_files, Arc::default(), false);
        let mut unopened: Vec<&TableMeta> = state.tables.values().map(Arc::as_ref).collect();
        unopened.sort_by(|one, other| other.bounds.smallest.cmp(&one.bounds.smallest));
        let (mut tables, mut damages) = (BTreeMap::new(), MergedDamages::default());
        let mut heap = BinaryHeap::new();
        // The newest entry of the current key.
        let mut last: Option<(Vec<u8>, u64)> = None;
        let mut copied: Option<Copied> = None;
        loop {
            // Each open table has blocks in memory.
            let is_next = |meta: &mut &TableMeta| {
                let next: Option<&Reverse<Head>> = heap.peek();
                next.is_none_or(|Reverse(head)| *meta.bounds.smallest <= *head.user_key)
            };
            if let Some(meta) = unopened.pop_if(is_next) {
                let mut opened = self.open_table(meta, &files)?;
                for keys in opened.doubts.drain(..) {
                    // The damage of any table counts: the order of tables is unknown.
                    saved.doubts.add(keys.clone());
                    damages.add(self.damage(meta, keys));
                }
                opened.ranges.iter().flat_map(|ranges| ranges.iter()).for_each(|range| {
                    saved.ranges.insert(range.clone());
                });
                if let Some(head) = self.head(&opened, meta.id) {
                    heap.push(Reverse(head));
                    tables.insert(meta.id, (opened, meta));
                }
                continue;
            }
            let Some(Reverse(Head { user_key, sequence, is_unordered, table })) = heap.pop() else {
                break;
            };
            let (opened, meta) = tables.get_mut(&table).expect("a head is of an open table");
            let newest = last.as_ref().filter(|(last, _)| *last == user_key).map(|last| last.1);
            if let Some(newest) = newest {
                if is_unordered && sequence < newest {
                    match &mut copied {
                        Some(copied) => copied.doubt_order(),
                        None => saved.note_older(self.older, &user_key, |_| Ok(()))?,
                    }
                }
                if let (Some(copied), Some(key)) = (&mut copied, opened.entries.key()) {
                    self.add_older(copied, opened, key)?;
                }
            } else {
                if let Some(before) = copied.take() {
                    saved.merge(self.older, &before, None)?;
                }
                let is_older = damages.may_be_newer(&user_key, sequence);
                if let Some(key) = opened.entries.key() {
                    let cover = saved.ranges.newest_cover(&user_key, SEQUENCE_MAX).unwrap_or(0);
                    let is_older = is_older || is_unordered && cover > sequence;
                    copied = self.newest(saved, opened, key, (is_older, cover))?;
                }
                if sequence > state.flushed {
                    saved.compare_newest(sequence, &user_key);
                }
            }
            if let Err(error) = opened.entries.next() {
                let error = table_error(&opened.path, error);
                let keys = opened.keys_behind(meta, Some(&user_key));
                saved.doubts.add(keys.clone());
                damages.add(self.damage(meta, keys.clone()));
                copied.iter_mut().for_each(Copied::doubt);
                self.stopped(&error, keys)?;
            }
            last = Some((user_key, newest.unwrap_or(sequence)));
            match self.head(opened, table) {
                Some(head) => heap.push(Reverse(head)),
                None => drop(tables.remove(&table)),
            }
        }
        copied.map_or(Ok(()), |last| saved.merge(self.older, &last, None))
    }

    /// Records that the rest of a table cannot be read.
    pub(super) fn stopped(&mut self, error: &Error, keys: Keys) -> Result<()> {
        check_lost(error)?;
        self.found.error_of_keys(error, Some(keys));
        Ok(())
    }

    /// Returns the current entry of the table with the id `table`.
    fn head(&self, opened: &Opened, table: u64) -> Option<Head> {
        let key = opened.entries.key()?;
        let (user_key, sequence) = (key.user_key.to_vec(), key.trailer.sequence());
        Some(Head { user_key, sequence, is_unordered: self.unordered.contains(&table), table })
    }

    fn damage(&self, meta: &TableMeta, keys: Keys) -> Damage {
        let is_unordered = self.unordered.contains(&meta.id);
        let largest_sequence = if is_unordered { SEQUENCE_MAX } else { meta.largest_sequence };
        Damage { keys, largest_sequence }
    }
}
