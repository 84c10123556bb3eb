//! Compares the encrypted file system with the plain one.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use sievedb_format::{FileHeader, FileKind, file_header::HEADER_BYTES};

use super::{EncryptedFs, Keys, RootKey, StaticKeys, envelope::Head, frame_file::FrameFile};
use crate::fs::{Fs, MemoryFs, ReadFile};

fn keys() -> Keys {
    Arc::new(StaticKeys::new(7, RootKey::new([3; 32])))
}

fn header(kind: FileKind) -> FileHeader {
    FileHeader::new(kind, 5 << 70 | 9, 12)
}

/// A small random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % most
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

fn seed() -> u64 {
    let seed = std::env::var("SIEVE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    eprintln!("SIEVE_SEED={seed}");
    seed
}

fn read_all(file: &dyn ReadFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// A disk with the file `a` of this kind and content, and the encrypted file system on it.
fn written(kind: FileKind, appends: &[Vec<u8>]) -> (Arc<MemoryFs>, EncryptedFs, Vec<u8>) {
    written_by(Arc::new(MemoryFs::new()), kind, appends)
}

/// As [`written`], on a disk with random numbers of its own.
fn written_by(
    disk: Arc<MemoryFs>,
    kind: FileKind,
    appends: &[Vec<u8>],
) -> (Arc<MemoryFs>, EncryptedFs, Vec<u8>) {
    let fs = EncryptedFs::new(Arc::clone(&disk) as Arc<dyn Fs>, keys(), false);
    let mut content = header(kind).encode().to_vec();
    let file = fs.create(Path::new("a")).unwrap();
    file.append(&content).unwrap();
    for bytes in appends {
        file.append(bytes).unwrap();
        content.extend_from_slice(bytes);
    }
    file.sync_data().unwrap();
    (disk, fs, content)
}

#[test]
fn random_calls_read_as_on_the_plain_file_system() {
    let mut random = Random(seed());
    for round in 0..400 {
        let kind = [FileKind::Table, FileKind::Log, FileKind::Manifest, FileKind::Filter];
        let kind = kind[random.below(4) as usize];
        let is_paged = matches!(kind, FileKind::Table | FileKind::Filter);
        let disk = Arc::new(MemoryFs::new());
        let fs = EncryptedFs::new(Arc::clone(&disk) as Arc<dyn Fs>, keys(), false);
        let path = Path::new("a");
        let mut file = fs.create(path).unwrap();
        let mut want = header(kind).encode().to_vec();
        let cut = random.below(HEADER_BYTES as u64 + 1) as usize;
        file.append(&want[..cut]).unwrap();
        file.append(&want[cut..]).unwrap();
        let mut reserved = 0;
        let mut reader = None;
        for _ in 0..random.below(12) {
            let length = [random.below(10), random.below(5000), random.below(70_000)];
            let length = length[random.below(3) as usize];
            let bytes = random.bytes(length);
            file.append(&bytes).unwrap();
            want.extend_from_slice(&bytes);
            if is_paged {
                continue;
            }
            match random.below(6) {
                0 => {
                    reserved = want.len() as u64 + random.below(100_000);
                    file.reserve(reserved).unwrap();
                }
                1 if reserved == 0 => {
                    file.sync_data().unwrap();
                    file = fs.open_append(path).unwrap();
                }
                2 => reader = Some(fs.open(path).unwrap()),
                _ => {}
            }
            if let Some(reader) = &reader {
                let mut found = vec![0; want.len()];
                assert!(reader.len().unwrap() >= want.len() as u64);
                reader.read_at(&mut found, 0).unwrap();
                assert!(found == want, "round {round}");
            }
        }
        file.sync_data().unwrap();
        let reader = fs.open(path).unwrap();
        let length = reader.len().unwrap();
        match reserved {
            0 => assert_eq!(length, want.len() as u64, "round {round}, {kind:?}"),
            _ => assert!(length >= want.len() as u64),
        }
        for _ in 0..20 {
            let start = random.below(length + 1);
            let end = start + random.below(length - start + 1);
            let mut found = vec![7; (end - start) as usize];
            reader.read_at(&mut found, start).unwrap();
            let known = want.get(start as usize..).unwrap_or_default();
            let known = &known[..known.len().min(found.len())];
            let (read, zeros) = found.split_at(known.len());
            assert!(read == known, "round {round}, {kind:?}");
            assert!(zeros.iter().all(|&byte| byte == 0));
        }
        let behind = reader.read_at(&mut [0; 2], length - 1).unwrap_err();
        assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn damaged_tables_are_refused_where_they_are_damaged() {
    let mut random = Random(seed());
    let content = random.bytes(9000);
    let (disk, fs, want) = written(FileKind::Table, &[content]);
    let stored = read_all(&*disk.open(Path::new("a")).unwrap()).unwrap();
    let check = |bytes: &[u8], what: &str| {
        disk.unlink(Path::new("a")).unwrap();
        disk.create(Path::new("a")).unwrap().append(bytes).unwrap();
        let Ok(file) = fs.open(Path::new("a")) else { return };
        let length = file.len().unwrap() as usize;
        // The manifest names the length.
        if length != want.len() {
            return;
        }
        let mut refused = false;
        for start in (0..length).step_by(512) {
            let end = (start + 512).min(length);
            let mut found = vec![0; end - start];
            match file.read_at(&mut found, start as u64) {
                // A file without a head reads as if it had no header.
                Ok(()) if found == want.get(start..end).unwrap_or_default() => {}
                Ok(()) => refused |= FileHeader::decode(&found).is_err() && start == 0,
                Err(_) => refused = true,
            }
            if refused {
                return;
            }
        }
        panic!("{what} is not noticed");
    };
    for at in 0..stored.len() {
        let mut bytes = stored.clone();
        bytes[at] ^= 1 << random.below(8);
        check(&bytes, &format!("a flipped bit at {at}"));
    }
    for cut in (0..stored.len()).step_by(7).chain([128, 128 + 4112, 128 + 2 * 4112]) {
        check(&stored[..cut], &format!("a cut at {cut}"));
    }
    let mut swapped = stored.clone();
    swapped[128..128 + 2 * 4112].rotate_left(4112);
    check(&swapped, "a swap of pages");
}

#[test]
fn pages_of_another_file_are_refused() {
    let content = vec![b'x'; 9000];
    let (disk, fs, _) = written(FileKind::Table, std::slice::from_ref(&content));
    let disk_of_other = Arc::new(MemoryFs::with_seed(99));
    let (other, _, _) = written_by(disk_of_other, FileKind::Table, &[content]);
    let stored = |disk: &dyn Fs| read_all(&*disk.open(Path::new("a")).unwrap()).unwrap();
    let (mut mixed, from) = (stored(&*disk), stored(&*other));
    mixed[128..128 + 4112].copy_from_slice(&from[128..128 + 4112]);
    disk.create(Path::new("b")).unwrap().append(&mixed).unwrap();
    let file = fs.open(Path::new("b")).unwrap();
    assert!(file.read_at(&mut [0; 10], 64).is_err());
    assert!(file.read_at(&mut [0; 10], 64 + 4096).is_ok());
}

/// Whatever happens to stored frames, each byte reads as written, or as 0 or 127.
#[test]
fn damaged_frames_read_as_no_data() {
    let mut random = Random(seed());
    let appends: Vec<_> = (0..30)
        .map(|_| {
            let length = 8 * (1 + random.below(60));
            (0..length).map(|_| 1 + random.below(250) as u8).collect::<Vec<u8>>()
        })
        .collect();
    let (disk, fs, want) = written(FileKind::Log, &appends);
    let stored = read_all(&*disk.open(Path::new("a")).unwrap()).unwrap();
    // Returns the number of lost bytes.
    let check = |bytes: &[u8], what: &str| {
        disk.unlink(Path::new("a")).unwrap();
        disk.create(Path::new("a")).unwrap().append(bytes).unwrap();
        let found = read_all(&*fs.open(Path::new("a")).unwrap()).unwrap();
        let mut lost = want.len().saturating_sub(found.len());
        for (at, (&found, &want)) in found.iter().zip(&want).enumerate().skip(HEADER_BYTES) {
            assert!(found == want || found == 0 || found == 127, "{what}: byte {at} is {found}");
            lost += usize::from(found != want);
        }
        assert!(found.iter().skip(want.len()).all(|&byte| byte == 0 || byte == 127), "{what}");
        lost
    };
    assert_eq!(check(&stored, "nothing"), 0);
    for at in 128..stored.len() {
        let mut bytes = stored.clone();
        bytes[at] ^= 1 << random.below(8);
        // One frame is lost, and no other.
        let lost = check(&bytes, &format!("a flipped bit at {at}"));
        assert!((8..=480).contains(&lost), "{lost} bytes are lost at {at}");
        bytes[at..(at + 30).min(stored.len())].fill(0);
        assert!(check(&bytes, &format!("zeros at {at}")) <= 2 * 480, "zeros at {at}");
    }
    for cut in 128..stored.len() {
        check(&stored[..cut], &format!("a cut at {cut}"));
    }
    for at in 0..128 {
        let mut bytes = stored.clone();
        bytes[at] ^= 1;
        if let Ok(file) = fs_of(&disk, &bytes, &fs) {
            let header = &read_all(&*file).unwrap()[..HEADER_BYTES];
            assert!(FileHeader::decode(header).is_err(), "a flipped bit at {at}");
        }
    }
}

/// A reader that has seen a part of a frame reads the rest when the frame is complete.
#[test]
fn lengths_do_not_shrink_while_frames_are_appended() {
    let appends: Vec<_> = (1..20_u8).map(|byte| vec![byte; 8 * usize::from(byte)]).collect();
    let (disk, fs, want) = written(FileKind::Log, &appends);
    let stored = read_all(&*disk.open(Path::new("a")).unwrap()).unwrap();
    disk.unlink(Path::new("a")).unwrap();
    let file = disk.create(Path::new("a")).unwrap();
    file.append(&stored[..128]).unwrap();
    let (reader, mut length) = (fs.open(Path::new("a")).unwrap(), 0);
    for part in stored[128..].chunks(50) {
        file.append(part).unwrap();
        let before = length;
        length = reader.len().unwrap();
        assert!(length >= before, "{length} after {before}");
    }
    let mut found = vec![7; length as usize];
    reader.read_at(&mut found, 0).unwrap();
    let (read, zeros) = found.split_at(want.len());
    assert!(read == want && zeros.iter().all(|&byte| byte == 0));
    assert!(!zeros.is_empty(), "no part of a frame was seen");
    let behind = reader.read_at(&mut [0; 2], length - 1).unwrap_err();
    assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
}

/// Counts the bytes that are read.
#[derive(Debug)]
struct Counting(Bytes, AtomicU64);

impl ReadFile for Counting {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.fetch_add(buf.len() as u64, Relaxed);
        buf.copy_from_slice(&self.0[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn map(&self) -> io::Result<Bytes> {
        Ok(self.0.clone())
    }
}

/// Otherwise a replay would search the rest of the file in each of its reads.
#[test]
fn a_damaged_rest_is_searched_once() {
    const READ_ONCE_MAX: u64 = 4 * (64 << 10);
    let mut random = Random(seed());
    let appends: Vec<_> = (0..150).map(|_| random.bytes(8 << 10)).collect();
    let (disk, _, want) = written(FileKind::Log, &appends);
    let stored = read_all(&*disk.open(Path::new("a")).unwrap()).unwrap();
    for rest in [vec![9; 1 << 20], [vec![9; 1 << 19], vec![0; 1 << 19]].concat()] {
        let bytes = [&stored[..100 << 10], &rest].concat();
        let file = Arc::new(Counting(bytes.into(), AtomicU64::new(0)));
        let head = Head::read(&*file).unwrap().unwrap();
        let cipher = head.cipher(&*keys()).unwrap();
        let frames = FrameFile::new(Arc::clone(&file) as _, &head, cipher);
        assert!(frames.len().unwrap() > 1 << 20);
        let before = file.1.load(Relaxed);
        assert!(before >= 1 << 20, "all of it is searched");
        let mut found = [0; 1000];
        for offset in (90 << 10..1 << 20).step_by(50 << 10) {
            frames.read_at(&mut found, offset).unwrap();
        }
        let again = file.1.load(Relaxed) - before;
        assert!(again <= 19 * READ_ONCE_MAX, "{again} bytes");
        frames.read_at(&mut found, 50 << 10).unwrap();
        assert_eq!(found[..], want[50 << 10..][..1000]);
    }
}

/// A rewritten file would have a valid tag over the damage.
#[test]
fn a_damaged_file_is_not_rewritten() {
    let appends: Vec<_> = (1..4_u8).map(|byte| vec![byte; 80]).collect();
    for at in [0, 30, 119, 120, 150, 239] {
        let (disk, fs, _) = written(FileKind::Log, &appends);
        let mut stored = read_all(&*disk.open(Path::new("a")).unwrap()).unwrap();
        stored[128 + at] ^= 1;
        fs_of(&disk, &stored, &fs).unwrap();
        let (_, error) = fs.rewrite(Path::new("a"), &|| false).unwrap_err();
        let error = crate::Error::io("read", "a", error);
        assert!(matches!(error, crate::Error::Corrupt { .. }), "{at}: {error:?}");
        assert_eq!(read_all(&*disk.open(Path::new("a")).unwrap()).unwrap(), stored, "{at}");
    }
}

fn fs_of(disk: &MemoryFs, bytes: &[u8], fs: &EncryptedFs) -> io::Result<Arc<dyn ReadFile>> {
    disk.unlink(Path::new("a")).unwrap();
    disk.create(Path::new("a")).unwrap().append(bytes).unwrap();
    fs.open(Path::new("a"))
}
