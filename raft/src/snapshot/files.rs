//! The files of a checkpoint as one sequence of bytes: a header, then each file.
//!
//! The header has its own length in 8 bytes, little-endian, and the names and lengths of the files,
//! encoded by postcard. Files carry checksums of their own; the store that opens them checks those.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use super::stream::SnapshotStream;
use crate::{Error, Result, record::encode};

/// The most bytes of a header: 64 for each of a million files.
const HEADER_BYTES_MAX: u64 = 64 << 20;

/// Bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;

/// Name and length of each file.
type Header = Vec<(String, u64)>;

/// The files in the order of the header, with their lengths.
pub(super) type Files = Vec<(File, u64)>;

/// Returns the header of the checkpoint in `dir`, and its files.
pub(super) fn read_files(dir: &Path) -> Result<(Vec<u8>, Files)> {
    let (mut header, mut files) = (Header::new(), Vec::new());
    for entry in fs::read_dir(dir).map_err(Error::at(dir))? {
        let path = entry.map_err(Error::at(dir))?.path();
        let file = File::open(&path).map_err(Error::at(&path))?;
        let metadata = file.metadata().map_err(Error::at(&path))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(name), true) = (name, metadata.is_file()) else {
            return Err(Error::Snapshot(format!("{} is not a file of a store", path.display())));
        };
        header.push((name.to_owned(), metadata.len()));
        files.push((file, metadata.len()));
    }
    let header = encode(&header)?;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    Ok((bytes, files))
}

/// Writes the files in `stream` to the new directory `dir`, and syncs them.
///
/// # Errors
///
/// [`Error::Snapshot`] if the stream is not as long as its header says, or a name is not that of a
/// file in `dir`.
pub(super) fn write_files(stream: SnapshotStream, dir: &Path) -> Result<()> {
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
    fs::create_dir(dir).map_err(Error::at(dir))?;
    for (name, length) in header {
        let path = dir.join(name);
        copy(&mut reader, length, &path).map_err(Error::at(&path))?;
    }
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Error::at(dir))
}

/// Copies `length` bytes to the new file `path`, and syncs it.
fn copy(reader: &mut impl Read, length: u64, path: &PathBuf) -> io::Result<()> {
    let mut writer = BufWriter::new(File::create_new(path)?);
    if io::copy(&mut reader.take(length), &mut writer)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    writer.flush()?;
    writer.get_ref().sync_all()
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
    Ok(postcard::from_bytes(&header).map(|header| (length, header)).map_err(Error::Encoding))
}
