//! The encrypting file system.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::FileHeader;

use super::{
    Keys,
    cipher::{Cipher, TAG_BYTES},
    envelope::{HEAD_BYTES, HEADER_BYTES, Head, Layout},
    error::EncryptionError,
    frame_file::{FrameFile, shadow},
    frames::{FRAME_HEAD_BYTES, FrameWriter},
    pages::{PageFile, PageWriter},
};
use crate::{
    file_name::FileName,
    fs::{AppendFile, Fs, ReadFile, forward_fs},
    sync::Mutex,
};

/// Maximum bytes of an append that is encrypted at once. Longer ones are split.
const APPEND_BYTES_MAX: usize = 256 << 10;
/// Maximum size of a buffer that is kept after use.
const BUFFER_BYTES_MAX: usize = 32 << 10;

/// Encrypts all files of a store except `LOCK`, which contains a process id.
#[derive(Debug)]
pub(crate) struct EncryptedFs {
    pub(super) inner: Arc<dyn Fs>,
    pub(super) keys: Keys,
    /// Held by the thread that rewrites files.
    pub(super) turn: Mutex<()>,
    repeats_nonces: bool,
}

impl EncryptedFs {
    /// `repeats_nonces` is a planted bug.
    pub(crate) fn new(inner: Arc<dyn Fs>, keys: Keys, repeats_nonces: bool) -> Self {
        Self { inner, keys, turn: Mutex::new(()), repeats_nonces }
    }

    /// Checks that the keys can read and write the store in `folder`, if any. Reads the head of
    /// `CURRENT`. A damaged head is no error.
    ///
    /// # Errors
    ///
    /// The file, and the error of [`EncryptionError`] or of reading the file.
    pub(super) fn check(&self, folder: &Path) -> Result<(), (PathBuf, io::Error)> {
        let current = self.keys.current_key_id().and_then(|id| match self.keys.key(id) {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        });
        if let Err(source) = current {
            let id = self.keys.current_key_id().unwrap_or(0);
            return Err((folder.to_owned(), EncryptionError::NoKey { id, source }.into()));
        }
        let path = FileName::Current.path(folder);
        let read = match self.inner.open(&path) {
            Ok(file) => self.head_with_cipher(&*file).map(drop),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
            Err(error) => Err(error),
        };
        match read {
            Err(error) if is_damage(&error) => Ok(()),
            read => read.map_err(|error| (path, error)),
        }
    }

    fn head_with_cipher(&self, file: &dyn ReadFile) -> io::Result<Option<(Head, Cipher)>> {
        let Some(head) = Head::read(file)? else { return Ok(None) };
        let cipher = head.cipher(&*self.keys)?;
        Ok(Some((head, cipher)))
    }

    /// Returns the logical file.
    fn reader(&self, path: &Path, file: Arc<dyn ReadFile>) -> io::Result<Arc<dyn ReadFile>> {
        if is_lock(path) {
            return Ok(file);
        }
        Ok(match self.head_with_cipher(&*file)? {
            None => Arc::new(Headless { file }),
            Some((head, cipher)) => match head.layout {
                Layout::Pages => Arc::new(PageFile::new(file, &head, cipher)?),
                Layout::Frames => Arc::new(FrameFile::new(file, &head, cipher)),
            },
        })
    }

    /// Opens the logical file `path`. Reads of damaged bytes fail, except at the end of a file of
    /// frames.
    pub(super) fn open_undamaged(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.inner.open(path)?;
        match self.head_with_cipher(&*file)? {
            Some((head, cipher)) if head.layout == Layout::Frames => {
                Ok(Arc::new(FrameFile::new(file, &head, cipher).refusing_damage()))
            }
            _ => self.reader(path, file),
        }
    }

    /// Returns the logical length of `file`, at `path`, without reserved bytes.
    pub(super) fn bytes_of(&self, path: &Path, file: &dyn ReadFile) -> io::Result<u64> {
        let stored = self.inner.open(path)?;
        match self.head_with_cipher(&*stored)? {
            Some((head, cipher)) if head.layout == Layout::Frames => {
                FrameFile::new(stored, &head, cipher).framed_bytes()
            }
            _ => file.len(),
        }
    }

