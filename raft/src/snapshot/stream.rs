//! The bytes of a snapshot, as openraft sends and receives them.

use std::{
    fs::File,
    io::{self, Read, SeekFrom},
    os::unix::fs::FileExt as _,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use super::files::{Files, read_files};
use crate::{Error, Result};

/// A snapshot that is sent, or one that is being received.
///
/// Reads and writes go to files, at the position of the stream, and block for as long as the system
/// takes.
#[derive(Debug)]
pub struct SnapshotStream {
    content: Content,
    position: u64,
}

#[derive(Debug)]
enum Content {
    /// The header, then the files with their lengths.
    Checkpoint { header: Vec<u8>, files: Files },
    /// The file of a snapshot that is being received.
    Incoming(File),
}

impl SnapshotStream {
    /// Opens the checkpoint in `dir`. Its files stay readable if it is removed.
    pub(super) fn of_dir(dir: &Path) -> Result<Self> {
        let (header, files) = read_files(dir)?;
        Ok(Self { content: Content::Checkpoint { header, files }, position: 0 })
    }

    /// Creates the file `path` to receive a snapshot.
    pub(super) fn incoming(path: &Path) -> Result<Self> {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(path);
        let file = file.map_err(Error::at(path))?;
        Ok(Self { content: Content::Incoming(file), position: 0 })
    }

    /// Returns the stream at its first byte.
    pub(super) fn rewound(self) -> Self {
        Self { position: 0, ..self }
    }

    /// Returns its length in bytes.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(match &self.content {
            Content::Checkpoint { header, files } => {
                header.len() as u64 + files.iter().map(|(_, bytes)| bytes).sum::<u64>()
            }
            Content::Incoming(file) => file.metadata()?.len(),
        })
    }

    /// Reads up to `buffer.len()` bytes at the position. Returns 0 at the end.
    fn read_here(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.content {
            Content::Incoming(file) => file.read_at(buffer, self.position),
            Content::Checkpoint { header, files } => {
                let mut offset = self.position;
                if let Some(rest) = usize::try_from(offset).ok().and_then(|at| header.get(at..))
                    && !rest.is_empty()
                {
                    let bytes = rest.len().min(buffer.len());
                    buffer[..bytes].copy_from_slice(&rest[..bytes]);
                    return Ok(bytes);
                }
                offset -= header.len() as u64;
                for (file, bytes) in files {
                    if offset < *bytes {
                        let rest = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
                        let end = buffer.len().min(rest);
                        return file.read_at(&mut buffer[..end], offset);
                    }
                    offset -= bytes;
                }
                Ok(0)
            }
        }
    }
}

impl Read for SnapshotStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.read_here(buffer)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl AsyncRead for SnapshotStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Read::read(&mut *self, buffer.initialize_unfilled())?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SnapshotStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Content::Incoming(file) = &self.content else {
            return Poll::Ready(Err(io::ErrorKind::PermissionDenied.into()));
        };
        file.write_all_at(bytes, self.position)?;
        self.position += bytes.len() as u64;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Syncs nothing: the files made of a received snapshot are synced.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for SnapshotStream {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        let position = match position {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
            SeekFrom::End(distance) => self.length()?.checked_add_signed(distance),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}
