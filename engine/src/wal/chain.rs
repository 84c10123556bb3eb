//! Finds the segments of the log and their order.
//!
//! The manifest names the segments that must exist. A later segment is durable before the first
//! batch is placed in it. Its start record names the segment that it continues, so the chain
//! extends from the newest named segment. Other segments are orphans: their creation was
//! interrupted, or an interrupted recovery created them.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use sievedb_format::{Corruption, FileHeader, FileKind};

use crate::{
    Error, Result,
    file_name::FileName,
    fs::{Fs, existing},
    log::{Next, Position, Reader, Record, RecordType, Start},
};

/// Location of the segments, and those that must exist.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segments<'a> {
    pub(crate) fs: &'a Arc<dyn Fs>,
    pub(crate) folder: &'a Path,
    pub(crate) store_id: u128,
    /// Ids of the segments that the manifest names, ascending.
    pub(crate) named: &'a [u64],
    /// Header secrets of the segments that the manifest names. Others are not compared.
    pub(crate) secrets: &'a BTreeMap<u64, u64>,
    /// Segments below this id are obsolete. An unnamed segment that continues one of them is an
    /// orphan: it was never used, and a crash lost its unlink.
    pub(crate) floor: u64,
    /// Ids of the existing segments, ascending.
    pub(crate) on_disk: &'a [u64],
    /// The newest of these segments and its written length, while writers append. `None` without
    /// writers.
    pub(crate) written: Option<Position>,
}

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) start: Start,
    /// End of its start record.
    begin: u64,
    /// Logical end, if the next segment records it.
    limit: Option<u64>,
}

impl Segment {
    fn new(reader: &Reader, start: Start) -> Self {
        Self { id: reader.file_id(), start, begin: reader.offset(), limit: None }
    }

    /// Opens the segment after its start record. Only the segment being read is open: a log may
    /// have more segments than a process has descriptors.
    pub(super) fn open(&self, source: &Segments<'_>) -> Result<Reader> {
        let (mut reader, _) = source.open_begun(self.id)?;
        if let Some(limit) = self.limit {
            reader.set_limit(limit);
        }
        Ok(reader)
    }
}

/// Segments, each of which continues the previous one.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) segments: Vec<Segment>,
    /// Ids of newer segments that continue none, or whose creation was interrupted.
    pub(super) aborted: Vec<u64>,
    /// Error at which the chain ends before the log does.
    pub(super) broken: Option<Error>,
}

impl Chain {
    /// Follows the chain, as far as the beginnings of the segments can be read.
    ///
    /// [`broken`](Self::broken) is [`Error::Io`] if a file cannot be read, and [`Error::Corrupt`]
    /// if a segment that must exist is missing, or has a wrong beginning.
    pub(super) fn find(source: &Segments<'_>) -> Self {
        let segments = Vec::with_capacity(source.named.len());
        let mut chain = Self { segments, aborted: Vec::new(), broken: None };
        let found = chain.add_named(source).and_then(|()| chain.add_newer(source));
        chain.broken = found.err();
        chain
    }

    /// Adds the segments that the manifest names, up to the first wrong one.
    fn add_named(&mut self, source: &Segments<'_>) -> Result<()> {
        for &id in source.named {
            let (reader, start) = source.open_begun(id)?;
            if let Some(before) = self.segments.last() {
                let (expected, found) = (before.id, start.previous);
                if found.is_none_or(|found| found.file_id != expected) {
                    let found = found.map_or(0, |found| found.file_id);
                    let what = "segment before this one";
                    let mismatch = Corruption::Mismatch { what, expected, found };
                    return Err(reader.corrupt(0, mismatch));
                }
            }
            self.push(source, Segment::new(&reader, start))?;
        }
        Ok(())
    }

    /// Adds the other segments that continue the chain. Their errors are returned at the end.
    fn add_newer(&mut self, source: &Segments<'_>) -> Result<()> {
        let newest = source.named.last().copied().unwrap_or(0);
        let (mut newer, mut opened) = (Vec::new(), Ok(()));
        for &id in source.on_disk.iter().filter(|&&id| id > newest) {
            let segment = source.open_unnamed(id).unwrap_or_else(|error| {
                opened = opened.clone().and(Err(error));
                None
            });
            newer.push((id, segment));
        }
        let followed = self.follow(source, newest, newer);
        opened.and(followed)
    }

