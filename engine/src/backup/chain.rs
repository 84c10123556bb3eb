//! Chooses the backup and the parts of the log for a restore.

use std::{iter, time::SystemTime};

use sievedb_format::{Corruption, SequenceNumber};

use super::{
    BackupSet, RestoreOptions,
    log_part::{LogPart, PartRange},
    objects::LOG,
    record::Record,
};
use crate::{Error, PointInTime, Result};

/// A backup, and the parts of the log that a restore adds to it.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) number: u64,
    pub(super) record: Record,
    /// Parts in order, without a gap.
    pub(super) parts: Vec<PartRange>,
    /// Last sequence number to restore.
    pub(super) last: SequenceNumber,
    /// Time of the store clock to restore; `None` for the newest time that parts up to `last` have.
    pub(super) at_ms: Option<u64>,
}

impl BackupSet {
    /// Returns the chain that `options` select.
    ///
    /// # Errors
    ///
    /// As [`restore_with`](Self::restore_with).
    pub(super) fn chain(&self, options: &RestoreOptions) -> Result<Chain> {
        let (number, record) = self.first(options)?;
        let last = record.sequence;
        let chain = Chain { number, record, parts: Vec::new(), last, at_ms: None };
        let ranges = self.parts()?;
        let ranges = || ranges.iter().copied().filter(|range| range.backup == number);
        match options.to {
            None if options.backup.is_some() => Ok(chain),
            None => self.up_to_sequence(chain, ranges(), None),
            Some(PointInTime::Sequence(at)) => self.up_to_sequence(chain, ranges(), Some(at)),
            Some(PointInTime::Time(at)) => self.up_to_time(chain, ranges(), at),
        }
    }

    /// Returns the newest backup of the store `store_id` with its archived log. Returns `None` if
    /// it is no newer than the backup `number` with its log up to `sequence`.
    ///
    /// # Errors
    ///
    /// [`Error::NoBackup`] if the set has neither that backup nor a newer one of the store; as
    /// [`chain`](Self::chain).
    pub(super) fn newer_chain(
        &self,
        store_id: u128,
        (number, sequence): (u64, SequenceNumber),
    ) -> Result<Option<Chain>> {
        let numbers = self.numbers()?.into_iter().filter(|&newer| newer >= number).collect();
        // A prune keeps the newest backup of each store.
        let gone = || Error::NoBackup { path: self.path.clone(), number };
        let (newest, record) = self.of_store(store_id, numbers).next().ok_or_else(gone)??;
        let ranges = self.parts()?;
        let ranges = || ranges.iter().copied().filter(|range| range.backup == newest);
        let end = covering(record.sequence, None, ranges()).end;
        if end < sequence || (end == sequence && newest == number) {
            return Ok(None);
        }
        let last = record.sequence;
        let chain = Chain { number: newest, record, parts: Vec::new(), last, at_ms: None };
        self.up_to_sequence(chain, ranges(), None).map(Some)
    }

    /// Returns the backups of a store, newest first. `numbers` ascend.
    fn of_store(
        &self,
        store_id: u128,
        numbers: Vec<u64>,
    ) -> impl Iterator<Item = Result<(u64, Record)>> {
        self.records(numbers.into_iter().rev()).filter(move |it| {
            it.as_ref().map_or(true, |(_, record)| record.state.store_id == store_id)
        })
    }

    /// Returns the backup that a restore begins with.
    fn first(&self, options: &RestoreOptions) -> Result<(u64, Record)> {
        let is_before = |record: &Record| match options.to {
            None => true,
            Some(PointInTime::Sequence(last)) => record.sequence <= last,
            Some(PointInTime::Time(time)) => record.state.store_clock_ms <= milliseconds(time),
        };
        let not_archived = |archived_to| {
            let at = options.to.unwrap_or(PointInTime::Sequence(0));
            Error::NotArchived { path: self.path.clone(), at, archived_to }
        };
        if let Some(number) = options.backup {
            let record = self.record(number)?;
            let begins = record.sequence;
            return if is_before(&record) {
                Ok((number, record))
            } else {
                Err(not_archived(begins))
            };
        }
        let numbers = self.numbers()?;
        let empty = || Error::NoBackup { path: self.path.clone(), number: 0 };
        let newest = self.records(numbers.iter().rev().copied()).next().ok_or_else(empty)??;
        let (mut begins, store_id) = (newest.1.sequence, newest.1.state.store_id);
        let older = numbers.into_iter().filter(|&number| number < newest.0).collect();
        for backup in iter::once(Ok(newest)).chain(self.of_store(store_id, older)) {
            let (number, record) = backup?;
            if is_before(&record) {
                return Ok((number, record));
            }
            begins = record.sequence;
        }
        Err(not_archived(begins))
    }

    /// Adds the parts up to `last`, or all parts.
    fn up_to_sequence(
        &self,
        mut chain: Chain,
        ranges: impl Iterator<Item = PartRange>,
        last: Option<SequenceNumber>,
    ) -> Result<Chain> {
        let Covered { parts, end, gap } = covering(chain.record.sequence, last, ranges);
        let is_short = last.is_none_or(|last| last > end);
        if let Some(gap) = gap.filter(|_| is_short) {
            return Err(self.missing_part(gap));
        }
        if let Some(at) = last.filter(|_| is_short) {
            return Err(self.not_archived(at.into(), end));
        }
        (chain.parts, chain.last) = (parts, last.unwrap_or(end));
        Ok(chain)
    }

