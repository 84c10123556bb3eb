//! Payloads whose long values are in blob files.
//!
//! Such a value is written once: here, and not in the log. The payload is stored as a list of
//! references, followed by the payload without these values.
//!
//! | field       | bytes    | meaning                                                            |
//! |-------------|----------|--------------------------------------------------------------------|
//! | `count`     | varint   | number of values, 1 to 1024                                        |
//! | `gap`       | varint   | for each value: bytes of `rest` after the previous value           |
//! | `reference` | prefixed | for each value: its place ([`BlobReference`])                      |
//! | `salt`      | 8        | for each value: random number of the blob file                     |
//! | `rest`      | n        | the payload without the values                                     |
//!
//! All values of a record together have at most the length of the longest value, 256 MiB: a small
//! forged record must not take more memory.
//!
//! The checksum of a stored value covers its salt and its offset, and no file has the number of
//! another one. So a reference names these bytes or none.
//!
//! A value is passed to the operating system before its record, and synced before the segment of
//! its record. So a record without its value is a torn record: below a synced mark it is damage.

use std::{
    collections::BTreeSet,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::{Corruption, Decoder, Encode, VALUE_BYTES_MAX};
use sievedb_sstable::{BlobReference, ReadError, TableSource};

use super::record::Bad;
use crate::{
    Error, Result,
    file_name::FileName,
    fs::{Fs, ReadFile},
};

const WHAT: &str = "values of a log record";

/// Maximum number of values of a record in blob files: their references fit one fragment.
const VALUES_MAX: u64 = 1024;

/// Returns `true` if a record may refer to so many values, which have this total length.
pub(crate) const fn fit_record(values: u64, value_bytes: u64) -> bool {
    values <= VALUES_MAX && value_bytes <= VALUE_BYTES_MAX as u64
}

/// A blob file to which log records refer.
pub(crate) trait ValueFile: std::fmt::Debug + Send + Sync {
    /// Returns the number of the file.
    fn id(&self) -> u64;

    /// Returns the written length, in bytes; `None` for a file that does not grow.
    fn written(&self) -> Option<u64>;

    /// Makes all written values durable, unless they are. An error is final.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    fn sync(&self) -> Result<()>;
}

/// Values of a payload that are in blob files.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoggedValues {
    /// Values in the order of the payload.
    pub(crate) values: Vec<LoggedValue>,
    /// Files of the values.
    pub(crate) files: Vec<Arc<dyn ValueFile>>,
}

/// A value of a payload that is in a blob file.
#[derive(Debug, Clone)]
pub(crate) struct LoggedValue {
    /// Range of the value in the payload.
    pub(crate) range: Range<usize>,
    pub(crate) reference: BlobReference,
    /// Salt of the blob file.
    pub(crate) salt: u64,
}

impl LoggedValues {
    /// Returns the stored length of the values, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.values.iter().map(|value| value.reference.bytes).sum()
    }

    /// Returns the stored form of `payload`.
    pub(super) fn cut(&self, payload: &[u8]) -> Bytes {
        let cut: usize = self.values.iter().map(|value| value.range.len()).sum();
        debug_assert!(fit_record(self.values.len() as u64, cut as u64), "no reader accepts it");
        let mut stored = Vec::with_capacity(payload.len() - cut + 64 * self.values.len());
        stored.put_varint(self.values.len() as u64);
        let (mut end, mut reference) = (0, Vec::new());
        for value in &self.values {
            stored.put_varint((value.range.start - end) as u64);
            reference.clear();
            value.reference.encode(&mut reference);
            stored.put_prefixed(&reference);
            stored.put_u64(value.salt);
            end = value.range.end;
        }
        end = 0;
        for value in &self.values {
            stored.extend_from_slice(&payload[end..value.range.start]);
            end = value.range.end;
        }
        stored.extend_from_slice(&payload[end..]);
        stored.into()
    }
}

/// A reference of a stored payload.
#[derive(Debug)]
struct Found {
    gap: usize,
    reference: BlobReference,
    salt: u64,
}