    /// Continues from the newest named segment, through unnamed ones.
    fn follow(
        &mut self,
        source: &Segments<'_>,
        newest: u64,
        mut newer: Vec<(u64, Option<Segment>)>,
    ) -> Result<()> {
        while let Some(end) = self.segments.last().map(|segment| segment.id) {
            // Uses the newest one: a full disk left older ones that continue the same segment
            // unused.
            let next = newer.iter().rposition(|(_, segment)| continues(segment.as_ref(), end));
            let Some((_, Some(segment))) = next.map(|next| newer.remove(next)) else { break };
            self.push(source, segment)?;
        }
        let counts = |before: &Position| before.file_id > newest && before.file_id >= source.floor;
        for (_, segment) in &newer {
            let previous = segment.as_ref().and_then(|segment| segment.start.previous);
            let Some(Position { file_id, .. }) = previous.filter(counts) else { continue };
            let found = newer.iter().find(|(id, _)| *id == file_id);
            let reason = match found {
                // This segment is not part of the log either.
                Some((_, Some(_))) => continue,
                Some((_, None)) => Corruption::Missing { what: "start record" },
                None if self.holds(file_id) => continue,
                None => Corruption::Missing { what: "segment of the log" },
            };
            let path = FileName::Log(file_id).path(source.folder);
            return Err(Error::corrupt(path, 0, reason));
        }
        let continues_none = |segment: &Option<Segment>| {
            segment.as_ref().is_none_or(|segment| segment.start.previous.is_none())
        };
        let aborted = newer.iter().filter(|(_, segment)| continues_none(segment));
        self.aborted = aborted.map(|(id, _)| *id).collect();
        Ok(())
    }

    fn holds(&self, id: u64) -> bool {
        self.segments.iter().any(|segment| segment.id == id)
    }

    /// Adds a segment, which records the end of the previous one.
    fn push(&mut self, source: &Segments<'_>, segment: Segment) -> Result<()> {
        if let (Some(before), Some(end)) = (self.segments.last_mut(), segment.start.previous) {
            let (expected, found) = (before.begin, end.offset);
            if found < expected {
                let what = "end of the segment before this one";
                let mismatch = Corruption::Mismatch { what, expected, found };
                let path = FileName::Log(segment.id).path(source.folder);
                return Err(Error::corrupt(path, 0, mismatch));
            }
            before.limit = Some(found);
        }
        self.segments.push(segment);
        Ok(())
    }
}

/// Secrets of a log whose manifest is unknown: none.
static NO_SECRETS: BTreeMap<u64, u64> = BTreeMap::new();

impl<'a> Segments<'a> {
    /// Returns the segments `on_disk` of a log without a manifest. Any of them may be missing.
    pub(crate) const fn unnamed(
        fs: &'a Arc<dyn Fs>,
        folder: &'a Path,
        store_id: u128,
        on_disk: &'a [u64],
    ) -> Self {
        let (named, secrets) = (&[], &NO_SECRETS);
        Self { fs, folder, store_id, named, secrets, floor: 0, on_disk, written: None }
    }

    /// Returns the ids of the segments that may be the log, without a manifest: one or several
    /// logs, oldest first. Each extends back as far as its start records do. Unreadable segments
    /// are included, as damage.
    ///
    /// The newest of several logs may be an unfinished copy by a recovery. Segments below a lost
    /// floor may be included; their entries are in tables or in a newer log.
    ///
    /// # Errors
    ///
    /// Errors of reading the beginning of a segment that `check_damage` returns.
    pub(crate) fn without_manifest(
        &self,
        check_damage: impl Fn(&Error) -> Result<()>,
    ) -> Result<Vec<Vec<u64>>> {
        let before = |id: u64| self.on_disk.iter().rev().copied().find(|&older| older < id);
        let (mut logs, mut ids) = (Vec::new(), Vec::new());
        let mut next = self.on_disk.last().copied();
        while let Some(id) = next {
            next = match self.open_unnamed(id) {
                // The creation of the segment was interrupted.
                Ok(None) => before(id),
                Ok(Some(segment)) => {
                    ids.push(id);
                    let previous = segment.start.previous.map(|previous| previous.file_id);
                    let there =
                        previous.filter(|found| *found < id && self.on_disk.contains(found));
                    if there.is_none() {
                        logs.push(std::mem::take(&mut ids));
                    }
                    there.or_else(|| before(id))
                }
                Err(error) => {
                    check_damage(&error)?;
                    ids.push(id);
                    before(id)
                }
            };
        }
        logs.push(ids);
        logs.iter_mut().for_each(|ids| ids.reverse());
        logs.reverse();
        Ok(logs)
    }

    /// Returns the id of the segment that this one continues, if any.
    ///
    /// # Errors
    ///
    /// As [`manifest_of`](Self::manifest_of).
    pub(crate) fn previous_of(&self, id: u64) -> Result<Option<u64>> {
        let previous = self.open_unnamed(id)?.and_then(|segment| segment.start.previous);
        Ok(previous.map(|previous| previous.file_id))
    }

