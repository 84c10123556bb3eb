//! Buffered, checksummed output of a new table.

use std::io;

use xxhash_rust::xxh3::Xxh3Default;

use crate::{block::BlockHandle, source::TableSink};

/// A buffered output to a sink, which computes length and checksum.
#[derive(Debug)]
pub(crate) struct Output<S> {
    sink: S,
    /// Appends shorter than this are buffered.
    buffer_bytes: usize,
    buffer: Vec<u8>,
    /// Bytes appended to the sink.
    sent: u64,
    checksum: Checksum,
    /// `true` if the sink failed, possibly after a partial append.
    is_broken: bool,
}

/// xxh3_64 of all bytes sent.
struct Checksum(Xxh3Default);

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0.digest())
    }
}

impl<S: TableSink> Output<S> {
    /// Creates an output at the start of `sink` that appends about `buffer_bytes` bytes at a time.
    pub(crate) fn new(sink: S, buffer_bytes: usize) -> Self {
        let checksum = Checksum(Xxh3Default::new());
        Self { sink, buffer_bytes, buffer: Vec::new(), sent: 0, checksum, is_broken: false }
    }

    /// Returns the offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.sent + self.buffer.len() as u64
    }

    /// Appends bytes.
    ///
    /// # Errors
    ///
    /// Those of the sink. Every later call fails too.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > self.buffer_bytes {
            self.flush()?;
        }
        if bytes.len() < self.buffer_bytes {
            // Exact: the buffer is charged with this size.
            self.buffer.reserve_exact(self.buffer_bytes - self.buffer.len());
            self.buffer.extend_from_slice(bytes);
            debug_assert!(self.buffer.len() <= self.buffer_bytes);
            return Ok(());
        }
        self.send(|_| bytes)
    }

    /// Appends a stored block: its content and trailer.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub(crate) fn append_block(
        &mut self,
        content: &[u8],
        trailer: &[u8],
    ) -> io::Result<BlockHandle> {
        let offset = self.offset();
        self.append(content)?;
        self.append(trailer)?;
        Ok(BlockHandle { offset, bytes: self.offset() - offset })
    }

    /// Appends zeros up to a multiple of `alignment`.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub(crate) fn align(&mut self, alignment: u64) -> io::Result<()> {
        while !self.offset().is_multiple_of(alignment) {
            self.append(&[0])?;
        }
        Ok(())
    }

    /// Returns the memory of the buffer, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Appends the buffered bytes to the sink.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.send(|buffer| buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn send<'a>(&'a mut self, choose: impl FnOnce(&'a [u8]) -> &'a [u8]) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("an earlier append to the table failed; write it again"));
        }
        let bytes = choose(&self.buffer);
        debug_assert!(bytes.len() >= self.buffer.len(), "a long append follows a flush");
        self.is_broken = true;
        self.sink.append(bytes)?;
        self.is_broken = false;
        self.sent += bytes.len() as u64;
        self.checksum.0.update(bytes);
        Ok(())
    }

    /// Flushes the buffer. Returns the sink, the length and the xxh3_64 of the file.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub(crate) fn finish(mut self) -> io::Result<(S, u64, u64)> {
        self.flush()?;
        Ok((self.sink, self.sent, self.checksum.0.digest()))
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    const BUFFER_BYTES: usize = 1 << 10;

    #[test]
    fn the_sink_receives_every_byte_in_order() {
        let mut output = Output::new(Vec::new(), BUFFER_BYTES);
        let mut want = Vec::new();
        for (bytes, byte) in [(1, 1), (100, 2), (BUFFER_BYTES - 101, 3), (1, 4), (5, 5)]
            .into_iter()
            .chain([(BUFFER_BYTES - 1, 6), (BUFFER_BYTES, 7), (3 * BUFFER_BYTES, 8), (3, 9)])
        {
            output.append(&vec![byte; bytes]).unwrap();
            want.extend(vec![byte; bytes]);
            assert_eq!(output.offset(), want.len() as u64);
        }
        output.align(64).unwrap();
        want.resize(want.len().next_multiple_of(64), 0);
        let checksum = xxh3_64(&want);
        let (bytes, length) = (want.clone(), want.len() as u64);
        assert!(output.finish().unwrap() == (bytes, length, checksum));
    }

    #[test]
    fn a_failure_is_final() {
        #[derive(Debug)]
        struct FailOnce(bool);
        impl TableSink for FailOnce {
            fn append(&mut self, _: &[u8]) -> io::Result<()> {
                if std::mem::replace(&mut self.0, false) {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                Ok(())
            }
        }
        let mut output = Output::new(FailOnce(true), BUFFER_BYTES);
        let big = vec![0; BUFFER_BYTES];
        assert_eq!(output.append(&big).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(output.append(&big).is_err());
        assert!(output.finish().is_err());
    }
}
