//! Log segments retained only for the change stream.

use std::collections::BTreeMap;

use sievedb_format::{Corruption, SEQUENCE_MAX, SequenceNumber};

use super::edit::VersionEdit;
use crate::{change_retention::ChangeRetention, log::fields::Field};

/// The changes that a store keeps: those of these segments, and of the later log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetainedChanges {
    pub(crate) limits: ChangeRetention,
    /// Sequence number after which every batch is kept. A batch counts by its last sequence number.
    pub(crate) from: SequenceNumber,
    /// Segments by id. All are below the floor of the log, and hold consecutive parts of the
    /// history.
    pub(crate) logs: BTreeMap<u64, RetainedLog>,
}

/// A durable segment that recovery does not replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetainedLog {
    /// Secret of its header.
    pub(crate) secret: u64,
    /// Its last sequence number.
    pub(crate) last_sequence: SequenceNumber,
    /// Its logical end.
    pub(crate) bytes: u64,
    /// Store clock when the log no longer needed it, in milliseconds.
    pub(crate) retired_ms: u64,
}

/// The newest changes that are no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetainedFloor {
    /// Segments with a smaller id are obsolete.
    pub(crate) id: u64,
    /// The new [`RetainedChanges::from`].
    pub(crate) from: SequenceNumber,
}

/// Retention of changes from an edit on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetentionChanged {
    pub(crate) limits: ChangeRetention,
    /// Start of the retention. Used only if no changes were kept before.
    pub(crate) from: SequenceNumber,
}

impl RetainedChanges {
    /// Returns the length of the segments, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.logs.values().fold(0, |sum, log| sum.saturating_add(log.bytes))
    }

    /// Returns the segments with kept changes, oldest first. Other segments have no record: each
    /// append to them failed.
    pub(crate) fn logs_with_changes(&self) -> impl Iterator<Item = (u64, RetainedLog)> {
        let mut before = self.from;
        self.logs.iter().filter_map(move |(&id, &log)| {
            let has_changes = log.last_sequence > before;
            before = before.max(log.last_sequence);
            has_changes.then_some((id, log))
        })
    }

    /// Returns the segments, oldest first.
    pub(super) fn to_logs(&self) -> Vec<(u64, RetainedLog)> {
        self.logs.iter().map(|(&id, &log)| (id, log)).collect()
    }

    /// Returns the floor that drops the segments exceeding the limits; `None` if there are none.
    /// `added` are newer segments, ascending.
    pub(crate) fn due_floor(
        &self,
        added: &[(u64, RetainedLog)],
        now_ms: u64,
    ) -> Option<RetainedFloor> {
        let all = || self.logs.iter().map(|(&id, log)| (id, *log)).chain(added.iter().copied());
        let ChangeRetention { bytes_max, age_ms_max } = self.limits;
        let mut bytes = all().fold(0_u64, |sum, (_, log)| sum.saturating_add(log.bytes));
        let mut floor = None;
        for (id, log) in all() {
            let age_ms = now_ms.saturating_sub(log.retired_ms);
            let is_old = age_ms_max > 0 && age_ms >= age_ms_max;
            if bytes <= bytes_max && !is_old {
                break;
            }
            bytes = bytes.saturating_sub(log.bytes);
            floor = Some(RetainedFloor { id: id + 1, from: log.last_sequence.max(self.from) });
        }
        floor
    }
}

/// Applies the retention part of an edit. `log_floor` is that of the edited state.
///
/// # Errors
///
/// [`Corruption`] if a number falls, or a segment is retained twice or without a retention.
pub(super) fn apply(
    retained: &mut Option<RetainedChanges>,
    edit: &VersionEdit,
    log_floor: u64,
) -> Result<(), Corruption> {
    if let Some(RetentionChanged { limits, from }) = edit.retention_changed {
        let new = || RetainedChanges { limits, from, logs: BTreeMap::new() };
        let kept = retained.take().filter(|_| !limits.is_none());
        *retained = (!limits.is_none()).then(|| kept.map_or_else(new, |it| it.with(limits)));
    }
    if edit.logs_retained.is_empty() && edit.retained_floor.is_none() {
        return Ok(());
    }
    let retained = retained.as_mut().ok_or(Corruption::Missing { what: "retention of changes" })?;
    for &(id, log) in &edit.logs_retained {
        let last = retained.logs.last_key_value();
        let is_next =
            last.is_none_or(|(&before, it)| before < id && it.last_sequence <= log.last_sequence);
        if id >= log_floor || !is_next {
            return Err(Corruption::Order { what: "retained logs" });
        }
        retained.logs.insert(id, log);
    }
    if let Some(RetainedFloor { id, from }) = edit.retained_floor {
        if from < retained.from || id > log_floor {
            let what = "start of the retained changes";
            return Err(Corruption::OutOfRange { what, value: from });
        }
        retained.from = from;
        retained.logs = retained.logs.split_off(&id);
    }
    check_sequence(retained.from)
}

impl RetainedChanges {
    fn with(self, limits: ChangeRetention) -> Self {
        Self { limits, ..self }
    }
}

