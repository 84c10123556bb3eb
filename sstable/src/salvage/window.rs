//! The part of a file that a scan looks at.

use std::{io, sync::Arc};

use bytes::Bytes;

use crate::source::TableSource;

/// Bytes that are read at a time.
const WINDOW_BYTES: u64 = 1 << 20;

/// A part of a file, read when it is needed.
#[derive(Debug)]
pub(super) struct Window {
    source: Arc<dyn TableSource>,
    /// Nothing from here on is read.
    end: u64,
    start: u64,
    bytes: Bytes,
}

impl Window {
    /// A window over `source` up to `end`, at most its length.
    pub(super) fn new(source: Arc<dyn TableSource>, end: u64) -> Self {
        Self { source, end, start: 0, bytes: Bytes::new() }
    }

    /// Returns where the window ends at the latest.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns bytes from `at` on, up to `end` at most: all of them if [`cover`](Self::cover) read
    /// them, else a part; none at the end.
    ///
    /// # Errors
    ///
    /// Those of the source.
    pub(super) fn from(&mut self, at: u64, end: u64) -> io::Result<&[u8]> {
        self.cover(at, 8)?;
        let last = end.clamp(at, self.window_end().max(at)) - self.start;
        // Both lie within the window.
        Ok(self.bytes.get((at - self.start) as usize..last as usize).unwrap_or_default())
    }

    /// Reads `length` bytes from `at` on, unless they are there, up to the end.
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
