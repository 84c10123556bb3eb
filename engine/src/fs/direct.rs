//! Reads that bypass the page cache of the operating system: `O_DIRECT`.
//!
//! Such a read moves whole blocks of the device into memory with the alignment of the device. The
//! kernel reports the alignment (`statx` with `STATX_DIOALIGN`, since Linux 6.1). Without it
//! [`DEFAULT_ALIGNMENT`] is used, which common devices accept. A read fills a buffer of this module
//! and is copied from it. The copy takes about 0.1 us for a block of 4 KiB, far less than the
//! device.
//!
//! The kernel writes dirty pages back before it reads there, so a read returns data written through
//! the page cache.

#![expect(clippy::disallowed_methods, reason = "this module implements the fs trait")]

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use bytes::Bytes;

use super::{ReadFile, real};

/// Alignment of offsets and buffers if the kernel reports none.
const DEFAULT_ALIGNMENT: usize = 4 << 10;
/// Larger reported alignments are refused.
const ALIGNMENT_MAX: usize = 1 << 20;
/// Maximum length of a buffer. Longer reads are split.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// The smallest unit of any device.
const SECTOR_BYTES: usize = 512;
/// Maximum number of reads of one call that end before the next byte, although the file has it.
const SHORT_READS_MAX: u32 = 8;

#[derive(Debug)]
pub(super) struct DirectFile {
    file: File,
    /// Alignment of offsets and lengths of reads; a power of two.
    place_alignment: usize,
    /// Alignment of buffers; a power of two.
    buffer_alignment: usize,
}

impl DirectFile {
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the file system or the operating system has no such reads.
    /// Otherwise those of the operating system.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (place_alignment, buffer_alignment) = alignments(&file)?;
        Ok(Self { file, place_alignment, buffer_alignment })
    }
}

/// Source of blocks, replaced in tests.
trait Blocks {
    /// Reads into `buffer`. Its length and the offset `place` are multiples of the alignment.
    /// Returns the bytes read.
    fn read_blocks(&self, buffer: &mut [u8], place: u64) -> io::Result<usize>;

    fn length(&self) -> io::Result<u64>;