/// Decodes the next reference.
fn decode(decoder: &mut Decoder<'_>) -> Result<Found, Corruption> {
    let gap = decoder.varint(WHAT)?;
    let gap =
        usize::try_from(gap).map_err(|_| Corruption::OutOfRange { what: WHAT, value: gap })?;
    let reference = BlobReference::decode(decoder.prefixed(WHAT)?)?;
    Ok(Found { gap, reference, salt: decoder.u64(WHAT)? })
}

/// Decodes all references at the start of a stored payload, which may be truncated after them.
fn decode_all(decoder: &mut Decoder<'_>) -> Result<Vec<Found>, Corruption> {
    let count = decoder.varint(WHAT)?;
    if count == 0 || !fit_record(count, 0) {
        return Err(Corruption::OutOfRange { what: WHAT, value: count });
    }
    let found = (0..count).map(|_| decode(decoder)).collect::<Result<Vec<_>, _>>()?;
    let value_bytes = found.iter().map(|found| found.reference.value_bytes).sum();
    if !fit_record(count, value_bytes) {
        return Err(Corruption::OutOfRange { what: WHAT, value: value_bytes });
    }
    Ok(found)
}

/// Returns the ids of the blob files to which a stored payload refers.
pub(super) fn referenced_files(stored: &[u8]) -> Result<Vec<u64>, Corruption> {
    let found = decode_all(&mut Decoder::new(stored))?;
    Ok(found.iter().map(|found| found.reference.file_id).collect())
}

/// Describes the references of a stored payload. Also returns the length of the list.
pub(super) fn describe(stored: &[u8]) -> Result<(String, usize), Corruption> {
    let mut decoder = Decoder::new(stored);
    let found = decode_all(&mut decoder)?;
    let places = found.iter().map(|Found { reference, .. }| {
        let BlobReference { file_id, offset, value_bytes, .. } = reference;
        format!("{value_bytes} bytes in {} at {offset}", FileName::Blobs(*file_id))
    });
    Ok((places.collect::<Vec<_>>().join(", "), decoder.offset()))
}

/// A value of a record that cannot be read.
#[derive(Debug)]
pub(crate) struct LostValue {
    /// Its range in the payload, filled with zeros.
    pub(crate) range: Range<usize>,
    pub(crate) error: Error,
}

/// Reason why the payload of a record cannot be joined.
#[derive(Debug)]
pub(super) enum ValueStop {
    Bad(Bad),
    /// A file cannot be read.
    Failed(Error),
}

impl From<Corruption> for ValueStop {
    /// The checksum of the record matches, so the record is corrupt.
    fn from(reason: Corruption) -> Self {
        Self::Bad(Bad::Broken(reason))
    }
}

/// Reads the values of records.
#[derive(Debug)]
pub(super) struct ValueReader {
    fs: Arc<dyn Fs>,
    folder: PathBuf,
    /// The last file read.
    open: Option<(u64, ValueSource)>,
    /// Files of values read so far.
    files: BTreeSet<u64>,
}

impl ValueReader {
    pub(super) const fn new(fs: Arc<dyn Fs>, folder: PathBuf) -> Self {
        Self { fs, folder, open: None, files: BTreeSet::new() }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = u64> + '_ {
        self.files.iter().copied()
    }

    /// Returns the payload whose stored form is `stored`. Adds values that cannot be read to
    /// `lost`, if there is one.
    pub(super) fn join(
        &mut self,
        stored: &[u8],
        mut lost: Option<&mut Vec<LostValue>>,
    ) -> Result<Bytes, ValueStop> {
        let mut decoder = Decoder::new(stored);
        let found = decode_all(&mut decoder)?;
        let mut rest = decoder.rest();
        // Grows with the values.
        let mut payload = Vec::with_capacity(rest.len());
        for Found { gap, reference, salt } in found {
            let Some((between, behind)) = rest.split_at_checked(gap) else {
                let value = gap as u64;
                return Err(Corruption::OutOfRange { what: WHAT, value }.into());
            };
            payload.extend_from_slice(between);
            match (self.read(&reference, salt), &mut lost) {
                (Ok(value), _) => payload.extend_from_slice(&value),
                (Err(stop), Some(lost)) => {
                    let error = self.lost(&reference, stop)?;
                    let start = payload.len();
                    payload.resize(start + reference.value_bytes as usize, 0);
                    lost.push(LostValue { range: start..payload.len(), error });
                }
                (Err(stop), None) => return Err(stop),
            }
            rest = behind;
        }
        payload.extend_from_slice(rest);
        Ok(payload.into())
    }