pub(super) fn decode_retention(field: &Field<'_>) -> Result<RetentionChanged, Corruption> {
    let [bytes_max, age_ms_max, from] = field.varints("retention of changes")?;
    check_sequence(from)?;
    Ok(RetentionChanged { limits: ChangeRetention { bytes_max, age_ms_max }, from })
}

pub(super) fn decode_log(field: &Field<'_>) -> Result<(u64, RetainedLog), Corruption> {
    field.read("retained log", |decoder| {
        let id = decoder.varint("log id")?;
        let secret = decoder.u64("secret of a log")?;
        let last_sequence = decoder.varint("last sequence number of a log")?;
        let bytes = decoder.varint("length of a log")?;
        let retired_ms = decoder.varint("time of a retained log")?;
        check_sequence(last_sequence)?;
        Ok((id, RetainedLog { secret, last_sequence, bytes, retired_ms }))
    })
}

pub(super) fn decode_floor(field: &Field<'_>) -> Result<RetainedFloor, Corruption> {
    let [id, from] = field.varints("floor of the retained logs")?;
    check_sequence(from)?;
    Ok(RetainedFloor { id, from })
}

fn check_sequence(value: SequenceNumber) -> Result<(), Corruption> {
    if value > SEQUENCE_MAX {
        let what = "sequence number of retained changes";
        return Err(Corruption::OutOfRange { what, value });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(last_sequence: u64, bytes: u64, retired_ms: u64) -> RetainedLog {
        RetainedLog { secret: 7, last_sequence, bytes, retired_ms }
    }

    fn retained(limits: ChangeRetention) -> RetainedChanges {
        let logs = BTreeMap::from([(3, log(10, 100, 1_000)), (5, log(20, 100, 2_000))]);
        RetainedChanges { limits, from: 4, logs }
    }

    #[test]
    fn segments_beyond_the_limits_are_dropped_oldest_first() {
        let floor = |id, from| Some(RetainedFloor { id, from });
        let both = |bytes, age_ms_max| ChangeRetention { bytes_max: bytes, age_ms_max };
        let added = [(8, log(30, 50, 3_000))];
        let cases = [
            ("all fit", both(250, 0), 9_000, None),
            ("one byte too many", both(249, 0), 9_000, floor(4, 10)),
            ("only the newest fits", both(50, 0), 9_000, floor(6, 20)),
            ("none fits", both(49, 0), 9_000, floor(9, 30)),
            ("young", both(250, 1_001), 2_000, None),
            ("one is old", both(250, 1_000), 2_000, floor(4, 10)),
            ("all are old", both(250, 1_000), 4_000, floor(9, 30)),
            ("the clock was set back", both(250, 1), 0, None),
        ];
        for (name, limits, now_ms, want) in cases {
            assert_eq!(retained(limits).due_floor(&added, now_ms), want, "{name}");
        }
    }

    #[test]
    fn edits_that_do_not_fit_are_refused() {
        let limits = ChangeRetention::bytes(1_000);
        let apply = |edit: &VersionEdit| apply(&mut Some(retained(limits)), edit, 9);
        let with = |logs: &[(u64, RetainedLog)], floor: Option<(u64, u64)>| VersionEdit {
            logs_retained: logs.to_vec(),
            retained_floor: floor.map(|(id, from)| RetainedFloor { id, from }),
            ..VersionEdit::default()
        };
        apply(&with(&[(8, log(30, 1, 1))], Some((4, 10)))).expect("they fit");
        let refused = [
            ("a log twice", with(&[(5, log(30, 1, 1))], None)),
            ("an older log", with(&[(4, log(30, 1, 1))], None)),
            ("a log of older changes", with(&[(8, log(19, 1, 1))], None)),
            ("a log that is replayed", with(&[(9, log(30, 1, 1))], None)),
            ("a floor that falls", with(&[], Some((4, 3)))),
            ("a floor above that of the log", with(&[], Some((10, 20)))),
        ];
        for (name, edit) in refused {
            assert!(apply(&edit).is_err(), "{name}");
        }
        let kept = &mut None;
        assert!(super::apply(kept, &with(&[(8, log(30, 1, 1))], None), 9).is_err(), "off");
    }

    #[test]
    fn a_new_limit_keeps_the_changes_and_none_drops_them() {
        let changed = |limits| VersionEdit {
            retention_changed: Some(RetentionChanged { limits, from: 77 }),
            ..VersionEdit::default()
        };
        let mut state = Some(retained(ChangeRetention::bytes(1_000)));
        apply(&mut state, &changed(ChangeRetention::bytes(5)), 9).expect("it fits");
        assert_eq!(state, Some(retained(ChangeRetention::bytes(5))));
        apply(&mut state, &changed(ChangeRetention::none()), 9).expect("it fits");
        assert_eq!(state, None);
        apply(&mut state, &changed(ChangeRetention::bytes(5)), 9).expect("it fits");
        let begun = state.expect("it is on");
        assert_eq!((begun.from, begun.logs.len()), (77, 0));
    }
}
