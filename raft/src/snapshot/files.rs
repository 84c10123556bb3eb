//! The files of a checkpoint as one sequence of bytes: a header, then each file.
//!
//! The header has its own length in 8 bytes, little-endian, and the names and lengths of the files,
//! encoded by postcard. Files carry checksums of their own; the store that opens them checks those.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, BufReader, Read},
    path::Path,
    sync::Arc,
};

use sievedb::fs::{Fs, ReadFile};

use super::{slots::Lease, stream::SnapshotStream};
use crate::{Error, Result, record::encode};

/// Bytes that are copied at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The file without which a directory is no store.
const CURRENT: &str = "CURRENT";

/// The prefix of the name of the manifest.
const MANIFEST: &str = "MANIFEST-";

/// Maximum number of files of a snapshot.
const FILES_MAX: u64 = 1_000_000;

/// Maximum length of a header, in bytes: 64 for each file.
const HEADER_BYTES_MAX: u64 = 64 * FILES_MAX;

/// Bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;

/// Name and length of each file.
type Header = Vec<(String, u64)>;

/// A checkpoint that is read. One of its files is open at a time.
#[derive(Debug)]
pub(super) struct Checkpoint {
    lease: Lease,
    /// The bytes before the files. Equal for equal checkpoints.
    head: Vec<u8>,
    files: Header,
    /// The file that was read last, by its place in `files`.
    open: Option<(usize, Arc<dyn ReadFile>)>,
}

impl Checkpoint {
    /// Reads the names and lengths of the files in a slot.
    ///
    /// # Errors
    ///
    /// [`Error::Snapshot`] if it has no checkpoint, which would stop the receiver.
    pub(super) fn open(lease: Lease) -> Result<Self> {
        let (fs, dir) = (lease.fs(), lease.dir());
        let mut files = Header::new();
        for name in fs.list(&dir).map_err(Error::at(&dir))? {
            let path = dir.join(&name);
            let file = fs.open(&path).map_err(Error::at(&path))?;
            files.push((name, file.len().map_err(Error::at(&path))?));
        }
        if files.iter().all(|(name, _)| name != CURRENT) {
            return Err(Error::Snapshot(format!("{} has no {CURRENT}", dir.display())));
        }
        let header = encode(&files)?;
        let mut head = (header.len() as u64).to_le_bytes().to_vec();
        head.extend(header);
        Ok(Self { lease, head, files, open: None })
    }

    /// Returns the number of bytes.
    pub(super) fn length(&self) -> u64 {
        self.head.len() as u64 + self.files.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Returns an id of the bytes: of the names and lengths of the files, and of the manifest, with
    /// its random bytes and the checksums of tables. Logs are preallocated, so two of them may have
    /// the same name and length.
    pub(super) fn id(&self) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        self.head.hash(&mut hasher);
        for (name, bytes) in self.files.iter().filter(|(name, _)| name.starts_with(MANIFEST)) {
            let path = self.lease.dir().join(name);
            let file = self.lease.fs().open(&path).map_err(Error::at(&path))?;
            let mut piece = Vec::new();
            let mut offset = 0;
            while offset < *bytes {
                piece.resize(PIECE_BYTES.min(bytes - offset) as usize, 0);
                file.read_at(&mut piece, offset).map_err(Error::at(&path))?;
                hasher.write(&piece);
                offset += piece.len() as u64;
            }
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// Reads up to `buffer.len()` bytes from `offset` on. Returns 0 at the end.
    pub(super) fn read_at(&mut self, buffer: &mut [u8], mut offset: u64) -> io::Result<usize> {
        if let Some(rest) = usize::try_from(offset).ok().and_then(|at| self.head.get(at..))
            && !rest.is_empty()
        {
            let bytes = rest.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&rest[..bytes]);
            return Ok(bytes);
        }
        offset -= self.head.len() as u64;
        for place in 0..self.files.len() {
            let bytes = self.files[place].1;
            if offset < bytes {
                let rest = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
                let end = buffer.len().min(rest);
                self.file(place)?.read_at(&mut buffer[..end], offset)?;
                return Ok(end);
            }
            offset -= bytes;
        }
        Ok(0)
    }

    fn file(&mut self, place: usize) -> Result<&dyn ReadFile> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != place) {
            // Closed before the next one is opened.
            self.open = None;
            let path = self.lease.dir().join(&self.files[place].0);
            let file = self.lease.fs().open(&path).map_err(Error::at(&path))?;
            self.open = Some((place, file));
        }
        let (_, file) = self.open.as_ref().expect("it was opened above");
        Ok(&**file)
    }
}