    fn read(&mut self, reference: &BlobReference, salt: u64) -> Result<Bytes, ValueStop> {
        let id = reference.file_id;
        let path = FileName::Blobs(id).path(&self.folder);
        if self.open.as_ref().is_none_or(|(open, _)| *open != id) {
            self.open = Some((id, ValueSource(self.open_file(&path)?)));
        }
        let (_, source) = self.open.as_ref().expect("it was just opened");
        let value = reference.read(source, salt).map_err(|error| match error {
            ReadError::Corrupt { source, .. } => ValueStop::Bad(Bad::Torn(source)),
            ReadError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let BlobReference { offset, bytes, .. } = *reference;
                let (need, have) = (offset.saturating_add(bytes), source.0.len().unwrap_or(0));
                let what = "blob file of the log";
                ValueStop::Bad(Bad::Torn(Corruption::Truncated { what, need, have }))
            }
            ReadError::Io(error) => ValueStop::Failed(Error::io("read", &path, error)),
        })?;
        self.files.insert(id);
        Ok(value)
    }

    /// Returns the error of a value that is lost, or why it is not.
    fn lost(&self, reference: &BlobReference, stop: ValueStop) -> Result<Error, ValueStop> {
        match stop {
            ValueStop::Bad(Bad::Torn(reason)) => {
                let path = FileName::Blobs(reference.file_id).path(&self.folder);
                Ok(Error::corrupt(path, reference.offset, reason))
            }
            ValueStop::Failed(error) if error.is_of_file() => Ok(error),
            stop => Err(stop),
        }
    }

    fn open_file(&self, path: &Path) -> Result<Arc<dyn ReadFile>, ValueStop> {
        self.fs.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let what = "blob file of the log";
                ValueStop::Bad(Bad::Torn(Corruption::Missing { what }))
            }
            _ => ValueStop::Failed(Error::io("open", path, error)),
        })
    }
}

/// A blob file that may still grow, so it has no footer yet.
#[derive(Debug)]
struct ValueSource(Arc<dyn ReadFile>);

impl TableSource for ValueSource {
    /// Reads beyond the current end fail.
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let end = offset.checked_add(bytes as u64);
        let have = self.0.len()?;
        if end.is_none_or(|end| have < end) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut buffer = vec![0; bytes];
        self.0.read_at(&mut buffer, offset)?;
        Ok(buffer.into())
    }
}

#[cfg(test)]
mod tests {
    use sievedb_sstable::{BlobIdentity, BlobWriter, Compression};

    use super::*;
    use crate::fs::MemoryFs;

    const FOLDER: &str = "db";
    const FILE: u64 = 7;
    const SALT: u64 = 0x5a17;

    /// Returns a payload of two values, one of them in pieces, and its stored form.
    fn stored() -> (Arc<dyn Fs>, Vec<u8>, LoggedValues) {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let identity = BlobIdentity { store_id: 1, file_id: FILE, salt: SALT };
        let mut writer =
            BlobWriter::new(Vec::new(), identity, Compression::None, 1 << 20).expect("in memory");
        let values: [Vec<u8>; 2] = [vec![1; 2000], (0..200_000).map(|at| at as u8).collect()];
        let payload = [&b"head"[..], &values[0], b"between", &values[1], b"tail"].concat();
        let mut logged = LoggedValues::default();
        for (value, start) in values.iter().zip([4, 4 + 2000 + 7]) {
            let reference = writer.add(value).expect("in memory");
            let range = start..start + value.len();
            logged.values.push(LoggedValue { range, reference, salt: SALT });
        }
        fs.create_dir(Path::new(FOLDER)).expect("a directory");
        let file = fs.create(&FileName::Blobs(FILE).path(Path::new(FOLDER))).expect("a file");
        let (bytes, _) = writer.finish().expect("in memory");
        // Omits the footer: the file may still grow.
        file.append(&bytes[..bytes.len() - 28]).expect("in memory");
        (fs, payload, logged)
    }

