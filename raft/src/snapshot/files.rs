//! The files of a checkpoint as one sequence of bytes: a header, then each file.
//!
//! The header has its own length in 8 bytes, little-endian, and the names and lengths of the files,
//! encoded by postcard. Files carry checksums of their own; the store that opens them checks those.

use std::{
    io::{self, BufReader, Read},
    path::Path,
    sync::Arc,
};

use sievedb::fs::{Fs, ReadFile};

use super::stream::SnapshotStream;
use crate::{Error, Result, record::encode};

/// Bytes that are copied at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The most files of a snapshot.
const FILES_MAX: u64 = 1_000_000;

/// The most bytes of a header: 64 for each file.
const HEADER_BYTES_MAX: u64 = 64 * FILES_MAX;

/// Bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;

/// Name and length of each file.
type Header = Vec<(String, u64)>;

/// The files in the order of the header, with their lengths.
pub(super) type Files = Vec<(Arc<dyn ReadFile>, u64)>;

/// Returns the header of the checkpoint in `dir`, and its files. Equal for equal checkpoints.
pub(super) fn read_files(fs: &dyn Fs, dir: &Path) -> Result<(Vec<u8>, Files)> {
    let (mut header, mut files) = (Header::new(), Vec::new());
    for name in fs.list(dir).map_err(Error::at(dir))? {
        let path = dir.join(&name);
        let file = fs.open(&path).map_err(Error::at(&path))?;
        let bytes = file.len().map_err(Error::at(&path))?;
        header.push((name, bytes));
        files.push((file, bytes));
    }
    let header = encode(&header)?;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    Ok((bytes, files))
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