/// Writes the files in `stream` to the empty directory `dir`, and syncs them if `sync`.
///
/// # Errors
///
/// [`Error::Snapshot`] if the stream is not as long as its header says, or a name is not that of a
/// file in `dir`.
pub(super) fn write_files(
    fs: &dyn Fs,
    stream: SnapshotStream,
    dir: &Path,
    sync: bool,
) -> Result<()> {
    let stream_bytes = stream.length().map_err(Error::at(dir))?;
    let mut reader = BufReader::new(stream.rewound());
    let (header_bytes, header) = read_header(&mut reader).map_err(Error::at(dir))??;
    let mut bytes = Some(LENGTH_BYTES + header_bytes);
    for (name, length) in &header {
        let plain = !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        if name.is_empty() || !plain {
            return Err(Error::Snapshot(format!("file name {name:?}")));
        }
        bytes = bytes.and_then(|bytes| bytes.checked_add(*length));
    }
    if bytes != Some(stream_bytes) {
        return Err(Error::Snapshot(format!("{stream_bytes} bytes do not fit its header")));
    }
    for (name, length) in header {
        let path = dir.join(name);
        copy(fs, &mut reader, length, &path, sync).map_err(Error::at(&path))?;
    }
    if sync { fs.sync_dir(dir).map_err(Error::at(dir)) } else { Ok(()) }
}

/// Copies `length` bytes to the new file `path`.
fn copy(
    fs: &dyn Fs,
    reader: &mut impl Read,
    length: u64,
    path: &Path,
    sync: bool,
) -> io::Result<()> {
    let file = fs.create(path)?;
    let (mut piece, mut rest) = (Vec::new(), length);
    while rest > 0 {
        piece.clear();
        let read = reader.by_ref().take(rest.min(PIECE_BYTES)).read_to_end(&mut piece)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.append(&piece)?;
        rest -= read as u64;
    }
    if sync { file.sync_data() } else { Ok(()) }
}

/// Reads the header, and returns its length with it.
fn read_header(reader: &mut impl Read) -> io::Result<Result<(u64, Header)>> {
    let mut length = [0; LENGTH_BYTES as usize];
    reader.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_BYTES_MAX {
        return Ok(Err(Error::Snapshot(format!("a header of {length} bytes"))));
    }
    let mut header = Vec::new();
    reader.take(length).read_to_end(&mut header)?;
    // A file takes more memory than bytes of the header.
    if let Ok((files, _)) = postcard::take_from_bytes::<u64>(&header)
        && files > FILES_MAX
    {
        return Ok(Err(Error::Snapshot(format!("a header of {files} files"))));
    }
    Ok(postcard::from_bytes(&header).map(|header| (length, header)).map_err(Error::Encoding))
}

#[cfg(test)]
mod tests {
    use super::{FILES_MAX, read_header};
    use crate::Error;

    #[test]
    fn a_header_of_too_many_files_is_refused() {
        let header = postcard::to_stdvec(&vec![("", 0_u64); FILES_MAX as usize + 1]);
        let header = header.expect("a header");
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        let read = read_header(&mut &bytes[..]).expect("all bytes are there");
        assert!(matches!(read, Err(Error::Snapshot(_))));
    }
}
