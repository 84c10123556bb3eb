//! A buffered window over a file.

use std::{io, sync::Arc};

use bytes::Bytes;

use crate::source::TableSource;

/// Length of one read, in bytes.
const WINDOW_BYTES: u64 = 1 << 20;

/// A buffered part of a file.
#[derive(Debug)]
pub(super) struct Window {
    source: Arc<dyn TableSource>,
    /// File offset where reads end.
    end: u64,
    start: u64,
    bytes: Bytes,
}

impl Window {
    /// Returns an empty window over `source` up to `end`, at most its length.
    pub(super) fn new(source: Arc<dyn TableSource>, end: u64) -> Self {
        Self { source, end, start: 0, bytes: Bytes::new() }
    }

    /// Returns the file offset where reads end.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns bytes from `at` up to `end`, or a nonempty part of them if [`cover`](Self::cover)
    /// did not read all. Empty at the end of the file.
    ///
    /// # Errors
    ///
    /// Those of the source.
    pub(super) fn from(&mut self, at: u64, end: u64) -> io::Result<&[u8]> {
        self.cover(at, 8)?;
        let last = end.clamp(at, self.window_end().max(at)) - self.start;
        Ok(self.bytes.get((at - self.start) as usize..last as usize).unwrap_or_default())
    }

    /// Reads `length` bytes from `at` unless they are buffered.
    ///
    /// # Errors
    ///
    /// Those of the source.
    pub(super) fn cover(&mut self, at: u64, length: u64) -> io::Result<()> {
        let need = at.saturating_add(length).min(self.end);
        if self.start <= at && need <= self.window_end() {
            return Ok(());
        }
        let length = length.max(WINDOW_BYTES).min(self.end.saturating_sub(at));
        self.bytes = Bytes::new();
        self.bytes = self.source.read_at(at, usize::try_from(length).unwrap_or(usize::MAX))?;
        self.start = at;
        Ok(())
    }

    fn window_end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}
