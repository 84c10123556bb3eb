//! The bytes of a snapshot, as openraft sends and receives them.

use std::{
    io::{self, Read, SeekFrom},
    path::Path,
    pin::Pin,
    sync::{Arc, atomic::AtomicBool},
    task::{Context, Poll},
};

use sievedb::fs::{AppendFile, Fs, ReadFile};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use super::files::Checkpoint;
use crate::{Error, Result};

/// A snapshot that is sent, or one that is being received.
///
/// A stream that is sent has at most one file open. It keeps the files of its snapshot, even after
/// the next snapshot is built, and keeps the store open: drop the stream after the transfer.
///
/// Reads and writes use files at the position of the stream, and block. Bytes are received in
/// order; bytes that are received again must be equal.
#[derive(Debug)]
pub struct SnapshotStream {
    content: Content,
    position: u64,
}

#[derive(Debug)]
enum Content {
    Checkpoint(Checkpoint),
    /// Two handles of the file of a snapshot that is being received.
    Incoming {
        end: Arc<dyn AppendFile>,
        file: Arc<dyn ReadFile>,
        /// To be set when the snapshot is installed.
        installed: Option<Arc<AtomicBool>>,
    },
}

impl SnapshotStream {
    /// Returns the stream of a checkpoint.
    pub(super) fn of(checkpoint: Checkpoint) -> Self {
        Self { content: Content::Checkpoint(checkpoint), position: 0 }
    }

    /// Creates the file `path` to receive a snapshot, and unlinks it: its space is free when the
    /// stream is dropped.
    pub(super) fn incoming(fs: &dyn Fs, path: &Path) -> Result<Self> {
        let end = fs.create(path).map_err(Error::at(path))?;
        let file = fs.open(path).map_err(Error::at(path));
        fs.unlink(path).map_err(Error::at(path))?;
        Ok(Self { content: Content::Incoming { end, file: file?, installed: None }, position: 0 })
    }

    /// Returns the stream, which marks the end of its installation by `flag`.
    pub(super) fn with_transfer(mut self, flag: Arc<AtomicBool>) -> Self {
        if let Content::Incoming { installed, .. } = &mut self.content {
            *installed = Some(flag);
        }
        self
    }

    /// Returns the mark to be set when the snapshot is installed.
    pub(crate) fn installed(&self) -> Option<Arc<AtomicBool>> {
        match &self.content {
            Content::Incoming { installed, .. } => installed.clone(),
            Content::Checkpoint(_) => None,
        }
    }

    /// Returns an id of the bytes of a snapshot that is sent: the same one in each process that has
    /// this snapshot. With openraft 0.10, the network of the application sends it with each part.
    ///
    /// Reads the manifest of the snapshot, and blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. [`Error::Snapshot`] for a snapshot that is being received.
    pub fn id(&self) -> Result<String> {
        match &self.content {
            Content::Checkpoint(checkpoint) => checkpoint.id(),
            Content::Incoming { .. } => {
                Err(Error::Snapshot("a snapshot that is being received has no id".to_owned()))
            }
        }
    }

    /// Appends the part of `bytes`, which belong to `offset`, that the file does not have yet.
    pub(super) fn receive(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Content::Incoming { end, file, .. } = &self.content else {
            return Err(io::ErrorKind::PermissionDenied.into());
        };
        let Some(known) = file.len()?.checked_sub(offset) else {
            let message = "a part of the snapshot before these bytes is missing";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(bytes.len());
        let mut before = vec![0; known];
        file.read_at(&mut before, offset)?;
        let (again, new) = bytes.split_at(known);
        if again != before {
            let message = "a part of the snapshot was received again with other bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if new.is_empty() { Ok(()) } else { end.append(new) }
    }

    /// Returns the stream at its first byte.
    pub(super) fn rewound(self) -> Self {
        Self { position: 0, ..self }
    }

    /// Returns its length in bytes.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(match &self.content {
            Content::Checkpoint(checkpoint) => checkpoint.length(),
            Content::Incoming { file, .. } => file.len()?,
        })
    }

    /// Reads up to `buffer.len()` bytes at the position. Returns 0 at the end.
    fn read_here(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.content {
            Content::Incoming { file, .. } => {
                let rest = file.len()?.saturating_sub(self.position);
                let bytes = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
                file.read_at(&mut buffer[..bytes], self.position)?;
                Ok(bytes)
            }
            Content::Checkpoint(checkpoint) => checkpoint.read_at(buffer, self.position),
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
        self.receive(bytes, self.position)?;
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
