//! Reads and checks of single blocks of a table.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::Corruption;

use crate::{
    block::{
        Block, BlockHandle, BlockRole,
        stored::{CONTENT_BYTES_MAX, Stored},
        zstd::Dictionary,
    },
    error::ReadError,
    source::TableSource,
};

/// A reader of the blocks of one table, which bypasses the cache.
#[derive(Debug)]
pub(crate) struct BlockReader {
    source: Arc<dyn TableSource>,
    salt: u64,
    /// Range of the file that may hold blocks: between header and footer.
    range: Range<u64>,
    /// Length of the longest content. Bounds the memory of decompression.
    content_bytes_max: u64,
    dictionary: Option<Dictionary>,
}

impl BlockReader {
    /// Creates a reader of blocks in `range` of `source` that were written with `salt`. Refuses
    /// compressed blocks until [`set_content_bytes_max`](Self::set_content_bytes_max) is called.
    pub(crate) fn new(source: Arc<dyn TableSource>, salt: u64, range: Range<u64>) -> Self {
        Self { source, salt, range, content_bytes_max: 0, dictionary: None }
    }

    pub(crate) fn source(&self) -> &Arc<dyn TableSource> {
        &self.source
    }

    pub(crate) fn set_source(&mut self, source: Arc<dyn TableSource>) {
        debug_assert_eq!(source.len(), self.source.len(), "the source of the same table");
        self.source = source;
    }

    /// Accepts compressed blocks whose content has up to `bytes` bytes, a number from the file, or
    /// [`CONTENT_BYTES_MAX`]. Only a top index, which is never compressed, is longer.
    pub(crate) fn set_content_bytes_max(&mut self, bytes: u64) {
        self.content_bytes_max = bytes.min(CONTENT_BYTES_MAX);
    }

    pub(crate) fn set_dictionary(&mut self, dictionary: Dictionary) {
        self.dictionary = Some(dictionary);
    }

    /// Returns the memory of the dictionary, in bytes.
    pub(crate) fn dictionary_memory_bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, Dictionary::memory_bytes)
    }

    /// Reads a block and checks its checksum. Does not decompress it.
    ///
    /// # Errors
    ///
    /// [`ReadError`]. Reads and allocates nothing for a handle outside of the table.
    pub(crate) fn read_stored(&self, handle: BlockHandle) -> Result<Stored, ReadError> {
        let stored = self.read_bytes(handle.range())?;
        Stored::open(stored, self.salt, handle.offset).map_err(ReadError::corrupt(handle.offset))
    }

    /// Reads the bytes of one or more adjacent blocks, without a check.
    ///
    /// # Errors
    ///
    /// As [`read_stored`](Self::read_stored).
    pub(crate) fn read_bytes(&self, range: Range<u64>) -> Result<Bytes, ReadError> {
        let bytes = range.end.saturating_sub(range.start);
        let is_within = self.range.start <= range.start && range.end <= self.range.end;
        let length = usize::try_from(bytes).ok().filter(|_| is_within);
        let Some(length) = length else {
            let corrupt = ReadError::corrupt(range.start);
            return Err(corrupt(Corruption::OutOfRange { what: "bytes of a block", value: bytes }));
        };
        Ok(self.source.read_at(range.start, length)?)
    }

    /// Checks and decompresses the bytes of the block at `handle`.
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

    /// Reads the content of a block.
    ///
    /// # Errors
    ///
    /// As [`read_stored`](Self::read_stored).
    pub(crate) fn read_content(&self, handle: BlockHandle) -> Result<Bytes, ReadError> {
        self.content_of(handle, self.read_bytes(handle.range())?)
    }

    /// Reads and decodes a block of entries.
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

    /// A source of zeros that records the lengths of reads.
    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<usize>>);

    impl TableSource for Recorder {
        fn len(&self) -> u64 {
            1000
        }

        fn read_at(&self, _: u64, bytes: usize) -> io::Result<Bytes> {
            self.0.lock().unwrap().push(bytes);
            Ok(vec![0; bytes].into())
        }
    }

    /// The number is from the file. A few bytes of zstd decompress to 128 KiB.
    #[test]
    fn no_content_is_longer_than_a_writer_makes_it() {
        let mut reader = BlockReader::new(Arc::new(Recorder::default()), 7, 64..900);
        for (stated, accepted) in [(5000, 5000), (u32::MAX.into(), CONTENT_BYTES_MAX)] {
            reader.set_content_bytes_max(stated);
            assert_eq!(reader.content_bytes_max, accepted);
        }
    }

    #[test]
    fn a_handle_outside_of_the_table_is_not_read() {
        let source = Arc::new(Recorder::default());
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
        assert_eq!(*source.0.lock().unwrap(), [836], "read, and refused for its checksum");
    }
}
