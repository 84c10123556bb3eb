//! Reads and checks single blocks of a table.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::Corruption;

use crate::{
    block::{Block, BlockRole, stored::Stored, zstd::Dictionary},
    error::ReadError,
    handle::BlockHandle,
    source::TableSource,
};

/// What it takes to read a block of one table.
#[derive(Debug)]
pub(crate) struct BlockReader {
    source: Arc<dyn TableSource>,
    salt: u64,
    /// Where blocks may lie: behind the file header and before the footer.
    place: Range<u64>,
    /// The longest content of the table; caps what decompression allocates.
    content_bytes_max: u64,
    dictionary: Option<Dictionary>,
}

impl BlockReader {
    /// Reads blocks in `place` of `source` that were written with `salt`. Refuses compressed ones
    /// until [`set_content_bytes_max`](Self::set_content_bytes_max) tells their bound.
    pub(crate) fn new(source: Arc<dyn TableSource>, salt: u64, place: Range<u64>) -> Self {
        Self { source, salt, place, content_bytes_max: 0, dictionary: None }
    }

    /// What the table is read through.
    pub(crate) fn source(&self) -> &dyn TableSource {
        &*self.source
    }

    /// Returns the same, to be shared.
    pub(crate) fn shared_source(&self) -> &Arc<dyn TableSource> {
        &self.source
    }

    /// Reads through `source` from now on.
    pub(crate) fn set_source(&mut self, source: Arc<dyn TableSource>) {
        self.source = source;
    }

    /// No content of the table is longer.
    pub(crate) fn set_content_bytes_max(&mut self, bytes: u64) {
        self.content_bytes_max = bytes;
    }

    /// Some blocks are compressed with it.
    pub(crate) fn set_dictionary(&mut self, dictionary: Dictionary) {
        self.dictionary = Some(dictionary);
    }

    /// Bytes of memory that the dictionary takes.
    pub(crate) fn dictionary_memory_bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, Dictionary::memory_bytes)
    }

    /// Reads a block and checks its checksum.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; nothing is read or allocated for a block that does not lie within the table.
    pub(crate) fn read_stored(&self, handle: BlockHandle) -> Result<Stored, ReadError> {
        let stored = self.read_bytes(handle.place())?;
        Stored::open(stored, self.salt, handle.offset).map_err(ReadError::corrupt(handle.offset))
    }

    /// Reads one block or several that lie side by side, and checks nothing but that they lie
    /// within the table.
    ///
    /// # Errors
    ///
    /// As [`read_stored`](Self::read_stored).
    pub(crate) fn read_bytes(&self, place: Range<u64>) -> Result<Bytes, ReadError> {
        let bytes = place.end.saturating_sub(place.start);
        let within = self.place.start <= place.start && place.end <= self.place.end;
        let length = usize::try_from(bytes).ok().filter(|_| within);
        let Some(length) = length else {
            let corrupt = ReadError::corrupt(place.start);
            return Err(corrupt(Corruption::OutOfRange { what: "bytes of a block", value: bytes }));
        };
        Ok(self.source.read_at(place.start, length)?)
    }

    /// The content of the block at `handle`, of which `stored` was read ahead.
    ///
    /// # Errors
    ///
    /// As [`read_stored`](Self::read_stored).
    pub(crate) fn content_of(
        &self,
        handle: BlockHandle,
        stored: Bytes,
    ) -> Result<Bytes, ReadError> {
        Stored::open(stored, self.salt, handle.offset)
            .and_then(|stored| stored.content(self.content_bytes_max, self.dictionary.as_ref()))
            .map_err(ReadError::corrupt(handle.offset))
    }

    /// Tells the source which blocks are read next, in ascending order.
    pub(crate) fn advise_read(&self, places: &[Range<u64>]) {
        self.source.advise_read(places);
    }

    /// Reads the content of a block.
    ///
    /// # Errors
    ///
    /// As [`read_stored`](Self::read_stored).
    pub(crate) fn read_content(&self, handle: BlockHandle) -> Result<Bytes, ReadError> {
        self.content_of(handle, self.read_bytes(handle.place())?)
    }

    /// Reads a block of entries.
    ///
    /// # Errors
    ///
    /// As [`read_stored`](Self::read_stored).
    pub(crate) fn read_block(
        &self,
        handle: BlockHandle,
        role: BlockRole,
    ) -> Result<Block, ReadError> {
        let content = self.read_content(handle)?;
        Block::decode(content, role, handle).map_err(ReadError::corrupt(handle.offset))
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Mutex};

    use super::*;

    /// Zeros, and what was asked for.
    #[derive(Debug, Default)]
    struct Asked(Mutex<Vec<usize>>);

    impl TableSource for Asked {
        fn len(&self) -> u64 {
            1000
        }

        fn read_at(&self, _: u64, bytes: usize) -> io::Result<Bytes> {
            self.0.lock().unwrap().push(bytes);
            Ok(vec![0; bytes].into())
        }
    }

    #[test]
    fn nothing_is_read_for_a_block_outside_of_the_table() {
        let source = Arc::new(Asked::default());
        let reader = BlockReader::new(Arc::clone(&source) as Arc<dyn TableSource>, 7, 64..900);
        let cases = [
            ("in the header", 63, 10),
            ("into the footer", 64, 837),
            ("behind the end", 2000, 10),
            ("longer than memory", 64, 1 << 60),
        ];
        for (name, offset, bytes) in cases {
            let found = reader.read_stored(BlockHandle { offset, bytes });
            let want = Corruption::OutOfRange { what: "bytes of a block", value: bytes };
            let is_refused = |error: &ReadError| matches!(error, ReadError::Corrupt { source, .. } if *source == want);
            assert!(found.as_ref().is_err_and(is_refused), "{name}: {found:?}");
        }
        assert!(source.0.lock().unwrap().is_empty());
        assert!(reader.read_stored(BlockHandle { offset: 64, bytes: 836 }).is_err());
        assert_eq!(*source.0.lock().unwrap(), [836], "the checksum of what was read is wrong");
    }
}
