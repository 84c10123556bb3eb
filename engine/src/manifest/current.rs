//! The bytes of `CURRENT`, and of `CLOSED`, which has the same form with another magic.
//!
//! | offset | bytes | field            | meaning                                                  |
//! |--------|-------|------------------|----------------------------------------------------------|
//! | 0      | 64    | file header      | its `file_id` is the number of the manifest that counts  |
//! | 64     | 8     | `manifest_bytes` | length up to which that manifest was durable, at least   |
//! | 72     | 4     | `checksum`       | CRC-32 of the bytes before it                            |
//!
//! `CURRENT` names the manifest that counts. A close without errors writes `CLOSED`: the length up
//! to which the manifest is durable, which stays true. So it needs no sync: lost, torn or outdated,
//! it vouches for less.

use std::{io, path::Path};

use sievedb_format::{
    Annotation, Corruption, Decoder, Encode, FileHeader, FileKind, checksum::crc32,
    file_header::HEADER_BYTES,
};

use crate::{
    Error, Result,
    error::SYNC,
    file_name::FileName,
    fs::{Fs, existing},
    log::Position,
};

const CURRENT_BYTES: usize = HEADER_BYTES + size_of::<u64>() + size_of::<u32>();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) store_id: u128,
    /// The current manifest, and its durable length.
    pub(crate) manifest: Position,
}

impl Current {
    fn encode(&self, kind: FileKind) -> Vec<u8> {
        let header = FileHeader::new(kind, self.store_id, self.manifest.file_id);
        let mut bytes = header.encode().to_vec();
        bytes.put_u64(self.manifest.offset);
        bytes.put_u32(crc32(&[&bytes]));
        bytes
    }

    fn decode(bytes: &[u8], kind: FileKind) -> Result<Self, Corruption> {
        let header = FileHeader::decode(bytes)?;
        if header.kind != kind {
            let found = Decoder::new(bytes).u64("magic")?;
            return Err(Corruption::Magic { what: "CURRENT", found });
        }
        let mut decoder = Decoder::new(bytes);
        decoder.take("file header", HEADER_BYTES)?;
        let offset = decoder.u64("length of the manifest")?;
        let computed = crc32(&[&bytes[..decoder.offset()]]);
        let stored = decoder.u32("checksum")?;
        if stored != computed {
            let (stored, computed) = (stored.into(), computed.into());
            return Err(Corruption::Checksum { what: "CURRENT", stored, computed });
        }
        decoder.finish("CURRENT")?;
        let manifest = Position { file_id: header.file_id, offset };
        Ok(Self { store_id: header.store_id, manifest })
    }

    pub(crate) fn describe(&self, header: &FileHeader) -> Annotation {
        let mut annotation = Annotation::new();
        header.describe(&mut annotation);
        annotation.field(64..72, "manifest_bytes", self.manifest.offset);
        annotation.field(72..76, "checksum", "ok");
        annotation
    }

