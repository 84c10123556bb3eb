//! Compactions that free the space of expired entries.
//!
//! An expired entry counts as a tombstone. A table is due when more than half of its entries are
//! expired or tombstones: a compaction then frees at least as much as it writes. If a rewrite keeps
//! tombstones, more than a fourth of the entries must be expired as well: otherwise the tombstones
//! of the last rewrite would make the table due with each entry that expires. The table with the
//! most expired bytes is first.
//!
//! * A table whose entries have all expired is unlinked without a read. This requires that no
//!   deeper level may hold an older version of its keys, and that no snapshot is older than any of
//!   its entries. Otherwise older values would be visible again.
//! * A due table of level 0 is compacted with its group, if more than half of the entries of the
//!   group and of the overlapping tables below are expired or tombstones. This rule is first: a
//!   rewrite of the table alone would keep a tombstone for each expired entry.
//! * Otherwise a table with nothing below it, and any of level 0, is rewritten at its place.
//! * Other tables move one level down.
//!
//! The number of expired entries is an estimate from [`TableExpiry`](sievedb_sstable::TableExpiry).
//! After a rewrite it is 0, so no table is chosen again and again.

use super::{
    choice::{Compaction, Reason},
    picker::{Picker, hull},
};
use crate::{compaction_style::CompactionStyle, resolve::ReadPoint, table::TableMeta};

/// Maximum delay of the start of a history, in milliseconds.
const HISTORY_LAG_MS: u64 = 2000;

/// Number of checks for entries that the history no longer needs, per length of the history.
const HISTORY_CHECKS: u64 = 8;

/// Divisor of the entries of a table whose tombstones stay: more of them must be expired.
const EXPIRED_SHARE: u64 = 4;

/// Times of the store clock, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExpiryClock {
    /// Time at which a value that has expired is expired for every snapshot too.
    pub(crate) for_all_ms: u64,
    /// Current time, not before `for_all_ms`.
    pub(crate) now_ms: u64,
    /// The oldest snapshot, unless the start of the history is older by number and by time.
    pub(crate) snapshot: Option<ReadPoint>,
}

