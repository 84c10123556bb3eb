//! Encryption at rest: a file system that encrypts below the formats.
//!
//! | file         | content                                                   |
//! |--------------|-----------------------------------------------------------|
//! | `mod`        | byte layout                                               |
//! | `keys`       | root keys and their providers                             |
//! | `error`      | errors, as the cause of an [`io::Error`](std::io::Error)  |
//! | `envelope`   | the head of a file, and its key                           |
//! | `pages`      | tables and filters: written once, read anywhere           |
//! | `frames`     | logs, manifests, `CURRENT`, `CLOSED`: writer              |
//! | `frame_file` | the same: reader                                          |
//! | `fs`         | the file system                                           |
//! | `rewrite`    | encrypts a file again, by the current key                 |
//! | `objects`    | objects of backup sets                                    |
//! | `stored`     | encrypted files as they are stored, for copies            |
//!
//! Readers and writers of the formats see the logical file, as in a store without encryption. The
//! stored file begins with:
//!
//! | offset | bytes | field       | meaning                                                  |
//! |--------|-------|-------------|----------------------------------------------------------|
//! | 0      | 64    | file header | clear, with envelope 1                                   |
//! | 64     | 8     | `key_id`    | id of the root key                                       |
//! | 72     | 32    | `salt`      | random                                                   |
//! | 104    | 16    | `key_check` | identifies the file key: another root key is refused     |
//! | 120    | 1     | `layout`    | 1: pages; 2: frames                                      |
//! | 121    | 3     |             | zero                                                     |
//! | 124    | 4     | `checksum`  | CRC-32 of the bytes 64 to 124                            |
//!
//! HKDF-SHA256 derives 48 bytes from the root key, with `salt`: the file key and `key_check`. Its
//! `info` is `SieveDB file key 1`, the file header, `key_id` and the bytes 120 to 124. So the key
//! of a file depends on the store, on the kind and number of the file, and on every clear field.
//!
//! **Pages** follow in tables and filter files: 4096 logical bytes, encrypted by AES-256-GCM, and
//! a tag of 16 bytes. The last page may be shorter. The nonce is the number of the page (8 bytes)
//! and 1 for the last page, else 0 (4 bytes). A file key encrypts one file, once, so no nonce is
//! used twice. A truncated file has no last page.
//!
//! **Frames** follow in files that grow append by append:
//!
//! | bytes | field    | meaning                                                            |
//! |-------|----------|--------------------------------------------------------------------|
//! | 12    | `nonce`  | 8 random bytes of the open file, and a counter                     |
//! | 8     | `offset` | of the first logical byte; authenticated                           |
//! | 4     | `length` | at most 16 KiB                                                     |
//! | n     |          | encrypted bytes                                                    |
//! | 16    | `tag`    |                                                                    |
//!
//! Each opening of a file for appending draws 8 new bytes, so no nonce is used twice, after a crash
//! either. Frames that are lost or not authentic read as bytes that begin no record. The readers of
//! the formats then decide whether the end is torn or the file is damaged, as without encryption.
//! A reader finds the frames after a damaged one, because a frame can be recognized at any offset.
//!
//! The logical header (envelope 0) is not encrypted. Integers are little-endian.

#[cfg(feature = "encryption")]
mod cipher;
#[cfg(feature = "encryption")]
mod envelope;
#[cfg(feature = "encryption")]
mod error;
#[cfg(feature = "encryption")]
mod frame_file;
#[cfg(feature = "encryption")]
mod frames;
#[cfg(feature = "encryption")]
mod fs;
#[cfg(feature = "encryption")]
mod keys;
#[cfg(feature = "encryption")]
mod objects;
#[cfg(feature = "encryption")]
mod pages;
#[cfg(feature = "encryption")]
mod rewrite;
mod stored;
#[cfg(all(test, feature = "encryption"))]
mod tests;

#[cfg(all(test, feature = "encryption"))]
pub(crate) use frame_file::shadow;
#[cfg(feature = "encryption")]
pub use keys::{KeyError, KeyProvider, RootKey, StaticKeys};
#[cfg(feature = "encryption")]
pub use rewrite::Reencryption;
pub(crate) use stored::StoredFs;
#[cfg(feature = "encryption")]
pub(crate) use {
    error::EncryptionError,
    fs::EncryptedFs,
    objects::{ObjectWriter, open_object},
};

/// The keys of a store; none without the feature.
#[cfg(feature = "encryption")]
pub(crate) type Keys = std::sync::Arc<dyn KeyProvider>;
/// The keys of a store; none without the feature.
#[cfg(not(feature = "encryption"))]
#[derive(Debug, Clone)]
pub(crate) enum Keys {}
