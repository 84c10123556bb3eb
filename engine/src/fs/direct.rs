//! Reads past the page cache of the operating system: `O_DIRECT`.
//!
//! Such a read moves whole blocks of the device into memory that is aligned as the device wants it. What
//! that is, the kernel tells (`statx` with `STATX_DIOALIGN`, since Linux 6.1); an older one, or a file
//! system that does not say, gets [`DEFAULT_ALIGNMENT`], which every common device accepts. A read goes
//! into a buffer of this module and is copied from there: some 0.1 us for a block of 4 KiB, against the
//! many that the device takes.
//!
//! The kernel writes dirty pages of the place back before it reads there, so a file that was written
//! through the page cache is read as it is.

#![expect(clippy::disallowed_methods, reason = "this is what the fs trait stands for")]

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use bytes::Bytes;

use super::{ReadFile, real};

/// Where places and buffers begin if nobody says what the device needs.
const DEFAULT_ALIGNMENT: usize = 4 << 10;
/// Devices want less; more is taken for nonsense.
const ALIGNMENT_MAX: usize = 1 << 20;
/// Longest buffer, in bytes: longer reads are done in parts.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// A file that is read past the page cache.
#[derive(Debug)]
pub(super) struct DirectFile {
    file: File,
    /// Places and lengths of reads are multiples of it; a power of two.
    place_alignment: usize,
    /// Buffers begin at a multiple of it; a power of two.
    buffer_alignment: usize,
}

impl DirectFile {
    /// Opens `path`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if its file system, or this operating system, cannot do that. Else
    /// what the operating system says.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (place_alignment, buffer_alignment) = alignments(&file)?;
        Ok(Self { file, place_alignment, buffer_alignment })
    }

    /// Reads into `buffer`, whose length is a multiple of the alignment as `place` is. How many bytes.
    fn read_blocks(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, place) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl ReadFile for DirectFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let alignment = self.place_alignment;
        let most = (buf.len() + alignment).next_multiple_of(alignment).min(BUFFER_BYTES_MAX);
        let mut buffer = vec![0; most + self.buffer_alignment];
        let start = buffer.as_ptr().align_offset(self.buffer_alignment);
        let buffer = &mut buffer[start..][..most];
        let mut done = 0;
        while done < buf.len() {
            let at = offset.checked_add(done as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
            let skip = (at % alignment as u64) as usize; // Below `alignment`.
            let rest = &mut buf[done..];
            let bytes = (skip + rest.len()).next_multiple_of(alignment).min(most);
            let read = self.read_blocks(&mut buffer[..bytes], at - skip as u64)?;
            // The last block of a file is as long as the file has it.
            let found = buffer[..read].get(skip..).unwrap_or_default();
            if found.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = found.len().min(rest.len());
            rest[..taken].copy_from_slice(&found[..taken]);
            done += taken;
        }
        Ok(())
    }

    fn map(&self) -> io::Result<Bytes> {
        real::map(&self.file)
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::{fs::OFlags, io::Errno};

    let flags = OFlags::DIRECT.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::INVAL.raw_os_error() => unsupported(),
        _ => error,
    })
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn open(_: &Path) -> io::Result<File> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    let reason = "the file system has no reads past the page cache (O_DIRECT)";
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// What places and what buffers have to be multiples of.
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
    // Zero: not for this file.
    let both = usable(said.stx_dio_offset_align).zip(usable(said.stx_dio_mem_align));
    both.ok_or_else(unsupported)
}

/// What places and what buffers have to be multiples of.
#[cfg(not(target_os = "linux"))]
fn alignments(_: &File) -> io::Result<(usize, usize)> {
    Ok((DEFAULT_ALIGNMENT, DEFAULT_ALIGNMENT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{AppendFile, Fs, RealFs};

    /// A file in the folder of the build, which is on a disk, where that of temporary files may not be.
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
