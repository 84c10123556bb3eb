//! Replays the log after a crash.
//!
//! Batches are replayed in order up to the first unreadable place: a bad record, or a segment that
//! ends before its logical end. Nothing after that place counts, because the history would have a
//! hole.
//!
//! If a synced mark in the manifest, in a later record, or in a later segment covers that place, it
//! is damage and an error. Otherwise the tail is torn: a crash explains it, and it had no batch
//! that was acknowledged as durable. Bit rot in a tail without a mark cannot be distinguished from
//! a torn tail.
//!
//! # Example
//!
//! Segment 12 has a start record at 64..120 and three batches. A was synced before C was written, B
//! was not.
//!
//! | record | place | synced mark |
//! |--------|-------|-------------|
//! | A | 120..208 | 12 up to 64 |
//! | B | 208..272 | 12 up to 64 |
//! | C | 272..336 | 12 up to 208 |
//!
//! `end` is the first place that cannot be passed, `newest` the newest mark.
//!
//! | bad bytes | `end` | `newest` | verdict |
//! |-----------|-------|----------|---------|
//! | in C | (12, 272) | (12, 64) or (12, 208) | torn at 272; A and B count |
//! | in B | (12, 208) | (12, 208) | torn at 208; only A counts |
//! | in A | (12, 120) | (12, 208) | corruption near byte 120 |
//! | in A and the header of C | (12, 120) | (12, 64) | torn at 120: nothing vouches for A |
//! | in B; segment 13 has mark (13, 112) | (12, 208) | (13, 112) | corruption near byte 208 |

use std::{
    cmp::Ordering,
    collections::{BTreeSet, VecDeque},
    path::Path,
};

use bytes::Bytes;
use sievedb_format::{Corruption, SEQUENCE_MAX, SequenceNumber};

use super::{
    batch::Batch,
    chain::{Chain, Segment, Segments},
};
use crate::{
    Error, Result,
    file_name::FileName,
    log::{
        Next, Position, Reader, Record, RecordType, record::RECORD_HEADER_BYTES, values::LostValue,
    },
};

#[derive(Debug)]
pub(crate) struct ReplayedBatch<'a> {
    pub(crate) path: &'a Path,
    /// Position of its record.
    pub(crate) position: Position,
    /// Sequence number of the first entry.
    pub(crate) sequence: SequenceNumber,
    pub(crate) batch: Batch,
    /// Values of the batch that cannot be read.
    pub(crate) lost: &'a [LostValue],
}