    /// Returns the stored length that holds the first `bytes` logical bytes of the stored `file`.
    ///
    /// # Errors
    ///
    /// Those of reading the file.
    pub(super) fn stored_bytes(&self, file: Arc<dyn ReadFile>, bytes: u64) -> io::Result<u64> {
        match self.head_with_cipher(&*file)? {
            Some((head, cipher)) if head.layout == Layout::Frames => {
                FrameFile::new(file, &head, cipher).stored_bytes(bytes)
            }
            _ => file.len(),
        }
    }
}

/// Returns `true` for `LOCK`, which is never encrypted.
fn is_lock(path: &Path) -> bool {
    path.file_name() == FileName::Lock.path(Path::new("")).file_name()
}

/// Returns `true` if stored bytes are damaged.
fn is_damage(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(EncryptionError::Corrupt { .. }))
}

impl Fs for EncryptedFs {
    forward_fs! {
        absolute, resolve, create_dir, list, exists, rename, unlink, link, sync_dir,
        open_dir, lock, lock_shared, read_system_file, random_u64
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let file = self.inner.create(path)?;
        let writer = Writer::Begun(Vec::new());
        let state = Mutex::new(State { writer, stored: 0, out: Vec::new() });
        let (fs, keys) = (Arc::clone(&self.inner), Arc::clone(&self.keys));
        let repeats_nonces = self.repeats_nonces;
        Ok(Arc::new(EncryptedAppend { file, fs, keys, state, repeats_nonces }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let stored = self.inner.open(path)?;
        let Some((head, cipher)) = self.head_with_cipher(&*stored)? else {
            let reason = "the head of an encrypted file is missing";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        };
        let bytes = FrameFile::new(Arc::clone(&stored), &head, cipher).len()?;
        let (cipher, fs) = (head.cipher(&*self.keys)?, Arc::clone(&self.inner));
        let frames = FrameWriter::new(cipher, fs, bytes, self.repeats_nonces)?;
        let (writer, stored) = (Writer::Frames(frames), stored.len()?);
        let state = Mutex::new(State { writer, stored, out: Vec::new() });
        let (fs, keys) = (Arc::clone(&self.inner), Arc::clone(&self.keys));
        let (file, repeats_nonces) = (self.inner.open_append(path)?, self.repeats_nonces);
        Ok(Arc::new(EncryptedAppend { file, fs, keys, state, repeats_nonces }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.reader(path, self.inner.open(path)?)
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.reader(path, self.inner.open_direct(path)?)
    }
}

/// An encrypted file open for appending.
#[derive(Debug)]
struct EncryptedAppend {
    file: Arc<dyn AppendFile>,
    fs: Arc<dyn Fs>,
    keys: Keys,
    state: Mutex<State>,
    repeats_nonces: bool,
}

#[derive(Debug)]
struct State {
    writer: Writer,
    /// Stored length, without reserved bytes.
    stored: u64,
    /// Stored bytes to append.
    out: Vec<u8>,
}

#[derive(Debug)]
enum Writer {
    /// A prefix of the file header, which is not stored yet.
    Begun(Vec<u8>),
    Pages(PageWriter),
    Frames(FrameWriter),
    /// An append failed: the stored length is unknown, and a file of pages has no end.
    Failed {
        is_paged: bool,
    },
}

impl EncryptedAppend {
    /// Begins the file with its header, the start of `bytes`.
    fn begin(&self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<Writer> {
        let header = FileHeader::decode(bytes);
        let header = header.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (head, cipher) = Head::create(header, &*self.keys, &*self.fs)?;
        out.extend_from_slice(&head.encode());
        let (fs, start) = (Arc::clone(&self.fs), HEADER_BYTES as u64);
        Ok(match head.layout {
            Layout::Pages => Writer::Pages(PageWriter::new(cipher)),
            Layout::Frames => {
                Writer::Frames(FrameWriter::new(cipher, fs, start, self.repeats_nonces)?)
            }
        })
    }

    fn append_part(&self, state: &mut State, bytes: &[u8]) -> io::Result<()> {
        let State { writer, out, .. } = state;
        match writer {
            Writer::Begun(begun) => {
                begun.extend_from_slice(bytes);
                if begun.len() < HEADER_BYTES {
                    return Ok(());
                }
                let begun = std::mem::take(begun);
                let has_begun = self.begin(&begun, out);
                *writer = has_begun.inspect_err(|_| {
                    *writer = Writer::Failed { is_paged: true };
                    out.clear();
                })?;
                return self.append_part(state, &begun[HEADER_BYTES..]);
            }
            Writer::Pages(pages) => pages.append(bytes, out)?,
            Writer::Frames(frames) => frames.append(bytes, out)?,
            Writer::Failed { .. } => return Err(append_failed()),
        }
        self.store(state)
    }

    /// Appends the stored bytes to the file.
    fn store(&self, state: &mut State) -> io::Result<()> {
        if state.out.is_empty() {
            return Ok(());
        }
        let stored = self.file.append(&state.out);
        if stored.is_err() {
            let is_paged = matches!(state.writer, Writer::Pages(_));
            state.writer = Writer::Failed { is_paged };
        }
        state.stored += state.out.len() as u64;
        state.out.clear();
        state.out.shrink_to(BUFFER_BYTES_MAX);
        stored
    }
}

fn append_failed() -> io::Error {
    io::Error::other("an earlier append to the file failed")
}

impl AppendFile for EncryptedAppend {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        bytes.chunks(APPEND_BYTES_MAX).try_for_each(|part| self.append_part(&mut state, part))
    }

    /// Reserves half as much again, for the heads and tags of frames.
    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        let state = self.state.lock();
        let Writer::Frames(frames) = &state.writer else { return Ok(()) };
        let more = file_bytes.saturating_sub(frames.bytes);
        self.file.reserve(state.stored.saturating_add(more).saturating_add(more / 2))
    }

    /// Completes a table or filter file.
    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let State { writer, out, .. } = &mut *state;
        match writer {
            Writer::Pages(pages) => {
                pages.finish(out);
                self.store(&mut state)?;
            }
            Writer::Failed { is_paged: true } => return Err(append_failed()),
            _ => {}
        }
        drop(state);
        self.file.sync_data()
    }
}

/// A file without a readable head: its creation was interrupted, or it is damaged. No byte of it is
/// authentic. It has the length of the logical file with one frame.
#[derive(Debug)]
struct Headless {
    file: Arc<dyn ReadFile>,
}

impl Headless {
    /// Stored bytes between the file header and the content of the first frame, and its tag.
    const OVERHEAD_BYTES: u64 = (HEAD_BYTES - HEADER_BYTES + FRAME_HEAD_BYTES + TAG_BYTES) as u64;
}

impl ReadFile for Headless {
    fn len(&self) -> io::Result<u64> {
        let (stored, header) = (self.file.len()?, HEADER_BYTES as u64);
        Ok(stored.min(header.max(stored.saturating_sub(Self::OVERHEAD_BYTES))))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let of_header = (HEADER_BYTES as u64).saturating_sub(offset).min(buf.len() as u64);
        let (header, rest) = buf.split_at_mut(of_header as usize);
        let read = |buf: &mut [u8], place: Range<u64>| match buf.is_empty() {
            true => Ok(()),
            false => self.file.read_at(buf, place.start),
        };
        read(header, offset..HEADER_BYTES as u64)?;
        let behind = offset.saturating_add(of_header).saturating_add(Self::OVERHEAD_BYTES);
        read(rest, behind..u64::MAX)?;
        buf.iter_mut().for_each(|byte| *byte = shadow(*byte));
        Ok(())
    }

    fn map(&self) -> io::Result<Bytes> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "an encrypted file cannot be mapped"))
    }
}
