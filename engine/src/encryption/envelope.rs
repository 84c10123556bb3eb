//! The head of an encrypted file, and its key. See the parent module for the layout.

use std::io;

use hkdf::Hkdf;
use sha2::Sha256;
use sievedb_format::{Corruption, Decoder, FileHeader, FileKind, checksum::crc32};
use zeroize::Zeroizing;

use super::{
    cipher::{Cipher, KEY_BYTES},
    error::EncryptionError,
    keys::{KeyProvider, RootKey},
};
use crate::fs::{Fs, ReadFile};

/// Length of the head of a file.
pub(super) const HEAD_BYTES: usize = 128;
/// Length of the file header, stored and logical.
pub(super) const HEADER_BYTES: usize = sievedb_format::file_header::HEADER_BYTES;

const SALT_BYTES: usize = 32;
const CHECK_BYTES: usize = 16;
const INFO: &[u8] = b"SieveDB file key 1";
const WHAT: &str = "head of an encrypted file";

/// Arrangement of the encrypted bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Pages = 1,
    Frames = 2,
}

impl Layout {
    /// Returns the layout of files of this kind.
    pub(super) const fn of(kind: FileKind) -> Self {
        match kind {
            FileKind::Table | FileKind::Filter | FileKind::Blobs => Self::Pages,
            FileKind::Log | FileKind::Manifest | FileKind::Current | FileKind::Closed => {
                Self::Frames
            }
        }
    }
}

/// The stored head of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) header: FileHeader,
    pub(super) key_id: u64,
    pub(super) layout: Layout,
    salt: [u8; SALT_BYTES],
    check: [u8; CHECK_BYTES],
}

impl Head {
    /// Returns the head of a new file, encrypted by the current key, and its cipher.
    ///
    /// # Errors
    ///
    /// [`EncryptionError::NoKey`]; errors of the random numbers of `fs`.
    pub(super) fn create(
        header: FileHeader,
        keys: &dyn KeyProvider,
        fs: &dyn Fs,
    ) -> io::Result<(Self, Cipher)> {
        let no_key = |id| move |source| EncryptionError::NoKey { id, source };
        let key_id = keys.current_key_id().map_err(no_key(0))?;
        let key = keys.key(key_id).map_err(no_key(key_id))?;
        let mut salt = [0; SALT_BYTES];
        for part in salt.chunks_exact_mut(size_of::<u64>()) {
            part.copy_from_slice(&fs.random_u64()?.to_le_bytes());
        }
        let layout = Layout::of(header.kind);
        let mut head = Self { header, key_id, layout, salt, check: [0; CHECK_BYTES] };
        let (cipher, check) = head.derive(&key);
        head.check = check;
        Ok((head, cipher))
    }

    /// Reads the head of `file`. Returns `None` if the file has no valid file header, or if only
    /// its creation can have left the rest of the head.
    ///
    /// # Errors
    ///
    /// [`EncryptionError::Plain`], [`EncryptionError::Corrupt`]; errors of reading.
    pub(super) fn read(file: &dyn ReadFile) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEAD_BYTES];
        let there = file.len()?.min(HEAD_BYTES as u64) as usize;
        file.read_at(&mut bytes[..there], 0)?;
        match FileHeader::decode_any(&bytes[..there]) {
            Err(_) => Ok(None),
            Ok((_, false)) => Err(EncryptionError::Plain.into()),
            Ok((header, true)) => {
                let decoded = Self::decode(header, &bytes[HEADER_BYTES..there]);
                match decoded {
                    Err(Corruption::Truncated { .. } | Corruption::Checksum { .. })
                        if Layout::of(header.kind) == Layout::Frames =>
                    {
                        Ok(None)
                    }
                    decoded => {
                        decoded.map(Some).map_err(|source| EncryptionError::corrupt(0, source))
                    }
                }
            }
        }
    }

    fn decode(header: FileHeader, bytes: &[u8]) -> Result<Self, Corruption> {
        let mut decoder = Decoder::new(bytes);
        let key_id = decoder.u64(WHAT)?;
        let salt = decoder.take(WHAT, SALT_BYTES)?.try_into().expect("as long as that");
        let check = decoder.take(WHAT, CHECK_BYTES)?.try_into().expect("as long as that");
        let rest = decoder.take(WHAT, size_of::<u32>())?;
        let computed = crc32(&[&bytes[..decoder.offset()]]);
        let stored = decoder.u32(WHAT)?;
        if stored != computed {
            let (stored, computed) = (stored.into(), computed.into());
            return Err(Corruption::Checksum { what: WHAT, stored, computed });
        }
        let layout = Layout::of(header.kind);
        if rest != [layout as u8, 0, 0, 0] {
            let value = rest[0].into();
            return Err(Corruption::Unsupported { what: "layout of an encrypted file", value });
        }
        Ok(Self { header, key_id, layout, salt, check })
    }

    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend_from_slice(&self.header.encode_encrypted());
        bytes.extend_from_slice(&self.key_id.to_le_bytes());
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(&self.check);
        bytes.extend_from_slice(&[self.layout as u8, 0, 0, 0]);
        bytes.extend_from_slice(&crc32(&[&bytes[HEADER_BYTES..]]).to_le_bytes());
        bytes.try_into().expect("the fields have this length")
    }

    /// Returns the cipher of the file.
    ///
    /// # Errors
    ///
    /// [`EncryptionError::NoKey`], [`EncryptionError::WrongKey`].
    pub(super) fn cipher(&self, keys: &dyn KeyProvider) -> io::Result<Cipher> {
        let id = self.key_id;
        let key = keys.key(id).map_err(|source| EncryptionError::NoKey { id, source })?;
        let (cipher, check) = self.derive(&key);
        match check == self.check {
            true => Ok(cipher),
            false => Err(EncryptionError::WrongKey { id }.into()),
        }
    }

    fn derive(&self, key: &RootKey) -> (Cipher, [u8; CHECK_BYTES]) {
        let kdf = Hkdf::<Sha256>::new(Some(&self.salt), key.bytes());
        let header = self.header.encode_encrypted();
        let id = self.key_id.to_le_bytes();
        let info = [INFO, &header, &id, &[self.layout as u8, 0, 0, 0]];
        let mut bytes = Zeroizing::new([0; KEY_BYTES + CHECK_BYTES]);
        kdf.expand_multi_info(&info, &mut *bytes).expect("fewer than 255 blocks");
        let (key, check) = bytes.split_first_chunk::<KEY_BYTES>().expect("it is longer");
        (Cipher::new(key), check.try_into().expect("the rest"))
    }
}
