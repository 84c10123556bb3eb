//! The end of a table, read in one go.
//!
//! What an opening needs lies together there: footer, properties, the trailers of filters, the
//! filters and the top index. One read of some KiB takes the place of one for each of them.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;

use crate::source::TableSource;

/// A table whose last bytes are in memory, for as long as it is opened.
#[derive(Debug)]
pub struct TableTail {
    source: Arc<dyn TableSource>,
    /// Where `bytes` begins.
    offset: u64,
    bytes: Bytes,
}

impl TableTail {
    /// Reads the last `bytes` bytes of `source`, or all if there are not as many.
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

    /// The table itself.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn TableSource> {
        &self.source
    }
}

/// What is not in memory is read from the table.
impl TableSource for TableTail {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let Some(start) = offset.checked_sub(self.offset) else {
            return self.source.read_at(offset, bytes);
        };
        let start = usize::try_from(start).ok();
        let place = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        let found = place.and_then(|place| self.bytes.get(place));
        // A copy: what is kept of it must not keep the rest.
        found.map(Bytes::copy_from_slice).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn advise_read(&self, places: &[Range<u64>]) {
        self.source.advise_read(places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_reads_as_the_table() {
        let table = Bytes::from_static(b"0123456789");
        for end_bytes in [0, 1, 4, 10, 11, usize::MAX] {
            let source = Arc::new(table.clone());
            let end = TableTail::read(source, end_bytes).unwrap();
            assert_eq!(end.len(), 10);
            for (offset, bytes) in
                (0..=11).flat_map(|offset| (0..=11).map(move |bytes| (offset, bytes)))
            {
                let kind = |read: io::Result<Bytes>| read.map_err(|error| error.kind());
                let (found, want) = (end.read_at(offset, bytes), table.read_at(offset, bytes));
                assert_eq!(kind(found), kind(want), "{bytes} at {offset}, end {end_bytes}");
            }
            assert!(end.read_at(u64::MAX, 1).is_err());
            assert!(end.read_at(9, usize::MAX).is_err());
        }
    }
}