    /// Adds the parts up to the time `at`. Reads them, because their names have no times.
    fn up_to_time(
        &self,
        mut chain: Chain,
        ranges: impl Iterator<Item = PartRange>,
        at: SystemTime,
    ) -> Result<Chain> {
        let at_ms = milliseconds(at);
        let Covered { parts, end, gap } = covering(chain.record.sequence, None, ranges);
        let of_store = chain.record.state.store_id;
        let mut known_ms = chain.record.state.store_clock_ms;
        for range in parts {
            if known_ms >= at_ms {
                break;
            }
            let part = self.part(range, of_store)?;
            let whole = part.whole_ms.map(|ms| (ms, range.upto));
            for (ms, last) in part.samples.into_iter().chain(whole) {
                if ms <= at_ms {
                    chain.last = chain.last.max(last);
                }
            }
            known_ms = known_ms.max(part.whole_ms.unwrap_or(0));
            chain.parts.push(range);
        }
        if known_ms < at_ms {
            let not_archived = || self.not_archived(at.into(), end);
            return Err(gap.map_or_else(not_archived, |gap| self.missing_part(gap)));
        }
        chain.at_ms = Some(at_ms);
        Ok(chain)
    }

    fn not_archived(&self, at: PointInTime, archived_to: u64) -> Error {
        Error::NotArchived { path: self.path.clone(), at, archived_to }
    }

    /// Returns the error of a missing part that would begin with `gap`.
    pub(super) fn missing_part(&self, gap: PartRange) -> Error {
        let path = self.path.join(LOG).join(gap.name());
        Error::corrupt(path, 0, Corruption::Missing { what: "part of the archived log" })
    }

    /// Returns the ranges of all parts, ascending.
    pub(super) fn parts(&self) -> Result<Vec<PartRange>> {
        let names = self.objects.list(LOG);
        let names = names.map_err(|error| Error::io("list", self.path.join(LOG), error))?;
        let mut ranges: Vec<_> = names.iter().filter_map(|name| PartRange::parse(name)).collect();
        ranges.sort_unstable();
        Ok(ranges)
    }

    /// Reads a part, which must be of the store `store_id`.
    pub(super) fn part(&self, range: PartRange, store_id: u128) -> Result<LogPart> {
        let name = format!("{LOG}/{}", range.name());
        let path = self.path.join(&name);
        let corrupt = |source| Error::corrupt(&path, 0, source);
        // A batch may have any length, and so may its part.
        let part = LogPart::decode(&self.content(&name, u64::MAX)?.into());
        let part = part.map_err(|source| corrupt(source).of_opening())?;
        if part.range != range || part.store_id != store_id {
            let (expected, found) = (range.after, part.range.after);
            let what = "range of a part of the archived log";
            return Err(corrupt(Corruption::Mismatch { what, expected, found }));
        }
        Ok(part)
    }
}

/// Consecutive parts of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Covered {
    pub(super) parts: Vec<PartRange>,
    pub(super) end: SequenceNumber,
    /// Range of the missing part, if a later one exists.
    pub(super) gap: Option<PartRange>,
}

/// Returns consecutive parts from `from` to `last`, or to the first gap. `ranges` must ascend.
pub(super) fn covering(
    from: SequenceNumber,
    last: Option<SequenceNumber>,
    ranges: impl Iterator<Item = PartRange>,
) -> Covered {
    let mut covered = Covered { parts: Vec::new(), end: from, gap: None };
    for range in ranges {
        let end = covered.end;
        if last.is_some_and(|last| end >= last) {
            break;
        }
        if range.after > end {
            covered.gap = Some(PartRange { after: end, upto: range.after, ..range });
            break;
        }
        // An empty part records the time up to which the log is complete.
        if range.upto > end || (range.upto == end && range.after == end) {
            covered.end = range.upto;
            covered.parts.push(range);
        }
    }
    covered
}

pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(all: &[(u64, u64)]) -> Vec<PartRange> {
        all.iter().map(|&(after, upto)| PartRange { backup: 1, after, upto }).collect()
    }

    #[test]
    fn parts_follow_one_another_up_to_a_gap() {
        let all = ranges(&[(5, 5), (5, 9), (5, 11), (9, 14), (14, 14), (14, 20)]);
        let covering = |last| covering(5, last, all.iter().copied());
        let covered = |parts: &[PartRange], end, gap: Option<PartRange>| Covered {
            parts: parts.to_vec(),
            end,
            gap,
        };
        assert_eq!(covering(None), covered(&all, 20, None));
        assert_eq!(covering(Some(14)), covered(&all[..4], 14, None));
        assert_eq!(covering(Some(5)), covered(&[], 5, None));
        let without = ranges(&[(5, 9), (14, 20)]);
        let gap = ranges(&[(9, 14)])[0];
        let covering = |last| super::covering(5, last, without.iter().copied());
        assert_eq!(covering(None), covered(&without[..1], 9, Some(gap)));
        assert_eq!(covering(Some(9)), covered(&without[..1], 9, None));
    }
}