    /// Reads `CURRENT`; `None` if it is missing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn read(fs: &dyn Fs, folder: &Path) -> Result<Option<Self>> {
        Self::read_file(fs, &FileName::Current.path(folder), FileKind::Current)
    }

    /// Returns the durable length of the manifest of the store `store_id` at its last close.
    /// Returns the default, which vouches for nothing, if it is unknown.
    pub(crate) fn read_closed(fs: &dyn Fs, folder: &Path, store_id: u128) -> Position {
        let closed = Self::read_file(fs, &FileName::Closed.path(folder), FileKind::Closed);
        let closed = closed.ok().flatten();
        match closed {
            Some(closed) if closed.store_id == store_id => closed.manifest,
            _ => Position::default(),
        }
    }

    /// Reads the file `path` in this format.
    pub(crate) fn read_file(fs: &dyn Fs, path: &Path, kind: FileKind) -> Result<Option<Self>> {
        let file = existing(fs.open(path)).map_err(|error| Error::io("open", path, error))?;
        let Some(file) = file else { return Ok(None) };
        let io_error = |error| Error::io("read", path, error);
        let file_bytes = file.len().map_err(io_error)?;
        if file_bytes != CURRENT_BYTES as u64 {
            let mut header = vec![0; file_bytes.min(HEADER_BYTES as u64) as usize];
            file.read_at(&mut header, 0).map_err(io_error)?;
            if let Err(encrypted @ Corruption::Encrypted) = FileHeader::decode(&header) {
                return Err(Error::corrupt(path, 0, encrypted));
            }
            let (what, expected) = ("length of CURRENT", CURRENT_BYTES as u64);
            let mismatch = Corruption::Mismatch { what, expected, found: file_bytes };
            return Err(Error::corrupt(path, 0, mismatch));
        }
        let mut bytes = [0; CURRENT_BYTES];
        file.read_at(&mut bytes, 0).map_err(io_error)?;
        Self::decode(&bytes, kind).map(Some).map_err(|source| Error::corrupt(path, 0, source))
    }

    /// Writes `CLOSED`, without a sync. Its content must be durable.
    ///
    /// # Errors
    ///
    /// Errors of the file system; then it vouches for nothing.
    pub(crate) fn write_closed(&self, fs: &dyn Fs, folder: &Path) -> io::Result<()> {
        let path = FileName::Closed.path(folder);
        existing(fs.unlink(&path))?;
        fs.create(&path)?.append(&self.encode(FileKind::Closed))
    }

    /// Replaces `CURRENT` atomically, durable on return. The manifest and its directory entry must
    /// be durable before.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. After a failed sync either file may be valid. After a full disk, the old file
    /// is valid.
    pub(crate) fn install(&self, fs: &dyn Fs, folder: &Path) -> Result<()> {
        let path = FileName::Current.path(folder);
        let temporary = FileName::Temporary("CURRENT").path(folder);
        let created = match fs.create(&temporary) {
            // A crash or a full disk left the file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                existing(fs.unlink(&temporary)).map_err(|e| Error::io("remove", &temporary, e))?;
                fs.create(&temporary)
            }
            created => created,
        };
        let file = created.map_err(|e| Error::io("create", &temporary, e))?;
        file.append(&self.encode(FileKind::Current))
            .map_err(|e| Error::io("append to", &temporary, e))?;
        file.sync_data().map_err(|e| Error::io(SYNC, &temporary, e))?;
        if let Err(error) = fs.rename(&temporary, &path) {
            // A failed rename may have been carried out: then the new file is valid.
            match Self::read(fs, folder) {
                Ok(Some(current)) if current == *self => {}
                Ok(_) => return Err(Error::io("rename", &temporary, error)),
                // Either file may be valid, as after a failed sync: final.
                Err(_) => return Err(Error::io(SYNC, &path, error)),
            }
        }
        fs.sync_dir(folder).map_err(|e| Error::io(SYNC, folder, e))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fs::{Call, Fault, FaultFs, MemoryFs, Times};

    const CURRENT: Current =
        Current { store_id: 7 << 64 | 9, manifest: Position { file_id: 12, offset: 4096 } };

    #[test]
    fn current_returns() {
        for (kind, other) in
            [(FileKind::Current, FileKind::Closed), (FileKind::Closed, FileKind::Current)]
        {
            assert_eq!(CURRENT.encode(kind).len(), CURRENT_BYTES);
            assert_eq!(Current::decode(&CURRENT.encode(kind), kind), Ok(CURRENT));
            let swapped = Current::decode(&CURRENT.encode(kind), other);
            assert!(matches!(swapped, Err(Corruption::Magic { .. })), "{kind:?}");
        }
    }

    /// A network file system may repeat a request that was carried out.
    #[test]
    fn a_leftover_that_is_already_gone_is_replaced() {
        const ENOENT: i32 = 2;
        let (fs, folder) = (FaultFs::new(Arc::new(MemoryFs::new())), Path::new("db"));
        fs.create_dir(folder).unwrap();
        fs.create(&folder.join("CURRENT.tmp")).unwrap();
        fs.inject(Fault::new(ENOENT, Times::Once).calls(&[Call::Unlink]).carried_out());
        CURRENT.install(&fs, folder).unwrap();
        assert_eq!(fs.failures(), 1);
        assert_eq!(Current::read(&fs, folder).unwrap(), Some(CURRENT));
    }

    #[test]
    fn current_refuses_every_flipped_bit_every_cut_and_a_rest() {
        let good = CURRENT.encode(FileKind::Current);
        let decode = |bytes: &[u8]| Current::decode(bytes, FileKind::Current);
        for at in 0..good.len() {
            assert!(decode(&good[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                assert!(decode(&bytes).is_err(), "bit {bit} of byte {at}");
            }
        }
        let rest = [&good[..], &[0]].concat();
        assert_eq!(decode(&rest), Err(Corruption::Trailing { what: "CURRENT", bytes: 1 }));
        let header = FileHeader::new(FileKind::Log, 1, 12);
        let other = [&header.encode()[..], &[0; 12]].concat();
        assert!(matches!(decode(&other), Err(Corruption::Magic { .. })));
    }
}
