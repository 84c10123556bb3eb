//! The source and the sink of a table's bytes.
//!
//! This crate does not handle paths or files: the engine implements these traits.

use std::{fmt::Debug, io, ops::Range};

use bytes::Bytes;

/// Random-access reads of a finished table.
pub trait TableSource: Debug + Send + Sync {
    /// Returns the length, in bytes.
    fn len(&self) -> u64;

    /// Returns `true` if the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads exactly `bytes` bytes at `offset`. A memory map returns a slice without a copy.
    ///
    /// # Errors
    ///
    /// Those of the operating system; [`io::ErrorKind::UnexpectedEof`] beyond the end.
    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes>;

    /// Returns `true` if [`read_at`](Self::read_at) returns slices of a memory map, so that reading
    /// several blocks at once saves nothing. Default `false`.
    fn is_mapped(&self) -> bool {
        false
    }

    /// Advises the system to prefetch these byte ranges, which are in ascending order and will be
    /// read soon. A hint that does not wait. Does nothing by default.
    fn advise_read(&self, ranges: &[Range<u64>]) {
        let _ = ranges;
    }
}

/// Reads a table in memory.
impl TableSource for Bytes {
    fn len(&self) -> u64 {
        self.as_ref().len() as u64
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        let range = range.filter(|range| range.end <= self.as_ref().len());
        range.map(|range| self.slice(range)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Sequential writes of a new table.
pub trait TableSink {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    ///
    /// Those of the operating system. The table is then unusable.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Writes a table to memory.
impl TableSink for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_beyond_the_end_fail() {
        let source = Bytes::from_static(b"0123");
        assert_eq!(TableSource::len(&source), 4);
        assert_eq!(source.read_at(1, 3).unwrap(), "123");
        for (offset, bytes) in [(1, 4), (5, 0), (u64::MAX, 1), (1, usize::MAX)] {
            let error = source.read_at(offset, bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{bytes} at {offset}");
        }
    }
}
