//! Objects of backup sets: a head, and pages. In the head, the name of the object replaces the ids
//! of store and file, so that an object under another name is refused.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::{Corruption, FileHeader, FileKind};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::{
    envelope::{HEAD_BYTES, HEADER_BYTES, Head},
    error::EncryptionError,
    keys::KeyProvider,
    pages::{PageFile, PageWriter},
};
use crate::fs::{Fs, ReadFile};

/// First bytes of all records of a plain set, which have no file header.
const PLAIN_MAGIC: [u8; 6] = *b"SvBack";

/// Encrypts a new object.
#[derive(Debug)]
pub(crate) struct ObjectWriter {
    pages: PageWriter,
    out: Vec<u8>,
}

fn header(name: &str) -> FileHeader {
    FileHeader::new(FileKind::Table, xxh3_128(name.as_bytes()), xxh3_64(name.as_bytes()))
}

impl ObjectWriter {
    /// Begins the object `name`. Returns its head.
    ///
    /// # Errors
    ///
    /// [`EncryptionError::NoKey`]; errors of the random numbers of `fs`.
    pub(crate) fn new(
        name: &str,
        keys: &dyn KeyProvider,
        fs: &dyn Fs,
    ) -> io::Result<(Self, [u8; HEAD_BYTES])> {
        let (head, cipher) = Head::create(header(name), keys, fs)?;
        Ok((Self { pages: PageWriter::new(cipher), out: Vec::new() }, head.encode()))
    }

    /// Returns the stored bytes that `bytes` complete.
    ///
    /// # Errors
    ///
    /// `InvalidInput` after [`finish`](Self::finish).
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<&[u8]> {
        self.out.clear();
        self.pages.append(bytes, &mut self.out)?;
        Ok(&self.out)
    }

    /// Returns the last stored bytes.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.out.clear();
        self.pages.finish(&mut self.out);
        &self.out
    }
}

/// Opens the object `name`, stored in `file`.
///
/// # Errors
///
/// [`EncryptionError`]; errors of reading.
pub(crate) fn open_object(
    name: &str,
    file: Arc<dyn ReadFile>,
    keys: &dyn KeyProvider,
) -> io::Result<Arc<dyn ReadFile>> {
    let Some(head) = Head::read(&*file)? else {
        let mut begin = PLAIN_MAGIC;
        let there = file.len()?.min(begin.len() as u64) as usize;
        file.read_at(&mut begin[..there], 0)?;
        return Err(match there == begin.len() && begin == PLAIN_MAGIC {
            true => EncryptionError::Plain.into(),
            false => {
                let what = "head of an encrypted object";
                EncryptionError::corrupt(0, Corruption::NotAuthentic { what })
            }
        });
    };
    let (named, found) = (header(name), head.header);
    if (named.store_id, named.file_id) != (found.store_id, found.file_id) {
        let what = "name of an encrypted object";
        return Err(EncryptionError::corrupt(0, Corruption::NotAuthentic { what }));
    }
    let cipher = head.cipher(keys)?;
    Ok(Arc::new(Object { pages: PageFile::new(file, &head, cipher)? }))
}

/// The content of an object, without a header.
#[derive(Debug)]
struct Object {
    pages: PageFile,
}

const START: u64 = HEADER_BYTES as u64;

impl ReadFile for Object {
    fn len(&self) -> io::Result<u64> {
        Ok(self.pages.len()? - START)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.pages.read_at(buf, offset.checked_add(START).ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    fn advise_read(&self, place: Range<u64>) {
        self.pages.advise_read(place.start.saturating_add(START)..place.end.saturating_add(START));
    }

    fn map(&self) -> io::Result<Bytes> {
        self.pages.map()
    }
}
