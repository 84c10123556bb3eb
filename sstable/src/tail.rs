//! The tail of a table, read at once.
//!
//! Opening a table needs its footer, properties, filter trailers, filters and top index, which are
//! adjacent at the end of the file. One read of a few KiB replaces one read for each.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;

use crate::source::TableSource;

/// A source whose last bytes are in memory while the table is opened.
#[derive(Debug)]
pub struct TableTail {
    source: Arc<dyn TableSource>,
    /// File offset of `bytes`.
    offset: u64,
    bytes: Bytes,
}

impl TableTail {
    /// Reads the last `bytes` bytes of `source`, or all of it if it is shorter.
    ///
    /// # Errors
    ///
    /// Those of the source.
    pub fn read(source: Arc<dyn TableSource>, bytes: usize) -> io::Result<Self> {
        let length = source.len();
        let bytes = usize::try_from(length).unwrap_or(usize::MAX).min(bytes);
        let offset = length - bytes as u64;
        let bytes = source.read_at(offset, bytes)?;
        Ok(Self { source, offset, bytes })
    }

    /// Returns the source of the whole table.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn TableSource> {
        &self.source
    }
}

/// Reads before the tail go to the source.
impl TableSource for TableTail {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let Some(start) = offset.checked_sub(self.offset) else {
            return self.source.read_at(offset, bytes);
        };
        let start = usize::try_from(start).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        let slice = range.and_then(|range| self.bytes.get(range));
        // Copies: a slice would keep the whole tail in memory.
        slice.map(Bytes::copy_from_slice).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn advise_read(&self, ranges: &[Range<u64>]) {
        self.source.advise_read(ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_reads_as_the_table() {
        let table = Bytes::from_static(b"0123456789");
        for tail_bytes in [0, 1, 4, 10, 11, usize::MAX] {
            let source = Arc::new(table.clone());
            let tail = TableTail::read(source, tail_bytes).unwrap();
            assert_eq!(tail.len(), 10);
            for (offset, bytes) in
                (0..=11).flat_map(|offset| (0..=11).map(move |bytes| (offset, bytes)))
            {
                let kind = |read: io::Result<Bytes>| read.map_err(|error| error.kind());
                let (found, want) = (tail.read_at(offset, bytes), table.read_at(offset, bytes));
                assert_eq!(kind(found), kind(want), "{bytes} at {offset}, tail of {tail_bytes}");
            }
            assert!(tail.read_at(u64::MAX, 1).is_err());
            assert!(tail.read_at(9, usize::MAX).is_err());
        }
    }
}