impl<'a> Picker<'a> {
    /// Chooses tables to unlink, or the due table with the most expired bytes.
    pub(super) fn pick_expired(&self) -> Option<Compaction> {
        let clock_ms = self.clock.for_all_ms;
        let tables = || self.tables_by_level().filter(|(_, table)| table.expiry.is_some());
        if let Some(chosen) = self.pick_unlinkable().or_else(|| self.pick_expired_group()) {
            return Some(chosen);
        }
        let mut due: Vec<(f64, u8, &'a TableMeta)> = tables()
            .filter(|&(level, table)| self.is_expired(level, table))
            .map(|(level, table)| (expired_bytes(table, clock_ms), level, table))
            .collect();
        due.sort_by(|(left, ..), (right, ..)| right.total_cmp(left));
        due.into_iter().find_map(|(_, level, table)| {
            if level == 0 || self.is_bottom(level, table) {
                self.with_overlap(Reason::Expired, level, vec![table], level)
            } else {
                self.move_down(Reason::Expired, level, vec![table])
            }
        })
    }

    /// Unlinks tables of a level whose entries have all expired.
    pub(super) fn pick_unlinkable(&self) -> Option<Compaction> {
        let is_free = |&(level, table): &(u8, &TableMeta)| self.is_unlinkable(level, table);
        let (level, _) = self.tables_by_level().find(is_free)?;
        let of_level = self.tables_by_level().filter(|&(other, _)| other == level).filter(is_free);
        let tables = of_level.map(|(_, table)| table);
        Compaction::unlink(self.levels, Reason::Expired, level, tables)
    }

    /// Moves a group of level 0 with a due table down, if that frees at least as much as it writes.
    fn pick_expired_group(&self) -> Option<Compaction> {
        let clock_ms = self.clock.for_all_ms;
        let mut groups = self.levels.level0_groups();
        groups.retain(|group| group.iter().any(|table| self.is_expired(0, table)));
        groups.into_iter().find_map(|group| {
            let bounds = hull(&group)?;
            let deeper = (1..=self.levels.last())
                .flat_map(|level| self.levels.overlap(level, &bounds).iter().copied());
            let (mut entries, mut gone) = (0_u64, 0_u64);
            for table in group.iter().copied().chain(deeper) {
                let expiry = table.expiry.as_ref();
                let expired = expiry.map_or(0, |expiry| expiry.expired_entries(clock_ms));
                entries = entries.saturating_add(table.entries);
                gone = gone.saturating_add(table.tombstones).saturating_add(expired);
            }
            let frees_enough = gone > entries / 2;
            frees_enough.then(|| self.move_level0_down(Reason::Expired, group)).flatten()
        })
    }

    /// Returns `true` if a rewrite of `table` is certain to find an expired entry.
    pub(super) fn has_expired(&self, table: &TableMeta) -> bool {
        table.expiry.as_ref().is_some_and(|expiry| expiry.oldest_ms() <= self.clock.for_all_ms)
    }

    /// Returns when the next table may be due, in milliseconds of the store clock.
    pub(crate) fn awaited_clock_ms(&self) -> Option<u64> {
        // The start of a history lags behind by the period at which writes add their times.
        if let CompactionStyle::Fifo(fifo) = &self.options.style {
            let expiries = self.tables_by_level().filter_map(|(_, table)| table.expiry.as_ref());
            let expired = expiries.map(|expiry| expiry.newest_ms());
            let awaited = expired.chain(self.awaited_fifo_ms(fifo));
            return awaited.filter(|&due_ms| self.clock.now_ms < due_ms && due_ms < u64::MAX).min();
        }
        let delay_ms = self.history_ms.map_or(0, |ms| ms.saturating_add(HISTORY_LAG_MS));
        let due = self.tables_by_level().filter_map(|(level, table)| self.expired_at(level, table));
        let of_expiry = due.map(|due_ms| due_ms.saturating_add(delay_ms));
        let has_time = |&history_ms: &u64| history_ms < u64::MAX && self.awaits_history();
        let of_history = self.history_ms.filter(has_time).map(|history_ms| {
            let check_ms = (history_ms / HISTORY_CHECKS).max(HISTORY_LAG_MS);
            self.clock.now_ms.saturating_add(check_ms)
        });
        let awaited = of_expiry.chain(of_history);
        awaited.filter(|&due_ms| self.clock.now_ms < due_ms && due_ms < u64::MAX).min()
    }

    /// Returns `true` if the history keeps tombstones of a table from being dropped.
    fn awaits_history(&self) -> bool {
        self.tables_by_level()
            .any(|(_, table)| self.droppable(table) > 0 && !self.is_droppable(table))
    }

    /// Returns `true` if a table would be due without snapshots.
    pub(super) fn awaits_clock_of_snapshot(&self) -> bool {
        let is_awaited = |due_ms| self.clock.for_all_ms < due_ms && due_ms <= self.clock.now_ms;
        self.tables_by_level()
            .filter_map(|(level, table)| self.expired_at(level, table))
            .any(is_awaited)
    }

    /// Returns `true` if a table is due because of its expired entries.
    fn is_expired(&self, level: u8, table: &TableMeta) -> bool {
        self.expired_at(level, table).is_some_and(|due_ms| due_ms <= self.clock.for_all_ms)
    }

    /// Returns when a table is due, in milliseconds of the store clock; `None` if never.
    fn expired_at(&self, level: u8, table: &TableMeta) -> Option<u64> {
        let expiry = table.expiry.as_ref()?;
        let beside_tombstones = (table.entries / 2).saturating_sub(table.tombstones);
        let least = table.entries / EXPIRED_SHARE;
        let is_short = beside_tombstones < least && self.keeps_tombstones(level, table);
        expiry.time_of(if is_short { least } else { beside_tombstones } + 1)
    }

    /// Returns `true` if a compaction of expired entries leaves the tombstones of a table where
    /// they are: a snapshot or the history needs some, or older versions may be below level 0.
    fn keeps_tombstones(&self, level: u8, table: &TableMeta) -> bool {
        !self.is_seen(table) || level == 0 && !self.is_bottom(level, table)
    }

    fn tables_by_level(&self) -> impl Iterator<Item = (u8, &'a TableMeta)> {
        let level0 = self.levels.level0().iter().flatten().map(|&table| (0, table));
        let deeper = (1..=self.levels.last())
            .flat_map(|level| self.levels.run(level).iter().map(move |&table| (level, table)));
        level0.chain(deeper)
    }

    /// Returns `true` if no other table may have an older version of a key of `table`.
    fn is_bottom(&self, level: u8, table: &TableMeta) -> bool {
        let is_older = |other: &&TableMeta| level == 0 && other.run < table.run;
        let mut older = self.levels.level0().iter().flatten().copied().filter(is_older);
        !older.any(|other| other.bounds.overlaps(&table.bounds))
            && (level.max(1)..=self.levels.last())
                .filter(|&deeper| deeper > level)
                .all(|deeper| self.levels.overlap(deeper, &table.bounds).is_empty())
    }

    /// Returns whether a table could be unlinked if there were no snapshot.
    pub(super) fn awaits_snapshot_to_unlink(&self) -> bool {
        let now_ms = self.clock.now_ms;
        self.tables_by_level().any(|(level, table)| self.is_unlinkable_at(now_ms, level, table))
    }

    fn is_unlinkable(&self, level: u8, table: &TableMeta) -> bool {
        self.is_seen(table) && self.is_unlinkable_at(self.clock.for_all_ms, level, table)
    }

    /// As [`is_unlinkable`](Self::is_unlinkable) for readers at `clock_ms` that see all entries.
    fn is_unlinkable_at(&self, clock_ms: u64, level: u8, table: &TableMeta) -> bool {
        let Some(expiry) = &table.expiry else { return false };
        expiry.newest_ms() <= clock_ms
            && expiry.entries.saturating_add(table.tombstones) == table.entries
            && !self.levels.is_busy(table)
            && !self.levels.is_quarantined(table)
            && self.is_bottom(level, table)
    }
}

/// Estimates the bytes of the file that expired entries take.
fn expired_bytes(table: &TableMeta, clock_ms: u64) -> f64 {
    let expired = table.expiry.as_ref().map_or(0, |expiry| expiry.expired_entries(clock_ms));
    table.bytes as f64 * expired as f64 / table.entries.max(1) as f64
}
