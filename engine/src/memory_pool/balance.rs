//! Balances the ceiling of memtables against the block cache, by measured benefit. Pure.
//!
//! The ceiling is a share of its nominal value, from 16/64 to 64/64. After each epoch, in which
//! half of `M` was written, the benefits of a byte of memory are compared, as bytes of I/O:
//!
//! * **block cache**: bytes that its ghost list would have saved, over the bytes of the list;
//! * **memtables**: `(merged / ln(T / M) + found) / (M / 2)`.
//!
//! Active memtables may take `M` bytes, and take half of that on average. Compactions read and
//! wrote `merged` bytes. Tables take `T` bytes. Lookups would have read `found` bytes for entries
//! that memtables had: memtables are a cache of recent writes.
//!
//! Source of the term for merges: Luo and Carey, "Breaking Down Memory Walls: Adaptive Memory
//! Management in LSM-based Storage Systems", PVLDB 14(3), 2020. There memtables are always full,
//! and lookups that end in them do not count.
//!
//! The share falls or rises by 8/64 if one benefit is more than twice the other. A step changes
//! their ratio by less than that, so a steady load does not make the share oscillate. The share
//! returns to 64/64 at once if a write would be delayed, or in an epoch in which the cache saves
//! less than 1/8 of what memtables save by fewer merges. Then it does not fall for [`EPOCHS_MIN`]
//! epochs.

use sievedb_sstable::GhostStats;

/// Largest share of the nominal ceiling, in 1/64.
const SHARE_MAX: u64 = 64;

const SHARE_MIN: u64 = 16;

const SHARE_STEP: u64 = 8;

/// Factor by which a benefit must exceed the other to outweigh it.
const DEAD_BAND: f64 = 2.0;

/// Ratio of the benefit of memtables to that of the cache, above which an epoch has a write burst.
const BURST: f64 = 8.0;

/// Number of epochs after the start and after a return in which the share does not fall. With the
/// nominal ceiling these are four flushes, which make level 0 due.
const EPOCHS_MIN: u32 = 8;

/// Minimum number of sampled reads for the share to fall.
const SAMPLES_MIN: f64 = 8.0;

/// Decay of the sums of reads in each epoch.
const READS_KEPT: f64 = 1.0 / 2.0;

/// Decay of the merged bytes in each epoch: large merges are rare, and a merge of level 0 follows
/// each fourth flush.
const MERGED_KEPT: f64 = 31.0 / 32.0;

#[derive(Debug)]
pub(super) struct Balance {
    share: u64,
    /// Number of epochs since the start, or since the share returned.
    epochs: u32,
    /// Memory of memtables flushed so far.
    flushed: u64,
    /// Bytes written to memtables so far.
    written: u64,
    /// `written` at the end of the last epoch.
    epoch_start: u64,
    /// Ghost statistics at the end of the last epoch.
    spared: GhostStats,
    /// Reads at the end of the last epoch.
    reads: Reads,
    /// Bytes merged in this epoch.
    merged: u64,
    sums: Sums,
    moves: CeilingMoves,
}

/// Decayed sums over epochs, in bytes except for the samples.
#[derive(Debug, Default)]
struct Sums {
    spared: f64,
    samples: f64,
    found: f64,
    /// Bytes written in the epochs of `spared` and `found`.
    read_written: f64,
    merged: f64,
    /// Bytes written in the epochs of `merged`.
    merged_written: f64,
}

/// Lookups so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reads {
    pub(super) lookups: u64,
    /// Lookups that ended in memtables.
    pub(super) found: u64,
    /// Bytes that the other lookups read from tables.
    pub(super) bytes: u64,
}

impl Reads {
    /// Returns the bytes that lookups since `before` would have read for entries that memtables
    /// had.
    fn found_bytes_since(&self, before: &Self) -> f64 {
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let found = since(self.found, before.found);
        let in_tables = since(self.lookups, before.lookups).saturating_sub(found).max(1);
        since(self.bytes, before.bytes) as f64 * found as f64 / in_tables as f64
    }
}

/// State at the end of an epoch, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    /// Nominal ceiling of memtables.
    pub(super) nominal: u64,
    pub(super) spared: GhostStats,
    pub(super) reads: Reads,
    /// Size that the ghost list simulates.
    pub(super) ghost_bytes: u64,
    pub(super) table_bytes: u64,
}

/// Number of changes of the share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CeilingMoves {
    pub(super) lowered: u64,
    pub(super) raised: u64,
    pub(super) returned: u64,
}

