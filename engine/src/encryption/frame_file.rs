//! Reads files of frames, also while they grow. See the parent module for the layout.
//!
//! Frames are consecutive, so their heads lead from one to the next. A head that does not continue
//! the previous frame shows damage, or the end. Then the previous frame is authenticated, since its
//! length may be wrong. The next authentic frame is searched byte by byte.
//!
//! Bytes without an authentic frame read as 127 where a stored byte is not zero, and as 0 where it
//! is zero. So a torn end differs from a reserved one. Neither value is the type of a log record:
//! an attacker who knows no key chooses these bytes, and must not write a record that is skipped.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::Corruption;

use super::{
    cipher::{Cipher, TAG_BYTES},
    envelope::{HEAD_BYTES, HEADER_BYTES, Head},
    error::EncryptionError,
    frames::{CONTENT_BYTES_MAX, FRAME_HEAD_BYTES, FrameHead},
};
use crate::{fs::ReadFile, sync::Mutex};

/// Stored bytes between two positions where reading can begin.
const MARK_BYTES: u64 = 64 << 10;
/// Stored bytes read at once.
const WINDOW_BYTES: usize = 64 << 10;
/// Stored bytes of a frame without its content.
const OVERHEAD_BYTES: usize = FRAME_HEAD_BYTES + TAG_BYTES;

/// A position in the file, logical and stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    stored: u64,
    logical: u64,
}

impl Place {
    fn behind(self, head: &FrameHead) -> Self {
        let content = u64::from(head.length);
        let stored = self.stored + OVERHEAD_BYTES as u64 + content;
        Self { stored, logical: self.logical + content }
    }
}

#[derive(Debug)]
pub(super) struct FrameFile {
    file: Arc<dyn ReadFile>,
    cipher: Cipher,
    /// The logical file header.
    header: [u8; HEADER_BYTES],
    /// Bytes that are not authentic are an error, except at the end of the file.
    refuses_damage: bool,
    state: Mutex<State>,
}

/// The known frames.
#[derive(Debug)]
struct State {
    /// Ends of frames, ascending, about every [`MARK_BYTES`], where frames are consecutive. Also
    /// the end before each gap, followed by the start of the frame after the gap.
    marks: Vec<Place>,
    /// End of the last frame.
    end: Place,
    /// Start of the last frame, if it is not authenticated.
    last: Option<Place>,
    /// Result of the last search without a frame.
    searched: Option<Searched>,
    /// Largest logical length returned so far. A read up to here succeeds, although a frame that
    /// was incomplete then is shorter than its stored bytes.
    returned: u64,
}

/// A search that found no frame at the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Searched {
    /// Stored length of the file.
    there: u64,
    /// The file had only zeros from here on.
    zeros_from: u64,
}

impl FrameFile {
    pub(super) fn new(file: Arc<dyn ReadFile>, head: &Head, cipher: Cipher) -> Self {
        let end = Place { stored: HEAD_BYTES as u64, logical: HEADER_BYTES as u64 };
        let state = State { marks: vec![end], end, last: None, searched: None, returned: 0 };
        let header = head.header.encode();
        Self { file, cipher, header, refuses_damage: false, state: Mutex::new(state) }
    }

    /// Refuses to read bytes that are not authentic, except at the end of the file.
    pub(super) fn refusing_damage(self) -> Self {
        Self { refuses_damage: true, ..self }
    }