impl ReplayedBatch<'_> {
    /// Returns the error of `value`, which is part of the batch, if it is lost.
    pub(crate) fn error_of(&self, value: &Bytes) -> Option<&Error> {
        // An empty value is no part of the payload.
        let start = value.as_ptr().addr().checked_sub(self.batch.payload().as_ptr().addr())?;
        let is_within =
            |it: &&LostValue| start <= it.range.start && it.range.end <= start + value.len();
        self.lost.iter().find(is_within).map(|it| &it.error)
    }

    pub(crate) fn corrupt(&self, source: Corruption) -> Error {
        Error::corrupt(self.path, self.position.offset, source)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TornTail {
    /// Position at which the log is truncated.
    pub(crate) position: Position,
    /// Truncated bytes, without reserved space that was never written. They are of that segment,
    /// none if it is only too short, and of all later segments.
    pub(crate) bytes: u64,
    pub(crate) reason: Corruption,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplayedSegment {
    pub(crate) id: u64,
    /// Length up to its end, in bytes.
    pub(crate) bytes: u64,
    /// Last sequence number in it; at most the last one before it if it has no batch.
    pub(crate) last_sequence: SequenceNumber,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// Segments in order.
    pub(crate) segments: Vec<ReplayedSegment>,
    /// Ids of newer segments that an interrupted recovery created. No manifest can name them, so
    /// they may be unlinked immediately.
    pub(crate) aborted: Vec<u64>,
    /// End of the history, which a new segment continues. `None` without segments.
    pub(crate) end: Option<Position>,
    pub(crate) torn: Option<TornTail>,
    pub(crate) batches: u64,
    /// Ids of blob files with values of these batches.
    pub(crate) value_files: BTreeSet<u64>,
    /// Sequence number of the last entry; 0 without batches.
    pub(crate) last_sequence: SequenceNumber,
    /// The newest manifest named by a segment, and the length up to which it must be complete.
    pub(crate) manifest: Position,
}

impl Replayed {
    /// Returns `true` if every byte of the log is durable: `mark`, of a durable manifest, is its
    /// end. `named` are the segments that the manifest names.
    pub(crate) fn is_durable(&self, mark: Position, named: &[u64]) -> bool {
        let ids = self.segments.iter().map(|segment| segment.id);
        self.torn.is_none() && self.end == Some(mark) && ids.eq(named.iter().copied())
    }
}

/// Replays the log and passes each batch to `apply`.
///
/// `mark` is the manifest's synced mark of the log; the default for none. Uses a few MiB of memory
/// plus the largest batch. After an error the applied batches must be discarded: later batches may
/// reveal damage.
///
/// # Errors
///
/// [`Error::Io`] if a file cannot be read, which never counts as the end of the log.
/// [`Error::Corrupt`] if a segment is missing or damaged. Errors of `apply`.
pub(crate) fn replay(
    source: &Segments<'_>,
    mark: Position,
    apply: impl FnMut(ReplayedBatch<'_>) -> Result<()>,
) -> Result<Replayed> {
    let chain = Chain::find(source);
    match chain.broken {
        Some(error) => Err(error),
        None => replay_chain(source, chain, mark, (0, Position::default()), apply),
    }
}

/// As [`replay`], for repairs: batches before an error are usable. If the beginning of a segment
/// cannot be read, the segments before it are replayed first. Batches below a synced mark are
/// replayed without their [lost](ReplayedBatch::lost) values.
///
/// Only that beginning recorded the end of the last of these, so bytes left by a failed append are
/// replayed too. A segment may lack its seal: an obsolete one is not always synced that far, and
/// without a manifest it may be included.
///
/// # Errors
///
/// As [`replay`]; of several, the error at the end of the log.
pub(crate) fn replay_readable(
    source: &Segments<'_>,
    mark: Position,
    apply: impl FnMut(ReplayedBatch<'_>) -> Result<()>,
) -> Result<Replayed> {
    let chain = Chain::find(source);
    let scans = chain.segments.iter().map(|segment| segment.open(source)?.scan());
    // The replay reports errors.
    let marks = scans.flatten().map(|scan| scan.newest_mark);
    let newest = marks.fold(mark, Position::max);
    replay_chain(source, chain, mark, (RECORD_HEADER_BYTES as u64, newest), apply)
}

/// Replays a chain. Each segment except the last may end `seal_bytes` before the end that the next
/// one records. Before `vouched`, batches may lack values.
fn replay_chain(
    source: &Segments<'_>,
    chain: Chain,
    mark: Position,
    (seal_bytes, vouched): (u64, Position),
    mut apply: impl FnMut(ReplayedBatch<'_>) -> Result<()>,
) -> Result<Replayed> {
    let Chain { segments, aborted, broken } = chain;
    let mut replayed = Replayed { aborted, ..Replayed::default() };
    let manifests = segments.iter().map(|segment| segment.start.manifest);
    replayed.manifest = manifests.max().unwrap_or_default();

    let mut segments = VecDeque::from(segments);
    while let Some(segment) = segments.pop_front() {
        let mut reader = segment.open(source)?;
        reader.keep_below(match segment.id.cmp(&vouched.file_id) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => vouched.offset,
            Ordering::Greater => 0,
        });
        let torn = replay_segment(&mut reader, &mut replayed, &mut apply)?;
        replayed.value_files.extend(reader.value_files());
        let end = Position { file_id: reader.file_id(), offset: reader.offset() };
        let (id, bytes, last_sequence) = (end.file_id, end.offset, replayed.last_sequence);
        replayed.segments.push(ReplayedSegment { id, bytes, last_sequence });
        replayed.end = Some(end);
        let following = segments.front().and_then(|next| next.start.previous);
        let missing_bytes = following.and_then(|it| it.offset.checked_sub(end.offset));
        if missing_bytes.is_some_and(|bytes| bytes == 0 || bytes == seal_bytes) {
            continue;
        }
        let reason = torn.or(following.map(|following| missing(following.offset, end)));
        if let Some(broken) = broken {
            let ends_there =
                following.is_none() && (reason.is_none() || reader.scan()?.end == end.offset);
            let before = reason.filter(|_| !ends_there);
            return Err(before.map_or(broken, |reason| reader.corrupt(end.offset, reason)));
        }
        let bytes = check_vouched(source, &mut reader, &segments, mark, reason.as_ref())?;
        // Zeros are reserved space.
        let is_whole = following.is_none() && bytes == 0;
        let reason = reason.filter(|_| !is_whole);
        replayed.torn = reason.map(|reason| TornTail { position: end, bytes, reason });
        return Ok(replayed);
    }
    broken.map_or(Ok(replayed), Err)
}

/// Replays one segment. Returns the reason for its end, unless it ends after a record.
fn replay_segment(
    reader: &mut Reader,
    replayed: &mut Replayed,
    apply: &mut impl FnMut(ReplayedBatch<'_>) -> Result<()>,
) -> Result<Option<Corruption>> {
    loop {
        let Record { offset, record_type, sequence, payload } = match reader.next()? {
            Next::Record(record) => record,
            Next::End(reason) => return Ok(reason),
        };
        if record_type == RecordType::Seal {
            continue;
        }
        let batch = check_batch(sequence, payload, replayed.last_sequence);
        let batch = batch.map_err(|reason| reader.corrupt(offset, reason))?;
        replayed.batches += 1;
        replayed.last_sequence = replayed.last_sequence.max(sequence + batch.entries() - 1);
        let position = Position { file_id: reader.file_id(), offset };
        let (path, lost) = (reader.path(), reader.lost_values());
        apply(ReplayedBatch { path, position, sequence, batch, lost })?;
    }
}

/// Checks that the sequence numbers of a batch follow those of the previous batch.
pub(super) fn check_batch(
    sequence: SequenceNumber,
    payload: Bytes,
    last: SequenceNumber,
) -> Result<Batch, Corruption> {
    let batch = Batch::decode(payload)?;
    let entries = batch.entries();
    if entries == 0 {
        return Err(Corruption::OutOfRange { what: "entries of a batch", value: 0 });
    }
    if sequence <= last || entries - 1 > SEQUENCE_MAX - sequence {
        return Err(Corruption::OutOfRange { what: "sequence number of a batch", value: sequence });
    }
    Ok(batch)
}

/// Rejects the log if a synced mark is after the end of `reader` or in `rest`, the later segments.
/// Returns the number of bytes after that end, without trailing zeros of each file.
fn check_vouched(
    source: &Segments<'_>,
    reader: &mut Reader,
    rest: &VecDeque<Segment>,
    mark: Position,
    reason: Option<&Corruption>,
) -> Result<u64> {
    let end = Position { file_id: reader.file_id(), offset: reader.offset() };
    let behind = reader.scan()?;
    let (mut newest, mut bytes) = (mark.max(behind.newest_mark), behind.end - end.offset);
    for segment in rest {
        let found = segment.open(source)?.scan()?;
        newest = newest.max(found.newest_mark);
        bytes += found.end;
    }
    let last = rest.back().map_or(end.file_id, |segment| segment.id);
    if newest.file_id > last {
        let path = FileName::Log(newest.file_id).path(source.folder);
        return Err(Error::corrupt(path, 0, Corruption::Missing { what: "segment of the log" }));
    }
    // A mark in a later segment vouches for all of this one.
    if newest > end {
        let reason = reason.cloned().unwrap_or_else(|| missing(newest.offset, end));
        return Err(reader.corrupt(end.offset, reason));
    }
    Ok(bytes)
}

/// Returns the corruption of a segment that lost its end.
const fn missing(need: u64, end: Position) -> Corruption {
    Corruption::Truncated { what: "segment of the log", need, have: end.offset }
}
