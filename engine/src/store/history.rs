//! Start of the history of a keyspace, and lookup of points in it.

use std::{sync::Arc, time::SystemTime};

use super::Store;
use crate::{
    Error, HistoryLength, PointInTime, history_length::HistoryStart, read::tree::Tree,
    resolve::ReadPoint, sequence_times::SequenceTimes,
};

/// A point in the past of a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PastPoint {
    pub(crate) at: ReadPoint,
    /// The point was given by this time of the store clock, in milliseconds.
    by_time_ms: Option<u64>,
}

impl Store {
    /// Begins to note when writes are placed, for histories and archives.
    pub(crate) fn begin_history(&self) {
        let placement = self.writer.placement();
        self.versions.begin_times(self.options.clock.now(), placement.last_placed());
    }

    /// Begins every history at the present. Returns the keyspaces, and where their histories begin.
    pub(crate) fn begin_histories(&self) -> Vec<(u64, HistoryStart)> {
        let trees: Vec<_> = self.versions.trees().values().cloned().collect();
        let with_history = trees.iter().filter(|tree| tree.history_length().is_some());
        let begin = |tree: &Arc<Tree>| {
            let present = self.present();
            self.versions.snapshots().exclude(|| tree.raise_history_from(present));
            (tree.id, present)
        };
        with_history.map(begin).collect()
    }

    /// Returns the start of a history that begins now.
    pub(super) fn present(&self) -> HistoryStart {
        // Before the clock: nothing is placed at a later time that is visible now.
        let sequence = self.writer.visible();
        HistoryStart { sequence, clock_ms: self.versions.clock().now_ms() }
    }

    /// Returns where the history of `tree` begins; `None` without one.
    pub(crate) fn history_start(&self, tree: &Tree) -> Option<HistoryStart> {
        let length = tree.history_length()?;
        // Before the clock: nothing is placed at a later time that is visible now.
        let visible = self.writer.visible();
        let now_ms = self.versions.clock().now_ms();
        let by_length = self.versions.with_times(|times| start_of(length, visible, now_ms, times));
        let from = tree.history_from();
        let sequence = by_length.sequence.max(from.sequence).min(visible);
        Some(HistoryStart { sequence, clock_ms: by_length.clock_ms.max(from.clock_ms) })
    }

    /// As [`history_start`](Self::history_start), for a flush or a compaction, which drops what no
    /// reader from there on sees. The caller holds the lock of the snapshots.
    pub(super) fn cut_history(&self, tree: &Tree) -> Option<HistoryStart> {
        let start = self.history_start(tree)?;
        tree.raise_history_from(start);
        Some(start)
    }

    /// Returns the point in the past that `point` names; `None` for a sequence number of the
    /// future, and for a time before every known one.
    pub(crate) fn past_point(&self, point: PointInTime) -> Option<PastPoint> {
        let visible = self.writer.visible();
        let now_ms = self.versions.clock().now_ms();
        match point {
            PointInTime::Sequence(sequence) if sequence > visible => None,
            PointInTime::Sequence(sequence) => {
                // When it was written, not when the next one was.
                let before = sequence.saturating_sub(1);
                let written_ms = self.versions.with_times(|times| times.time_of(before));
                let written_ms = written_ms.unwrap_or(0).min(now_ms);
                let clock_ms = if sequence == visible { now_ms } else { written_ms };
                Some(PastPoint { at: ReadPoint::at_time(sequence, clock_ms), by_time_ms: None })
            }
            PointInTime::Time(time) => {
                let ms = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis();
                // The store clock may be behind the wall clock.
                let ms = u64::try_from(ms).map_or(now_ms, |ms| ms.min(now_ms));
                let sequence = self.versions.with_times(|times| {
                    times.sequence_before(ms)?;
                    Some(times.sequence_at(ms).map_or(visible, |placed| placed.min(visible)))
                })?;
                let at = ReadPoint::at_time(sequence, ms);
                Some(PastPoint { at, by_time_ms: Some(ms) })
            }
        }
    }

    /// Returns the clock that a reader of `tree` at `past` needs at least, in milliseconds; `None`
    /// if the point is not in its history.
    pub(crate) fn clock_in_history(&self, tree: &Tree, past: PastPoint) -> Option<u64> {
        let start = self.history_start(tree)?;
        let is_too_old = past.by_time_ms.is_some_and(|ms| ms < start.clock_ms);
        (past.at.sequence >= start.sequence && !is_too_old).then_some(start.clock_ms)
    }

    /// Returns the error of a read of `tree` at a point that its history does not have.
    pub(crate) fn not_in_history(&self, tree: &Tree, at: PointInTime) -> Error {
        let oldest = self.history_start(tree).map(|start| start.sequence);
        Error::NotInHistory { keyspace: tree.name(), at, oldest }
    }
}

/// Returns where a history of `length` begins, by what is visible at `now_ms`.
fn start_of(
    length: HistoryLength,
    visible: u64,
    now_ms: u64,
    times: &SequenceTimes,
) -> HistoryStart {
    match length {
        HistoryLength::Sequences(count) => {
            let sequence = visible.saturating_sub(count);
            // Readers from there on are not older than the write.
            let clock_ms = times.time_of(sequence.saturating_sub(1)).unwrap_or(0);
            HistoryStart { sequence, clock_ms }
        }
        HistoryLength::Time(_) => {
            let clock_ms = now_ms.saturating_sub(length.ms());
            let sequence = match times.is_later_than_all(clock_ms) {
                true => visible,
                false => times.sequence_before(clock_ms).unwrap_or(0),
            };
            HistoryStart { sequence, clock_ms }
        }
    }
}