    /// Returns the stored length of the frames with the first `bytes` logical bytes.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub(super) fn stored_bytes(&self, bytes: u64) -> io::Result<u64> {
        let mut state = self.state.lock();
        let there = self.extend(&mut state)?;
        let mut window = Window::new(&*self.file, there);
        let mut stored = HEAD_BYTES as u64;
        for (from, to) in parts(&state, 0..bytes) {
            let mut at = from;
            stored = at.stored;
            while at.logical < bytes && at.stored < to.stored {
                let Some(head) = window.frame(at)? else { break };
                at = at.behind(&head);
                stored = at.stored;
            }
        }
        // Bytes without a frame are at the end.
        Ok(if bytes > state.end.logical { there } else { stored })
    }

    /// Returns the logical end of the last frame.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub(super) fn framed_bytes(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        self.extend(&mut state)?;
        Ok(state.end.logical)
    }

    /// Follows the frames to the end of the file. Returns its stored length.
    fn extend(&self, state: &mut State) -> io::Result<u64> {
        let there = self.file.len()?;
        let mut window = Window::new(&*self.file, there);
        while state.end.stored < there {
            let at = state.end;
            if let Some(head) = window.frame(at)? {
                state.last = Some(at);
                state.push(at.behind(&head));
                continue;
            }
            let mut from = at.stored;
            if let Some(last) = state.last.take()
                && self.authentic(&mut window, last)?.is_none()
            {
                // The length of the last frame may be wrong.
                state.retreat(last);
                from = last.stored + 1;
            }
            if let Some(searched) = state.searched
                && searched.there == there
                && window.is_zero_at(searched.zeros_from.max(from))?
            {
                break;
            }
            match self.search(&mut window, state.end, from)? {
                Ok((start, end)) => {
                    state.marks.extend([state.end, start]);
                    state.end = end;
                }
                Err(searched) => {
                    state.searched = Some(searched);
                    break;
                }
            }
        }
        Ok(there)
    }

    /// Returns the start and end of the authentic frame that starts at `from` or after it. `end` is
    /// the end of the previous frame.
    fn search(
        &self,
        window: &mut Window<'_>,
        end: Place,
        mut from: u64,
    ) -> io::Result<Result<(Place, Place), Searched>> {
        let mut zeros_from = from;
        loop {
            let bytes = window.load(from, FRAME_HEAD_BYTES)?;
            if let Some(last) = bytes.iter().rposition(|&byte| byte != 0) {
                zeros_from = from + last as u64 + 1;
            }
            if bytes.len() < FRAME_HEAD_BYTES {
                return Ok(Err(Searched { there: window.file_bytes, zeros_from }));
            }
            let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
            if zeros >= FRAME_HEAD_BYTES {
                // The head of a frame is never zero.
                from += (zeros + 1 - FRAME_HEAD_BYTES) as u64;
                continue;
            }
            let mut found = None;
            for (at, head) in (from..).zip(bytes.windows(FRAME_HEAD_BYTES)) {
                let head = head.first_chunk().and_then(FrameHead::decode);
                // The frames in between are not shorter than their content.
                let most = end.logical + (at - end.stored);
                let fits = |head: &FrameHead| (end.logical..=most).contains(&head.offset);
                if let Some(head) = head.filter(fits) {
                    found = Some(Place { stored: at, logical: head.offset });
                    break;
                }
            }
            let loaded = bytes.len();
            match found {
                None => from += (loaded + 1 - FRAME_HEAD_BYTES) as u64,
                Some(start) => {
                    if let Some(head) = self.authentic(window, start)? {
                        return Ok(Ok((start, start.behind(&head))));
                    }
                    from = start.stored + 1;
                }
            }
        }
    }

    /// Returns the head of the frame at `at` if the frame is authentic.
    fn authentic(&self, window: &mut Window<'_>, at: Place) -> io::Result<Option<FrameHead>> {
        let Some(head) = window.frame(at)? else { return Ok(None) };
        let mut content = [0; CONTENT_BYTES_MAX];
        let content = &mut content[..head.length as usize];
        Ok(self.decrypt(window, at, &head, content)?.then_some(head))
    }

    fn decrypt(
        &self,
        window: &mut Window<'_>,
        at: Place,
        head: &FrameHead,
        content: &mut [u8],
    ) -> io::Result<bool> {
        let stored = OVERHEAD_BYTES + content.len();
        let bytes = &window.load(at.stored, stored)?[..stored];
        let sealed = &bytes[FRAME_HEAD_BYTES..];
        Ok(self.cipher.decrypt(head.nonce, &head.associated(), sealed, content))
    }

    fn check_damage(&self, offset: u64) -> io::Result<()> {
        match self.refuses_damage {
            true => {
                Err(EncryptionError::corrupt(offset, Corruption::NotAuthentic { what: "frame" }))
            }
            false => Ok(()),
        }
    }

    /// Reads the logical `place`, which is after the file header.
    fn read(&self, place: &Range<u64>, buf: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let mut there = self.file.len()?;
        if place.end > state.end.logical {
            there = self.extend(&mut state)?;
        }
        if place.end > end_of(&state, there).max(state.returned) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut window = Window::new(&*self.file, there);
        let mut content = [0; CONTENT_BYTES_MAX];
        for (from, to) in parts(&state, place.clone()) {
            let mut at = from;
            while at.stored < to.stored && at.logical < place.end {
                let Some(head) = window.frame(at)? else { break };
                let next = at.behind(&head);
                if next.logical > place.start {
                    let content = &mut content[..head.length as usize];
                    if !self.decrypt(&mut window, at, &head, content)? {
                        self.check_damage(at.logical)?;
                        let stored = at.stored + FRAME_HEAD_BYTES as u64;
                        let stored = window.load(stored, content.len())?;
                        content.iter_mut().zip(stored).for_each(|(to, &from)| *to = shadow(from));
                    }
                    copy(at.logical, content, place, buf);
                }
                at = next;
            }
            // The missing bytes up to the next frame.
            let missing = at.logical..to.logical;
            let wanted = missing.start.max(place.start)..missing.end.min(place.end);
            if !wanted.is_empty() {
                if to.logical != u64::MAX {
                    self.check_damage(at.logical)?;
                }
                let stored = at.stored + (wanted.start - missing.start);
                let part = &mut buf[(wanted.start - place.start) as usize..]
                    [..(wanted.end - wanted.start) as usize];
                // The remaining stored bytes stand for heads and tags.
                let limit = if to.logical == u64::MAX { there } else { to.stored };
                let left = usize::try_from(limit.saturating_sub(stored)).unwrap_or(usize::MAX);
                let (part, rest) = part.split_at_mut(left.min(part.len()));
                rest.fill(0);
                self.file.read_at(part, stored)?;
                part.iter_mut().for_each(|byte| *byte = shadow(*byte));
            }
        }
        Ok(())
    }
}

