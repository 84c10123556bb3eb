//! Transfers of snapshots between nodes, which continue after an interruption.
//!
//! The sender queries the received length and sends the rest.

use std::{
    fmt,
    io::{self, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncSeek, AsyncSeekExt as _};

use super::{SnapshotStream, Snapshots};
use crate::{Error, Result};

/// A part of a snapshot, from [`SnapshotParts::next`] to [`SnapshotReceiver::receive`].
#[derive(Clone, Serialize, Deserialize)]
pub struct SnapshotPart {
    /// The number of bytes of the snapshot before this part.
    pub offset: u64,
    /// The bytes. Empty if the receiver has the complete snapshot.
    pub bytes: Vec<u8>,
    /// `true` if the snapshot ends with this part.
    pub is_last: bool,
}

impl fmt::Debug for SnapshotPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, length, is_last) = (self.offset, self.bytes.len(), self.is_last);
        write!(f, "SnapshotPart({length} bytes at {offset}, is_last: {is_last})")
    }
}

/// The parts of a snapshot that a node has not received yet: one at least, which may be empty.
#[derive(Debug)]
pub struct SnapshotParts<S> {
    snapshot: S,
    part_bytes: usize,
    offset: u64,
    end: u64,
    is_done: bool,
}

impl<S: AsyncRead + AsyncSeek + Unpin> SnapshotParts<S> {
    /// Divides `snapshot` into parts of `part_bytes` bytes, at least 1. The first one begins after
    /// the `received` bytes that [`SnapshotReceiver::received_bytes`] of the other node returned.
    ///
    /// # Errors
    ///
    /// Errors of `snapshot`. `InvalidInput` if the snapshot has fewer than `received` bytes.
    pub async fn after(mut snapshot: S, received: u64, part_bytes: usize) -> io::Result<Self> {
        let end = snapshot.seek(SeekFrom::End(0)).await?;
        if received > end {
            let message = format!("the other node has {received} of {end} bytes of the snapshot");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        snapshot.seek(SeekFrom::Start(received)).await?;
        let part_bytes = part_bytes.max(1);
        Ok(Self { snapshot, part_bytes, offset: received, end, is_done: false })
    }

    /// Returns the next part, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// Errors of the snapshot.
    pub async fn next(&mut self) -> io::Result<Option<SnapshotPart>> {
        if self.is_done {
            return Ok(None);
        }
        let (offset, mut bytes) = (self.offset, Vec::new());
        (&mut self.snapshot).take(self.part_bytes as u64).read_to_end(&mut bytes).await?;
        self.offset += bytes.len() as u64;
        self.is_done = self.offset >= self.end;
        if bytes.is_empty() && !self.is_done {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(SnapshotPart { offset, bytes, is_last: self.is_done }))
    }
}

/// A snapshot that this node receives.
#[derive(Debug)]
pub(super) struct Transfer {
    id: String,
    /// The bytes received. `None` if all of them were returned to be installed.
    stream: Option<SnapshotStream>,
    /// The length of the snapshot, once all of it was received.
    bytes: u64,
    /// `true` if the snapshot is installed. The stream shares it until then.
    installed: Arc<AtomicBool>,
}

impl Transfer {
    /// Returns the number of bytes received. 0 if a complete snapshot was dropped, not installed.
    fn received_bytes(&self) -> io::Result<u64> {
        match &self.stream {
            Some(stream) => stream.length(),
            None if self.is_installed() || Arc::strong_count(&self.installed) > 1 => Ok(self.bytes),
            None => Ok(0),
        }
    }

    fn is_installed(&self) -> bool {
        self.installed.load(Ordering::Acquire)
    }
}

/// A receiver of snapshots of other nodes, for the network of the application.
///
/// It keeps the bytes of one transfer, in a file without a name, until that snapshot is installed,
/// another one is received, or the process ends. So an interrupted transfer continues, also from
/// another sender of the same snapshot. Calls use files, and block.
#[derive(Debug, Clone)]
pub struct SnapshotReceiver(Snapshots);

impl SnapshotReceiver {
    pub(crate) fn new(snapshots: Snapshots) -> Self {
        Self(snapshots)
    }

    /// Returns an empty stream for a transfer that does not continue after an interruption. The
    /// network of the application writes a snapshot to the stream, and passes it to
    /// `install_full_snapshot` of openraft. Streams are independent, even if several tasks begin
    /// concurrently.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file of the stream cannot be created.
    pub fn begin(&self) -> Result<SnapshotStream> {
        self.0.incoming()
    }

    /// Returns the number of bytes that this process has received of the snapshot `id`. The sender
    /// continues with the bytes after them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn received_bytes(&self, id: &str) -> Result<u64> {
        let transfer = self.0.transfer();
        let same = transfer.as_ref().filter(|transfer| transfer.id == id);
        let received = same.map_or(Ok(0), Transfer::received_bytes);
        received.map_err(Error::at(&self.0.incoming_path()))
    }

    /// Receives a part of the snapshot `id`. After the last part, returns the stream of the
    /// snapshot: pass it to `install_full_snapshot` of openraft at once. Returns `None` for other
    /// parts, and if the snapshot is installed already.
    ///
    /// Parts come in order, or again with equal bytes. A part at offset 0 of another snapshot
    /// discards the received bytes: check the vote of the sender first. An id names the bytes of
    /// a snapshot: it is `snapshot_id` of openraft 0.9, or [`SnapshotStream::id`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. [`Error::Snapshot`] if earlier bytes are missing, or while the snapshot is
    /// being installed. In both cases, the sender may query the received bytes, and continue.
    pub fn receive(&self, id: &str, part: &SnapshotPart) -> Result<Option<SnapshotStream>> {
        let path = self.0.incoming_path();
        let mut place = self.0.transfer();
        let is_same = place.as_ref().is_some_and(|transfer| transfer.id == id);
        let known = match place.as_ref().filter(|_| is_same) {
            Some(transfer) => transfer.received_bytes().map_err(Error::at(&path))?,
            None => 0,
        };
        if known < part.offset {
            let message = format!("the bytes from {known} to {} are missing", part.offset);
            return Err(Error::Snapshot(message));
        }
        // Dropped before the next file is created.
        let kept = place.take().filter(|_| is_same && (known > 0 || part.offset > 0));
        let transfer = place.insert(match kept {
            Some(kept) => kept,
            None => Transfer {
                id: id.to_owned(),
                stream: Some(SnapshotStream::incoming(self.0.fs(), &path)?),
                bytes: 0,
                installed: Arc::default(),
            },
        });
        let Some(stream) = &transfer.stream else {
            return match transfer.is_installed() {
                true => Ok(None),
                false => Err(Error::Snapshot("it is being installed; try again later".to_owned())),
            };
        };
        stream.receive(&part.bytes, part.offset).map_err(Error::at(&path))?;
        if !part.is_last {
            return Ok(None);
        }
        transfer.bytes = stream.length().map_err(Error::at(&path))?;
        let installed = transfer.installed.clone();
        Ok(transfer.stream.take().map(|stream| stream.with_transfer(installed)))
    }
}