    fn read_bytes(
        &self,
        buf: &mut [u8],
        offset: u64,
        (mut place_alignment, buffer_alignment): (usize, usize),
    ) -> io::Result<()> {
        let most = (buf.len() + place_alignment).next_multiple_of(place_alignment);
        let most = most.min(BUFFER_BYTES_MAX);
        let mut buffer = vec![0; most + buffer_alignment];
        let start = buffer.as_ptr().align_offset(buffer_alignment);
        let buffer = &mut buffer[start..][..most];
        let (mut done, mut tries) = (0, 0);
        while done < buf.len() {
            let at = offset.checked_add(done as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
            let skip = (at % place_alignment as u64) as usize; // Below the alignment.
            let rest = &mut buf[done..];
            let bytes = (skip + rest.len()).next_multiple_of(place_alignment).min(most);
            let read = self.read_blocks(&mut buffer[..bytes], at - skip as u64)?;
            let found = buffer[..read].get(skip..).unwrap_or_default();
            let taken = found.len().min(rest.len());
            rest[..taken].copy_from_slice(&found[..taken]);
            done += taken;
            if taken > 0 {
                continue;
            }
            if read == 0 || at >= self.length()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // The read ended before `at`.
            tries += 1;
            if tries == SHORT_READS_MAX {
                let reason = "reads past the page cache end within a block";
                return Err(io::Error::other(reason));
            }
            if read.is_multiple_of(SECTOR_BYTES) {
                // The read ended at a sector, from which reading can continue.
                place_alignment = place_alignment.min(SECTOR_BYTES);
            }
        }
        Ok(())
    }
}

impl Blocks for File {
    fn read_blocks(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        loop {
            match FileExt::read_at(self, buffer, place) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(unsupported_if_invalid),
            }
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl ReadFile for DirectFile {
    fn len(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_bytes(buf, offset, (self.place_alignment, self.buffer_alignment))
    }

    fn map(&self) -> io::Result<Bytes> {
        real::map(&self.file)
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    let flags = OFlags::DIRECT.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    opened.map_err(unsupported_if_invalid)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn open(_: &Path) -> io::Result<File> {
    Err(unsupported())
}

/// Converts `EINVAL`, the error if direct reads are unsupported. Some file systems return it only
/// for a read.
fn unsupported_if_invalid(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::INVAL.raw_os_error() => unsupported(),
        _ => error,
    }
}

fn unsupported() -> io::Error {
    let reason = "the file system has no reads past the page cache (O_DIRECT)";
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// Returns the alignments of offsets and of buffers.
#[cfg(target_os = "linux")]
fn alignments(file: &File) -> io::Result<(usize, usize)> {
    use rustix::fs::{AtFlags, StatxFlags, statx};

    let said = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let said = said.ok().filter(|said| said.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let Some(said) = said else { return Ok((DEFAULT_ALIGNMENT, DEFAULT_ALIGNMENT)) };
    let usable = |bytes: u32| {
        let bytes = usize::try_from(bytes).ok();
        bytes.filter(|bytes| bytes.is_power_of_two() && *bytes <= ALIGNMENT_MAX)
    };
    // Zero means that direct reads of this file are unsupported.
    let both = usable(said.stx_dio_offset_align).zip(usable(said.stx_dio_mem_align));
    both.ok_or_else(unsupported)
}

#[cfg(not(target_os = "linux"))]
fn alignments(_: &File) -> io::Result<(usize, usize)> {
    Ok((DEFAULT_ALIGNMENT, DEFAULT_ALIGNMENT))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::fs::{AppendFile, Fs, RealFs};

    /// A file whose first reads are truncated to these lengths.
    struct ShortReads {
        bytes: Vec<u8>,
        /// `None` for a read that is not truncated.
        cuts: RefCell<Vec<Option<usize>>>,
    }

    impl Blocks for ShortReads {
        fn read_blocks(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
            assert!((place as usize).is_multiple_of(SECTOR_BYTES));
            assert!(buffer.len().is_multiple_of(SECTOR_BYTES));
            let there = self.bytes.get(place as usize..).unwrap_or_default();
            let mut cuts = self.cuts.borrow_mut();
            let cut = if cuts.is_empty() { None } else { cuts.remove(0) };
            let read = there.len().min(buffer.len()).min(cut.unwrap_or(usize::MAX));
            buffer[..read].copy_from_slice(&there[..read]);
            Ok(read)
        }

        fn length(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }
    }

    #[test]
    fn a_read_that_breaks_off_is_not_the_end() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|i| (i * 7 / 5) as u8).collect();
        let read = |cuts: &[Option<usize>], place: usize, length: usize| {
            let file = ShortReads { bytes: bytes.clone(), cuts: cuts.to_vec().into() };
            let mut found = vec![0; length];
            let read = file.read_bytes(&mut found, place as u64, (4096, 512));
            read.map(|()| assert!(found == bytes[place..place + length], "{cuts:?} at {place}"))
        };
        let kind = |read: io::Result<()>| read.map_err(|error| error.kind());
        for cut in [1, 511, 512, 513, 1024, 3000, 3584, 4095, 4096, 4608, 8192] {
            for (place, length) in [(0, 1), (0, 9000), (700, 100), (4000, 8000), (19_999, 1)] {
                read(&[Some(cut)], place, length).unwrap();
                read(&[None, Some(cut)], place, length).unwrap();
                read(&[Some(cut); 3], place, length).unwrap();
            }
        }
        // Each read returns one sector.
        read(&[Some(512); 64], 700, 9000).unwrap();
        let end = Err(io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(read(&[Some(512)], 20_000, 1)), end);
        assert_eq!(kind(read(&[Some(512)], 19_999, 2)), end);
        assert_eq!(kind(read(&[Some(0)], 700, 1)), end);
        assert_eq!(kind(read(&[Some(100); 64], 700, 1)), Err(io::ErrorKind::Other));
    }

    /// Uses the build directory, which is on a disk. The directory of temporary files may not be.
    #[test]
    fn reads_of_every_alignment_are_right() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..3 * (1 << 20) + 1234_u32).map(|i| (i * 7 / 5) as u8).collect();
        let file = RealFs.create(&path).unwrap();
        AppendFile::append(&*file, &bytes).unwrap();
        let direct = match RealFs.open_direct(&path) {
            Ok(direct) => direct,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                eprintln!("skipped: {error}");
                return;
            }
        };
        let end = bytes.len();
        let places = [0, 1, 511, 512, 513, 4095, 4096, 5000, (1 << 20) - 1, end - 4097, end - 1];
        let lengths = [0, 1, 511, 512, 4096, 4097, 70_000, 1 << 20, (2 << 20) + 1, end];
        for (place, length) in places.iter().flat_map(|at| lengths.map(|length| (*at, length))) {
            let mut found = vec![0; length];
            let read = direct.read_at(&mut found, place as u64);
            match bytes.get(place..place + length) {
                Some(want) => {
                    read.unwrap();
                    assert!(found == want, "{length} bytes at {place}");
                }
                None => {
                    let kind = read.map_err(|error| error.kind());
                    assert_eq!(kind, Err(io::ErrorKind::UnexpectedEof), "{length} at {place}");
                }
            }
        }
        AppendFile::append(&*file, b"more").unwrap();
        let mut found = [0; 5];
        direct.read_at(&mut found, end as u64 - 1).unwrap();
        assert_eq!(&found[1..], b"more", "what is not on the device yet is read");
    }
}