/// Returns the value that a byte without an authentic frame reads as.
pub(crate) const fn shadow(stored: u8) -> u8 {
    if stored == 0 { 0 } else { 127 }
}

/// Copies the part of the logical `place` from `content`, which begins at `start`, into `buf`.
fn copy(start: u64, content: &[u8], place: &Range<u64>, buf: &mut [u8]) {
    let end = start + content.len() as u64;
    let (from, to) = (place.start.max(start), place.end.min(end));
    if from < to {
        let content = &content[(from - start) as usize..(to - start) as usize];
        buf[(from - place.start) as usize..][..content.len()].copy_from_slice(content);
    }
}

/// Returns the logical length of a file of `there` stored bytes. After the last frame it is an
/// upper bound, which does not shrink while frames fill reserved bytes.
fn end_of(state: &State, there: u64) -> u64 {
    match state.end.stored == there {
        true => state.end.logical,
        false => there - HEAD_BYTES as u64 + HEADER_BYTES as u64,
    }
}

/// Returns the parts of the file that hold the logical `place`, each between two marks.
fn parts(state: &State, place: Range<u64>) -> impl Iterator<Item = (Place, Place)> {
    let first = state.marks.partition_point(|mark| mark.logical <= place.start).saturating_sub(1);
    let starts = state.marks[first..].iter().copied().chain([state.end]);
    let last = Place { stored: state.end.stored, logical: u64::MAX };
    let ends = state.marks[first..].iter().copied().skip(1).chain([state.end, last]);
    starts.zip(ends).take_while(move |(start, _)| start.logical < place.end)
}

impl State {
    fn push(&mut self, end: Place) {
        self.end = end;
        if self.marks.last().is_none_or(|mark| mark.stored + MARK_BYTES <= end.stored) {
            self.marks.push(end);
        }
    }

    /// Truncates the known frames to `end`.
    fn retreat(&mut self, end: Place) {
        self.end = end;
        while self.marks.last().is_some_and(|mark| mark.stored > end.stored) {
            self.marks.pop();
        }
    }
}

/// Stored bytes of a file in memory.
struct Window<'a> {
    file: &'a dyn ReadFile,
    file_bytes: u64,
    offset: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(file: &'a dyn ReadFile, file_bytes: u64) -> Self {
        Self { file, file_bytes, offset: 0, bytes: Vec::new() }
    }

    /// Returns at least `need` bytes from `offset` on, or fewer at the end of the file.
    fn load(&mut self, offset: u64, need: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.file_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let need = need.min(left);
        let start = offset.checked_sub(self.offset).and_then(|start| usize::try_from(start).ok());
        if let Some(start) = start.filter(|start| start.saturating_add(need) <= self.bytes.len()) {
            return Ok(&self.bytes[start..]);
        }
        self.bytes.resize(left.min(WINDOW_BYTES.max(need)), 0);
        self.offset = offset;
        let read = self.file.read_at(&mut self.bytes, offset);
        if let Err(error) = read {
            // A bad sector further on must not hide earlier bytes.
            self.bytes.truncate(need);
            if self.file.read_at(&mut self.bytes, offset).is_err() {
                self.bytes.clear();
                return Err(error);
            }
        }
        Ok(&self.bytes)
    }

    /// Returns the head of the frame at `at` if the file can hold the frame.
    fn frame(&mut self, at: Place) -> io::Result<Option<FrameHead>> {
        let left = self.file_bytes - at.stored;
        let head = self.load(at.stored, FRAME_HEAD_BYTES)?.first_chunk();
        let head = head.and_then(FrameHead::decode).filter(|head| head.offset == at.logical);
        Ok(head.filter(|head| OVERHEAD_BYTES as u64 + u64::from(head.length) <= left))
    }

    /// Returns `true` if no frame has begun at `offset`.
    fn is_zero_at(&mut self, offset: u64) -> io::Result<bool> {
        let bytes = self.load(offset, FRAME_HEAD_BYTES)?;
        Ok(bytes.iter().take(FRAME_HEAD_BYTES).all(|&byte| byte == 0))
    }
}

impl ReadFile for FrameFile {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        let there = self.extend(&mut state)?;
        state.returned = state.returned.max(end_of(&state, there));
        Ok(state.returned)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        let place = offset..end;
        let behind = place.start.max(HEADER_BYTES as u64)..place.end;
        copy(0, &self.header, &place, buf);
        if behind.is_empty() {
            return Ok(());
        }
        let skipped = (behind.start - place.start) as usize;
        self.read(&behind, &mut buf[skipped..])
    }

    fn map(&self) -> io::Result<Bytes> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "an encrypted file cannot be mapped"))
    }
}
