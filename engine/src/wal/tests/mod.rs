//! Replay of logs: accepted, truncated and rejected contents.

mod chain;
mod crash;
mod damage;
mod dump;
mod followed;
mod reserved;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use bytes::Bytes;
use sievedb_format::Kind;

use super::{
    batch::BatchEncoder,
    chain::Segments,
    replay::{Replayed, replay},
    segment::{NewSegment, segment_ids},
};
use crate::{
    Result,
    fs::{Fs, MemoryFs},
    log::{PendingRecord, Position, Writer},
    tests::pending,
};

const STORE: u128 = 0x5106_e5db;
const FOLDER: &str = "db";
const NO_MARK: Position = Position { file_id: 0, offset: 0 };

fn at(file_id: u64, offset: u64) -> Position {
    Position { file_id, offset }
}

fn path(id: u64) -> String {
    format!("{FOLDER}/{id:06}.log")
}

fn new_fs() -> Arc<MemoryFs> {
    let fs = MemoryFs::new();
    fs.create_dir(FOLDER.as_ref()).unwrap();
    fs.settle();
    Arc::new(fs)
}

fn segment(id: u64, previous: Option<Position>, mark: Position) -> NewSegment {
    NewSegment { store_id: STORE, id, manifest: at(1, 500), previous, mark }
}

fn create(fs: &dyn Fs, id: u64, previous: Option<Position>, mark: Position) -> Writer {
    segment(id, previous, mark).create(fs, FOLDER.as_ref()).unwrap()
}

/// A batch of one put, whose key is its sequence number.
fn put(sequence: u64, value: &[u8]) -> PendingRecord {
    let mut batch = BatchEncoder::new();
    batch.put(1, Kind::Put, &sequence.to_be_bytes(), value);
    pending(sequence, batch.finish())
}

/// Appends batches of one entry each, one append each. Returns where each record ends.
fn append(
    writer: &mut Writer,
    sequences: std::ops::RangeInclusive<u64>,
    mark: Position,
) -> Vec<u64> {
    let write = |sequence| {
        writer.append(&[put(sequence, b"value")], mark).unwrap();
        writer.offset()
    };
    sequences.map(write).collect()
}

/// Returns the ids of the logs in the directory.
fn on_disk(fs: &dyn Fs) -> Result<Vec<u64>> {
    let names = fs.list(FOLDER.as_ref());
    let names = names.map_err(|error| crate::Error::io("list", FOLDER, error))?;
    Ok(segment_ids(&names))
}

fn ids(replayed: &Replayed) -> Vec<u64> {
    replayed.segments.iter().map(|segment| segment.id).collect()
}

/// Returns the ids of the logs in the directory that are newer than the first replayed one and not
/// part of the log.
fn orphans(fs: &dyn Fs, replayed: &Replayed) -> Vec<u64> {
    let (mut orphans, ids) = (on_disk(fs).unwrap(), ids(replayed));
    orphans.retain(|id| !ids.contains(id) && ids.first().is_none_or(|first| first < id));
    orphans
}

/// Replays, and collects sequence and payload of each batch. Entries are read too.
fn collect(
    fs: &Arc<impl Fs + 'static>,
    named: &[u64],
    mark: Position,
) -> Result<(Vec<(u64, Bytes)>, Replayed)> {
    collect_from(fs, 0, named, mark)
}

/// The same for a log with this floor.
fn collect_from(
    fs: &Arc<impl Fs + 'static>,
    floor: u64,
    named: &[u64],
    mark: Position,
) -> Result<(Vec<(u64, Bytes)>, Replayed)> {
    let fs = &(Arc::clone(fs) as Arc<dyn Fs>);
    let on_disk = on_disk(&**fs)?;
    let folder = Path::new(FOLDER);
    let source = Segments { named, floor, ..Segments::unnamed(fs, folder, STORE, &on_disk) };
    let mut batches = Vec::new();
    let replayed = replay(&source, mark, |replayed| {
        for entry in &replayed.batch {
            entry.map_err(|reason| replayed.corrupt(reason))?;
        }
        batches.push((replayed.sequence, replayed.batch.payload().clone()));
        Ok(())
    })?;
    assert_eq!(replayed.batches, batches.len() as u64);
    Ok((batches, replayed))
}

/// The sequence numbers of a replay.
fn sequences(
    fs: &Arc<impl Fs + 'static>,
    named: &[u64],
    mark: Position,
) -> Result<(Vec<u64>, Replayed)> {
    let (batches, replayed) = collect(fs, named, mark)?;
    Ok((batches.into_iter().map(|(sequence, _)| sequence).collect(), replayed))
}

fn up_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}
