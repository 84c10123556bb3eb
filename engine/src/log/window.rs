//! The buffered part of a file that is read from start to end.

use std::{ops::Range, path::PathBuf, sync::Arc};

use super::record::FRAGMENT_BYTES_MAX;
use crate::{Error, Result, fs::ReadFile};

/// Length of the first read: all of a small log, and little of many large ones.
const FIRST_BYTES: usize = 32 << 10;

/// Maximum length of a read, unless more is requested at once.
const BYTES_MAX: usize = FRAGMENT_BYTES_MAX;

#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    file_bytes: u64,
    offset: u64,
    buffer: Vec<u8>,
    /// Maximum length of later reads, unless more is requested at once.
    bytes_max: usize,
}

impl Window {
    /// # Errors
    ///
    /// [`Error::Io`] if the length is unknown.
    pub(super) fn new(file: Arc<dyn ReadFile>, path: PathBuf) -> Result<Self> {
        let file_bytes = file.len().map_err(|e| Error::io("read", &path, e))?;
        let (buffer, bytes_max) = (Vec::new(), BYTES_MAX);
        Ok(Self { file, path, file_bytes, offset: 0, buffer, bytes_max })
    }

    pub(super) const fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Returns the length of the file at its open, or of the cut file.
    pub(super) const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Must precede reading.
    pub(super) fn cut(&mut self, file_bytes: u64) {
        self.file_bytes = self.file_bytes.min(file_bytes);
    }

    /// Undoes a [`cut`](Self::cut) up to `file_bytes`. The file may have grown.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(super) fn extend(&mut self, file_bytes: u64) -> Result<()> {
        let there = self.file.len().map_err(|error| Error::io("read", &self.path, error))?;
        self.file_bytes = self.file_bytes.max(file_bytes.min(there));
        Ok(())
    }

    /// Discards the buffer: a writer may have changed and appended bytes since.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(super) fn reload(&mut self) -> Result<()> {
        self.buffer.clear();
        self.extend(u64::MAX)
    }

    /// Loads `bytes` bytes at `offset`, or fewer at the end of the file. Returns their range in
    /// [`bytes`](Self::bytes).
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(super) fn load(&mut self, offset: u64, bytes: usize) -> Result<Range<usize>> {
        let left = self.file_bytes.saturating_sub(offset);
        let bytes = usize::try_from(left).map_or(bytes, |left| left.min(bytes));
        let start = offset.checked_sub(self.offset).and_then(|start| usize::try_from(start).ok());
        match start {
            Some(start) if start.saturating_add(bytes) <= self.buffer.len() => {
                Ok(start..start + bytes)
            }
            _ if bytes == 0 => Ok(0..0),
            _ => {
                self.fill(offset, bytes)?;
                Ok(0..bytes)
            }
        }
    }

    /// Returns the bytes at a range returned by [`load`](Self::load).
    pub(super) fn bytes(&self, place: Range<usize>) -> &[u8] {
        &self.buffer[place]
    }

    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Reads `bytes` bytes at `offset`, which the file has, and more.
    ///
    /// A bad sector further on must not hide earlier records. So a failed read is retried with half
    /// the size, down to the requested bytes, and later reads are no larger.
    fn fill(&mut self, offset: u64, bytes: usize) -> Result<()> {
        // Grows fourfold, so that reading only the start of a file costs little.
        let window = (self.buffer.len() * 4).clamp(FIRST_BYTES, BYTES_MAX).min(self.bytes_max);
        let left = self.file_bytes - offset;
        let mut window = usize::try_from(left).map_or(window, |left| left.min(window)).max(bytes);
        self.offset = offset;
        loop {
            self.buffer.resize(window, 0);
            match self.file.read_at(&mut self.buffer, offset) {
                Ok(()) => return Ok(()),
                Err(_) if window > bytes => {
                    window = (window / 2).max(bytes);
                    self.bytes_max = window;
                }
                Err(source) => {
                    // The content of the buffer is unknown.
                    self.buffer.clear();
                    return Err(Error::io("read", &self.path, source));
                }
            }
        }
    }
}