    fn reader(fs: &Arc<dyn Fs>) -> ValueReader {
        ValueReader::new(Arc::clone(fs), FOLDER.into())
    }

    #[test]
    fn values_return_to_their_places() {
        let (fs, payload, logged) = stored();
        let cut = logged.cut(&payload);
        assert!(cut.len() < 120, "{} bytes are stored", cut.len());
        assert_eq!(referenced_files(&cut), Ok(vec![FILE, FILE]));
        let mut reader = reader(&fs);
        assert!(reader.join(&cut, None).is_ok_and(|joined| joined == payload));
        assert_eq!(reader.files().collect::<Vec<_>>(), [FILE]);
    }

    #[test]
    fn missing_short_and_damaged_values_are_torn() {
        let (fs, payload, logged) = stored();
        let cut = logged.cut(&payload);
        let path = FileName::Blobs(FILE).path(Path::new(FOLDER));
        let file = fs.open(&path).expect("it was created");
        let mut whole = vec![0; usize::try_from(file.len().expect("in memory")).expect("short")];
        file.read_at(&mut whole, 0).expect("in memory");
        let mut damaged = whole.clone();
        damaged[100] ^= 1;
        let cases = [None, Some(&whole[..whole.len() - 1]), Some(&whole[..64]), Some(&damaged[..])];
        for content in cases {
            fs.unlink(&path).unwrap_or_default();
            if let Some(content) = content {
                fs.create(&path).and_then(|file| file.append(content)).expect("in memory");
            }
            let joined = reader(&fs).join(&cut, None);
            assert!(matches!(joined, Err(ValueStop::Bad(Bad::Torn(_)))), "{joined:?}");
        }
    }

    /// Returns a record with `count` references to the same long value of a missing file.
    fn repeated(count: usize, value_bytes: u64) -> Vec<u8> {
        let bytes = value_bytes + 5;
        let reference =
            BlobReference { file_id: FILE, offset: 64, bytes, value_bytes, index_bytes: 0 };
        let mut encoded = Vec::new();
        reference.encode(&mut encoded);
        let mut stored = Vec::new();
        stored.put_varint(count as u64);
        for _ in 0..count {
            stored.put_varint(0);
            stored.put_prefixed(&encoded);
            stored.put_u64(SALT);
        }
        stored
    }

    /// A value that is read or lost many times would take many times its memory.
    #[test]
    fn more_values_than_any_writer_puts_into_a_record_are_refused() {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let most = VALUE_BYTES_MAX as u64;
        let mut lost = Vec::new();
        let accepted = reader(&fs).join(&repeated(1024, 1), Some(&mut lost));
        assert!(accepted.is_ok_and(|payload| *payload == [0; 1024]));
        for (count, value_bytes) in [(2, most), (4, most / 4 + 1), (1025, 1)] {
            let joined = reader(&fs).join(&repeated(count, value_bytes), Some(&mut lost));
            assert!(matches!(joined, Err(ValueStop::Bad(Bad::Broken(_)))), "{count} values");
        }
        assert_eq!(lost.len(), 1024, "nothing was allocated for the others");
    }

    #[test]
    fn broken_lists_are_refused() {
        let (fs, payload, logged) = stored();
        let cut = logged.cut(&payload);
        let cases = [vec![], vec![0], vec![0xff, 0xff, 3], cut[..20].to_vec(), {
            let mut far = cut.to_vec();
            far[1] = 127;
            far
        }];
        for stored in cases {
            let joined = reader(&fs).join(&stored, None);
            assert!(matches!(joined, Err(ValueStop::Bad(Bad::Broken(_)))), "{joined:?}");
        }
    }
}
