//! Files that are written once and read at any offset. See the parent module for the layout.

use std::{cell::RefCell, io, ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::Corruption;

use super::{
    cipher::{Cipher, NONCE_BYTES, TAG_BYTES},
    envelope::{HEAD_BYTES, HEADER_BYTES, Head},
    error::EncryptionError,
};
use crate::fs::ReadFile;

/// Logical bytes of a page.
const PAGE_BYTES: usize = 4 << 10;
const STORED_BYTES: usize = PAGE_BYTES + TAG_BYTES;
/// Maximum number of pages read at once.
const PAGES_MAX: u64 = 16;

thread_local! {
    /// Buffer of stored pages during a read: at most 64 KiB and tags.
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn nonce(page: u64, is_last: bool) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&page.to_le_bytes());
    nonce[8] = is_last.into();
    nonce
}

/// Encrypts the pages of a new file.
#[derive(Debug)]
pub(super) struct PageWriter {
    cipher: Cipher,
    /// Number of the page in `page`.
    number: u64,
    /// Logical bytes of the page being filled. A full page is kept until the next byte.
    page: Vec<u8>,
    is_finished: bool,
}

impl PageWriter {
    pub(super) fn new(cipher: Cipher) -> Self {
        Self { cipher, number: 0, page: Vec::with_capacity(PAGE_BYTES), is_finished: false }
    }

    /// Adds `bytes`. Appends the stored bytes of full pages to `out`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` after [`finish`](Self::finish).
    pub(super) fn append(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if self.is_finished {
            let reason = "an encrypted table cannot grow after a sync";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        while !bytes.is_empty() {
            if self.page.len() == PAGE_BYTES {
                self.seal(false, out);
            }
            let (now, rest) = bytes.split_at(bytes.len().min(PAGE_BYTES - self.page.len()));
            self.page.extend_from_slice(now);
            bytes = rest;
        }
        Ok(())
    }

    /// Appends the stored bytes of the last page to `out`. Later calls do nothing.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.is_finished {
            self.seal(true, out);
            self.is_finished = true;
            self.page = Vec::new();
        }
    }

    fn seal(&mut self, is_last: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.page);
        let tag = self.cipher.encrypt(nonce(self.number, is_last), &[], &mut out[start..]);
        out.extend_from_slice(&tag);
        self.page.clear();
        self.number += 1;
    }
}

/// A finished file.
#[derive(Debug)]
pub(super) struct PageFile {
    file: Arc<dyn ReadFile>,
    cipher: Cipher,
    /// The logical file header.
    header: [u8; HEADER_BYTES],
    pages: u64,
    /// Length of the last page with its tag.
    last_bytes: usize,
}

impl PageFile {
    /// # Errors
    ///
    /// [`EncryptionError::Corrupt`] if the length is that of no finished file; errors of reading.
    pub(super) fn new(file: Arc<dyn ReadFile>, head: &Head, cipher: Cipher) -> io::Result<Self> {
        let bytes = file.len()?;
        let stored = bytes.saturating_sub(HEAD_BYTES as u64);
        let pages = stored.div_ceil(STORED_BYTES as u64);
        let before = pages.saturating_sub(1) * STORED_BYTES as u64;
        let last_bytes = (stored - before) as usize; // At most one page.
        if last_bytes < TAG_BYTES {
            let need = HEAD_BYTES as u64 + before + TAG_BYTES as u64;
            let source = Corruption::Truncated { what: "encrypted file", need, have: bytes };
            return Err(EncryptionError::corrupt(0, source));
        }
        Ok(Self { file, cipher, header: head.header.encode(), pages, last_bytes })
    }

    fn bytes(&self) -> u64 {
        let last = (self.last_bytes - TAG_BYTES) as u64;
        HEADER_BYTES as u64 + (self.pages - 1) * PAGE_BYTES as u64 + last
    }

    /// Returns the stored range of `pages`.
    fn stored(&self, pages: Range<u64>) -> Range<u64> {
        let at = |page: u64| HEAD_BYTES as u64 + page * STORED_BYTES as u64;
        let end = match pages.end == self.pages {
            true => at(pages.end - 1) + self.last_bytes as u64,
            false => at(pages.end),
        };
        at(pages.start)..end
    }

    /// Decrypts `pages`, at most [`PAGES_MAX`], and copies their part of the logical `place` into
    /// `buf`.
    fn read_pages(&self, pages: Range<u64>, place: &Range<u64>, buf: &mut [u8]) -> io::Result<()> {
        let stored = self.stored(pages.clone());
        STORED.with_borrow_mut(|bytes| {
            let length = (stored.end - stored.start) as usize; // At most `PAGES_MAX` pages.
            if bytes.len() < length {
                bytes.resize(length, 0);
            }
            self.file.read_at(&mut bytes[..length], stored.start)?;
            let mut rest = &bytes[..length];
            for page in pages {
                let (sealed, later) = rest.split_at(rest.len().min(STORED_BYTES));
                rest = later;
                self.open(page, sealed, place, buf)?;
            }
            Ok(())
        })
    }

    fn open(&self, page: u64, sealed: &[u8], place: &Range<u64>, buf: &mut [u8]) -> io::Result<()> {
        let start = HEADER_BYTES as u64 + page * PAGE_BYTES as u64;
        let content = sealed.len() - TAG_BYTES;
        let end = start + content as u64;
        let nonce = nonce(page, page + 1 == self.pages);
        let is_authentic = if place.start <= start && end <= place.end {
            let at = (start - place.start) as usize;
            self.cipher.decrypt(nonce, &[], sealed, &mut buf[at..at + content])
        } else {
            let mut whole = [0; PAGE_BYTES];
            let is_authentic = self.cipher.decrypt(nonce, &[], sealed, &mut whole[..content]);
            let (from, to) = (place.start.max(start), place.end.min(end));
            if is_authentic && from < to {
                let source = &whole[(from - start) as usize..(to - start) as usize];
                buf[(from - place.start) as usize..][..source.len()].copy_from_slice(source);
            }
            is_authentic
        };
        if is_authentic {
            return Ok(());
        }
        let what = "page of an encrypted file";
        Err(EncryptionError::corrupt(start, Corruption::NotAuthentic { what }))
    }

    /// Returns the pages that hold the logical `place`, which is after the file header.
    fn pages_of(&self, place: &Range<u64>) -> Range<u64> {
        let page = |at: u64| at.saturating_sub(HEADER_BYTES as u64) / PAGE_BYTES as u64;
        page(place.start)..(page(place.end.saturating_sub(1)) + 1).min(self.pages)
    }
}

impl ReadFile for PageFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= self.bytes());
        let place = offset..end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if place.is_empty() {
            return Ok(());
        }
        if let Some(header) = self.header.get(usize::try_from(offset).unwrap_or(usize::MAX)..) {
            let taken = header.len().min(buf.len());
            buf[..taken].copy_from_slice(&header[..taken]);
            if taken == buf.len() {
                return Ok(());
            }
        }
        let Range { start: mut page, end } = self.pages_of(&place);
        while page < end {
            let now = page..(page + PAGES_MAX).min(end);
            page = now.end;
            self.read_pages(now, &place, buf)?;
        }
        Ok(())
    }

    fn advise_read(&self, place: Range<u64>) {
        let pages = self.pages_of(&place);
        if !pages.is_empty() {
            self.file.advise_read(self.stored(pages));
        }
    }

    fn reads_are_scattered(&self) {
        self.file.reads_are_scattered();
    }

    fn map(&self) -> io::Result<Bytes> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "an encrypted file cannot be mapped"))
    }
}