impl Default for Balance {
    fn default() -> Self {
        Self {
            share: SHARE_MAX,
            epochs: 0,
            flushed: 0,
            written: 0,
            epoch_start: 0,
            spared: GhostStats::default(),
            reads: Reads::default(),
            merged: 0,
            sums: Sums::default(),
            moves: CeilingMoves::default(),
        }
    }
}

impl Balance {
    pub(super) fn ceiling(&self, nominal: u64) -> u64 {
        match self.share {
            SHARE_MAX => nominal,
            share => nominal / SHARE_MAX * share,
        }
    }

    pub(super) fn moves(&self) -> CeilingMoves {
        self.moves
    }

    pub(super) fn note_flush(&mut self, bytes: u64) {
        self.flushed = self.flushed.saturating_add(bytes);
    }

    pub(super) fn note_merge(&mut self, bytes: u64) {
        self.merged = self.merged.saturating_add(bytes);
    }

    /// Restores the nominal ceiling for writes that the current ceiling would delay.
    pub(super) fn restore(&mut self) {
        if self.share < SHARE_MAX {
            self.share = SHARE_MAX;
            self.moves.returned += 1;
            self.epochs = 0;
            let Sums { merged, merged_written, .. } = self.sums;
            self.sums = Sums { merged, merged_written, ..Sums::default() };
        }
    }

    /// Returns `true` if enough was written since the last epoch; memtables take `memtables` bytes.
    pub(super) fn is_epoch_over(&mut self, nominal: u64, memtables: u64) -> bool {
        self.written = self.flushed.saturating_add(memtables);
        // Memtables may be dropped with their keyspace.
        self.epoch_start = self.epoch_start.min(self.written);
        let least = self.ceiling(nominal) / 4;
        least > 0 && self.written - self.epoch_start >= least
    }

    pub(super) fn end_epoch(&mut self, now: &Observed) {
        let written = self.written - self.epoch_start;
        let active = self.ceiling(now.nominal) / 2;
        let spared = now.spared.spared_bytes - self.spared.spared_bytes;
        let samples = now.spared.samples - self.spared.samples;
        let found = now.reads.found_bytes_since(&self.reads);
        (self.epoch_start, self.spared, self.reads) = (self.written, now.spared, now.reads);
        let (written, spared) = (written as f64, spared as f64);
        let merged = std::mem::take(&mut self.merged) as f64;
        self.sums.add_reads(written, spared, samples as f64, found);
        self.sums.add_merges(written, merged);
        self.epochs = self.epochs.saturating_add(1);
        let Sums { spared: sum, samples, found, read_written, merged, merged_written } = self.sums;
        if merged == 0.0 {
            // The savings of memtables are unknown.
            return;
        }
        // All benefits are for one byte of memory and one byte written.
        let per_cache_byte = |spared: f64, written: f64| spared / written / now.ghost_bytes as f64;
        let of_cache = per_cache_byte(sum, read_written);
        let levels = (now.table_bytes as f64 / active as f64).ln().max(1.0);
        let held = active as f64 / 2.0;
        let of_merges = merged / merged_written / levels / held;
        let of_memtables = of_merges + found / read_written / held;
        if of_merges > BURST * per_cache_byte(spared, written) {
            self.restore();
        } else if of_memtables > DEAD_BAND * of_cache {
            self.raise();
        } else if of_cache > DEAD_BAND * of_memtables
            && self.epochs > EPOCHS_MIN
            && samples >= SAMPLES_MIN
        {
            self.lower();
        }
    }

    #[cfg(all(test, not(feature = "shuttle")))]
    pub(super) fn lower_fully(&mut self) {
        self.share = SHARE_MIN;
    }

    fn raise(&mut self) {
        if self.share < SHARE_MAX {
            self.share += SHARE_STEP;
            self.moves.raised += 1;
        }
        debug_assert!((SHARE_MIN..=SHARE_MAX).contains(&self.share));
    }

    fn lower(&mut self) {
        if self.share > SHARE_MIN {
            self.share -= SHARE_STEP;
            self.moves.lowered += 1;
        }
        debug_assert!((SHARE_MIN..=SHARE_MAX).contains(&self.share));
    }
}

impl Sums {
    fn add_reads(&mut self, written: f64, spared: f64, samples: f64, found: f64) {
        let sums = [&mut self.spared, &mut self.samples, &mut self.found, &mut self.read_written];
        for (sum, new) in sums.into_iter().zip([spared, samples, found, written]) {
            *sum = *sum * READS_KEPT + new;
        }
    }

    fn add_merges(&mut self, written: f64, merged: f64) {
        for (sum, new) in [(&mut self.merged, merged), (&mut self.merged_written, written)] {
            *sum = *sum * MERGED_KEPT + new;
        }
    }
}

#[cfg(test)]
mod tests;