    /// Returns the current manifest at the creation of the segment, with its durable length.
    /// Returns `None` if the creation of the segment was interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Corrupt`] if the beginning of the segment is damaged.
    pub(crate) fn manifest_of(&self, id: u64) -> Result<Option<Position>> {
        Ok(self.open_unnamed(id)?.map(|segment| segment.start.manifest))
    }

    /// Rejects a file that is not the segment, or that a copy of the store wrote with the same
    /// number.
    fn check_header(&self, reader: &mut Reader) -> Result<()> {
        let id = reader.file_id();
        reader.check_header(&FileHeader::new(FileKind::Log, self.store_id, id))?;
        self.secrets.get(&id).map_or(Ok(()), |&expected| check_secret(reader, expected))
    }

    /// Opens a segment. Returns `None` if its file is missing.
    fn open_existing(&self, id: u64) -> Result<Option<Reader>> {
        let path = FileName::Log(id).path(self.folder);
        let file = existing(self.fs.open(&path)).map_err(|e| Error::io("open", &path, e))?;
        let Some(file) = file else { return Ok(None) };
        let mut reader = Reader::new(file, path, id)?.with_values(self.fs, self.folder);
        if let Some(end) = self.written.filter(|end| end.file_id == id) {
            reader.cut(end.offset);
        }
        Ok(Some(reader))
    }

    /// Opens a segment that must exist.
    fn open(&self, id: u64) -> Result<Reader> {
        let missing = || {
            let path = FileName::Log(id).path(self.folder);
            Error::corrupt(path, 0, Corruption::Missing { what: "segment of the log" })
        };
        self.open_existing(id)?.ok_or_else(missing)
    }

    /// Opens a segment that must exist, after its start record.
    pub(super) fn open_begun(&self, id: u64) -> Result<(Reader, Start)> {
        self.begin(self.open(id)?)
    }

    /// Opens a segment after its start record. Returns `None` if its file is missing.
    pub(super) fn open_existing_begun(&self, id: u64) -> Result<Option<(Reader, Start)>> {
        self.open_existing(id)?.map(|reader| self.begin(reader)).transpose()
    }

    fn begin(&self, mut reader: Reader) -> Result<(Reader, Start)> {
        self.check_header(&mut reader)?;
        let start = read_start(&mut reader)?;
        let start = start.map_err(|reason| reader.corrupt(reader.offset(), reason))?;
        Ok((reader, start))
    }

    /// Opens a segment that no manifest names. Returns `None` if its creation was interrupted.
    fn open_unnamed(&self, id: u64) -> Result<Option<Segment>> {
        let mut reader = self.open(id)?;
        let begun = match reader.read_header()? {
            Ok(_) => {
                self.check_header(&mut reader)?;
                read_start(&mut reader)?
            }
            Err(reason @ (Corruption::Unsupported { .. } | Corruption::OutOfRange { .. })) => {
                return Err(reader.corrupt(0, reason));
            }
            Err(reason) => Err(reason),
        };
        match begun {
            Ok(start) => Ok(Some(Segment::new(&reader, start))),
            // Records follow only a durable beginning, so the beginning was lost afterwards.
            Err(reason) if reader.holds_records()? => Err(reader.corrupt(0, reason)),
            Err(_) => Ok(None),
        }
    }
}

fn continues(segment: Option<&Segment>, end: u64) -> bool {
    let previous = segment.and_then(|segment| segment.start.previous);
    previous.is_some_and(|previous| previous.file_id == end)
}

/// Rejects a segment whose header has another secret.
fn check_secret(reader: &Reader, expected: u64) -> Result<()> {
    let (what, found) = ("secret of the log segment", reader.secret());
    if expected == found {
        return Ok(());
    }
    Err(reader.corrupt(0, Corruption::Mismatch { what, expected, found }))
}

/// Returns the start record, or the reason for its lack.
fn read_start(reader: &mut Reader) -> Result<Result<Start, Corruption>> {
    let offset = reader.offset();
    match reader.next()? {
        Next::Record(Record { record_type: RecordType::Start, payload, .. }) => {
            let start = Start::decode(&payload).map_err(|e| reader.corrupt(offset, e))?;
            Ok(Ok(start))
        }
        Next::End(reason) => {
            Ok(Err(reason.unwrap_or(Corruption::Missing { what: "start record" })))
        }
        Next::Record(_) => {
            Err(reader.corrupt(offset, Corruption::Missing { what: "start record" }))
        }
    }
}
