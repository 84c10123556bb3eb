//! Reads the log after a crash: what counts, what is torn, what is lost.
//!
//! Batches are replayed in order up to the first place where none can be read: a bad record, or a
//! segment that ends before its logical end. What lies behind that place never counts, whatever
//! survived of it, because the history would have a hole.
//!
//! If anything vouches for that place it is damage and an error: a synced mark in the manifest, in
//! a record behind it, or in a later segment. If nothing does, the tail is torn: a crash explains
//! it, and no batch that was acknowledged as durable was there. Rot in a tail for which nothing
//! vouches cannot be told from a torn one.

use std::{collections::VecDeque, path::Path};

use bytes::Bytes;
use sievedb_format::{Corruption, SEQUENCE_MAX, SequenceNumber};

use super::{
    batch::Batch,
    chain::{Chain, Segment, Segments},
};
use crate::{
    Error, Result,
    file_name::FileName,
    log::{Next, Position, Reader, Record, RecordType, record::RECORD_HEADER_BYTES},
};

/// A batch as it is replayed.
#[derive(Debug)]
pub(crate) struct ReplayedBatch<'a> {
    /// The segment.
    pub(crate) path: &'a Path,
    /// Where its record lies.
    pub(crate) position: Position,
    /// Sequence number of the first entry.
    pub(crate) sequence: SequenceNumber,
    /// The entries.
    pub(crate) batch: Batch,
}

impl ReplayedBatch<'_> {
    /// An error for entries that cannot be read or applied.
    pub(crate) fn corrupt(&self, source: Corruption) -> Error {
        Error::corrupt(self.path, self.position.offset, source)
    }
}

/// Where and why the log was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TornTail {
    /// Everything from here on is gone.
    pub(crate) position: Position,
    /// Bytes that are cut off, without room for records that never came: of that segment, none if
    /// it is only shorter than it should be, and of all segments behind it.
    pub(crate) bytes: u64,
    /// What is there instead of a record.
    pub(crate) reason: Corruption,
}

/// A segment that was replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplayedSegment {
    pub(crate) id: u64,
    /// Length up to where it ends, in bytes.
    pub(crate) bytes: u64,
    /// Last sequence number in it, or before it if it has no batch.
    pub(crate) last_sequence: SequenceNumber,
}

/// What a replay found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// The segments that were replayed, in order.
    pub(crate) segments: Vec<ReplayedSegment>,
    /// Ids of newer segments that do not count: begun in vain, or behind a torn tail. To be deleted
    /// once the recovered manifest is durable.
    pub(crate) orphans: Vec<u64>,
    /// Those of `orphans` that a recovery began and did not finish. No manifest can name them, so
    /// they may be unlinked at once.
    pub(crate) aborted: Vec<u64>,
    /// Where the history ends; a new segment continues from here. `None` without segments.
    pub(crate) end: Option<Position>,
    /// Whether the last segment was finished in good order.
    pub(crate) sealed: bool,
    /// What was cut off, if anything.
    pub(crate) torn: Option<TornTail>,
    /// Length of the segments that were replayed, up to where each of them ends, in bytes.
    pub(crate) bytes: u64,
    /// Number of batches.
    pub(crate) batches: u64,
    /// Sequence number of the last entry; 0 without batches.
    pub(crate) last_sequence: SequenceNumber,
    /// The newest manifest that a segment saw, and up to where it must be whole.
    pub(crate) manifest: Position,
}

impl Replayed {
    /// Returns whether every byte of the log is durable: `mark`, of a durable manifest, lies at its
    /// end. `named` are the segments that the manifest names.
    pub(crate) fn is_durable(&self, mark: Position, named: &[u64]) -> bool {
        let ids = self.segments.iter().map(|segment| segment.id);
        self.torn.is_none() && self.end == Some(mark) && ids.eq(named.iter().copied())
    }
}

