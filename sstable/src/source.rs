//! Where the bytes of a table come from and go to.
//!
//! Only the engine knows paths and files; this crate sees them through these two traits.

use std::{fmt::Debug, io, ops::Range};

use bytes::Bytes;

/// The bytes of a finished table.
pub trait TableSource: Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `bytes` bytes from `offset` on: exactly as many.
    ///
    /// A map returns slices of itself, without a copy.
    ///
    /// # Errors
    ///
    /// What the operating system says; [`io::ErrorKind::UnexpectedEof`] for bytes past the end.
    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes>;

    /// Whether [`read_at`](Self::read_at) returns slices of memory that is there anyway: then
    /// nothing is gained by reading several blocks at once.
    fn is_mapped(&self) -> bool {
        false
    }

    /// All of these places, which ascend, are about to be read: whoever can, begins to fetch them.
    /// Only a hint; does nothing by default.
    fn advise_read(&self, places: &[Range<u64>]) {
        let _ = places;
    }
}

/// A table in memory.
impl TableSource for Bytes {
    fn len(&self) -> u64 {
        self.as_ref().len() as u64
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let start = usize::try_from(offset).ok();
        let place = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        let place = place.filter(|place| place.end <= self.as_ref().len());
        place.map(|place| self.slice(place)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Takes the bytes of a table under construction.
pub trait TableSink {
    /// Appends `bytes`, all of them.
    ///
    /// # Errors
    ///
    /// What the operating system says. The table is of no use then.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// A table in memory.
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
    fn memory_is_read_exactly_or_not_at_all() {
        let source = Bytes::from_static(b"0123");
        assert_eq!(TableSource::len(&source), 4);
        assert_eq!(source.read_at(1, 3).unwrap(), "123");
        for (offset, bytes) in [(1, 4), (5, 0), (u64::MAX, 1), (1, usize::MAX)] {
            let error = source.read_at(offset, bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{bytes} at {offset}");
        }
    }
}
