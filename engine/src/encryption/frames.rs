//! Writes files that grow append by append. See the parent module for the layout.

use std::{io, sync::Arc};

use super::cipher::{Cipher, NONCE_BYTES};
use crate::fs::Fs;

/// Bytes of a frame before its content.
pub(super) const FRAME_HEAD_BYTES: usize = NONCE_BYTES + 8 + 4;
/// Maximum content of a frame, in bytes.
pub(super) const CONTENT_BYTES_MAX: usize = 16 << 10;

/// Fields of a frame, not yet authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) nonce: [u8; NONCE_BYTES],
    /// Logical offset of the content.
    pub(super) offset: u64,
    /// Length of the content, in bytes.
    pub(super) length: u32,
}

impl FrameHead {
    fn encode(&self) -> [u8; FRAME_HEAD_BYTES] {
        let mut bytes = [0; FRAME_HEAD_BYTES];
        bytes[..NONCE_BYTES].copy_from_slice(&self.nonce);
        bytes[NONCE_BYTES..].copy_from_slice(&self.associated());
        bytes
    }

    /// Decodes a frame head. Returns `None` if the length is invalid.
    pub(super) fn decode(bytes: &[u8; FRAME_HEAD_BYTES]) -> Option<Self> {
        let (nonce, rest) = bytes.split_first_chunk()?;
        let (offset, length) = rest.split_first_chunk()?;
        let length = u32::from_le_bytes(*length.first_chunk()?);
        let head = Self { nonce: *nonce, offset: u64::from_le_bytes(*offset), length };
        (1..=CONTENT_BYTES_MAX as u32).contains(&length).then_some(head)
    }

    /// Returns the fields that are authenticated with the content.
    pub(super) fn associated(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }
}

/// Encrypts appends.
#[derive(Debug)]
pub(super) struct FrameWriter {
    cipher: Cipher,
    /// Source of random numbers.
    fs: Arc<dyn Fs>,
    /// Random number of this opening of the file.
    opening: u64,
    frames: u32,
    /// Logical length.
    pub(super) bytes: u64,
    repeats_nonces: bool,
}

impl FrameWriter {
    /// Continues a file of `bytes` logical bytes. `repeats_nonces` is a planted bug.
    ///
    /// # Errors
    ///
    /// Errors of the random numbers of `fs`.
    pub(super) fn new(
        cipher: Cipher,
        fs: Arc<dyn Fs>,
        bytes: u64,
        repeats_nonces: bool,
    ) -> io::Result<Self> {
        let opening = fs.random_u64()?;
        Ok(Self { cipher, fs, opening, frames: 0, bytes, repeats_nonces })
    }

    /// Appends the frames of `bytes` to `out`. Each call uses new nonces, also if `out` is never
    /// written.
    ///
    /// # Errors
    ///
    /// Errors of the random numbers.
    pub(super) fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        for content in bytes.chunks(CONTENT_BYTES_MAX) {
            let (offset, length) = (self.bytes, content.len() as u32); // At most 16 KiB.
            let head = FrameHead { nonce: self.next_nonce()?, offset, length };
            out.extend_from_slice(&head.encode());
            let start = out.len();
            out.extend_from_slice(content);
            let tag = self.cipher.encrypt(head.nonce, &head.associated(), &mut out[start..]);
            out.extend_from_slice(&tag);
            self.bytes += content.len() as u64;
        }
        Ok(())
    }

    fn next_nonce(&mut self) -> io::Result<[u8; NONCE_BYTES]> {
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(&self.opening.to_le_bytes());
        nonce[8..].copy_from_slice(&self.frames.to_le_bytes());
        match self.frames.checked_add(1) {
            _ if self.repeats_nonces => {}
            Some(frames) => self.frames = frames,
            None => (self.opening, self.frames) = (self.fs.random_u64()?, 0),
        }
        Ok(nonce)
    }
}