/// Replays the log and hands each batch to `apply`.
///
/// `mark` is the manifest's synced mark of the log; the default if it has none. Memory stays below
/// a few MiB plus the largest batch; batches that `apply` keeps are its own allocation each.
///
/// After an error what was applied is of no use: damage may show only behind it.
///
/// # Errors
///
/// [`Error::Io`] if a file cannot be read: that is never taken for the end of the log.
/// [`Error::Corrupt`] if a segment is missing or damaged. What `apply` returns.
pub(crate) fn replay(
    source: &Segments<'_>,
    mark: Position,
    apply: impl FnMut(ReplayedBatch<'_>) -> Result<()>,
) -> Result<Replayed> {
    let chain = Chain::find(source);
    match chain.broken {
        Some(error) => Err(error),
        None => replay_chain(source, chain, mark, 0, apply),
    }
}

/// As [`replay`], for whoever saves what can be read: what is applied before an error is of use. So
/// if the beginning of a segment cannot be read, the segments before it are replayed first.
///
/// Where the last of these ends, only that beginning told: what an append that failed has left
/// behind it is replayed, too. A segment may lack its seal: an obsolete one is not always synced
/// that far, and without a manifest it may be among them.
///
/// # Errors
///
/// As [`replay`]; of several, the one for the place where the log ends.
pub(crate) fn replay_readable(
    source: &Segments<'_>,
    mark: Position,
    apply: impl FnMut(ReplayedBatch<'_>) -> Result<()>,
) -> Result<Replayed> {
    replay_chain(source, Chain::find(source), mark, RECORD_HEADER_BYTES as u64, apply)
}

/// A segment before the last may end `seal_bytes` before the next one says.
fn replay_chain(
    source: &Segments<'_>,
    chain: Chain,
    mark: Position,
    seal_bytes: u64,
    mut apply: impl FnMut(ReplayedBatch<'_>) -> Result<()>,
) -> Result<Replayed> {
    let Chain { segments, orphans, aborted, broken } = chain;
    let mut replayed = Replayed { orphans, aborted, ..Replayed::default() };
    let manifests = segments.iter().map(|segment| segment.start.manifest);
    replayed.manifest = manifests.max().unwrap_or_default();

    let mut segments = VecDeque::from(segments);
    while let Some(segment) = segments.pop_front() {
        let mut reader = segment.open(source)?;
        let torn = replay_segment(&mut reader, &mut replayed, &mut apply)?;
        replayed.sealed = reader.is_sealed();
        let end = Position { file_id: reader.file_id(), offset: reader.offset() };
        let (id, bytes, last_sequence) = (end.file_id, end.offset, replayed.last_sequence);
        replayed.segments.push(ReplayedSegment { id, bytes, last_sequence });
        replayed.end = Some(end);
        replayed.bytes += end.offset;
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
        // Zeros were reserved for records that never came.
        let is_whole = following.is_none() && bytes == 0;
        let reason = reason.filter(|_| !is_whole);
        replayed.torn = reason.map(|reason| TornTail { position: end, bytes, reason });
        replayed.orphans.extend(segments.iter().map(|segment| segment.id));
        replayed.orphans.sort_unstable();
        return Ok(replayed);
    }
    broken.map_or(Ok(replayed), Err)
}

/// Replays the batches of one segment. Returns why it ends, unless it ends behind a record.
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
        apply(ReplayedBatch { path: reader.path(), position, sequence, batch })?;
    }
}

/// Checks that a batch takes its sequence numbers behind those of the batch before.
fn check_batch(
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

/// Refuses the log if a synced mark lies beyond the place where `reader` stopped. `rest` are the
/// segments behind it. Returns how many bytes lie behind that place, without the zeros
/// at the end of each file.
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
    // A mark in a later segment vouches for the whole of this one.
    if newest > end {
        let reason = reason.cloned().unwrap_or_else(|| missing(newest.offset, end));
        return Err(reader.corrupt(end.offset, reason));
    }
    Ok(bytes)
}

/// A segment that has lost its end.
const fn missing(need: u64, end: Position) -> Corruption {
    Corruption::Truncated { what: "segment of the log", need, have: end.offset }
}
