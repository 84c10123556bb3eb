//! What the system knows of this process: its memory, its reads and writes, the space its files
//! take.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use crate::failure::Result;

/// Bytes of a block in `stat`, whatever the file system.
const STAT_BLOCK_BYTES: u64 = 512;

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Most that was resident at a time.
    pub(crate) peak: u64,
    /// Resident now, mapped files included.
    pub(crate) resident: u64,
    /// The part that belongs to no file.
    pub(crate) anonymous: u64,
    /// The part that belongs to mapped files.
    pub(crate) mapped: u64,
}

impl Memory {
    pub(crate) fn now() -> Result<Self> {
        let text = read("/proc/self/status")?;
        let bytes = |name| Ok::<_, crate::failure::Failure>(field(&text, name)? * 1024);
        Ok(Self {
            peak: bytes("VmHWM:")?,
            resident: bytes("VmRSS:")?,
            anonymous: bytes("RssAnon:")?,
            mapped: bytes("RssFile:")?,
        })
    }
}

/// Reads and writes of this process since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Io {
    /// Calls of `read` and its like. A page that a memory map brings in is none.
    pub(crate) read_calls: u64,
    /// Bytes that they returned.
    pub(crate) read_bytes: u64,
    /// Bytes that came from the device, through memory maps too.
    pub(crate) device_read_bytes: u64,
    /// Calls of `write` and its like.
    pub(crate) write_calls: u64,
    /// Bytes that they were given.
    pub(crate) write_bytes: u64,
    /// Bytes that are to go to the device, through memory maps too.
    pub(crate) device_write_bytes: u64,
}

impl Io {
    pub(crate) fn now() -> Result<Self> {
        let text = read("/proc/self/io")?;
        Ok(Self {
            read_calls: field(&text, "syscr:")?,
            read_bytes: field(&text, "rchar:")?,
            device_read_bytes: field(&text, "read_bytes:")?,
            write_calls: field(&text, "syscw:")?,
            write_bytes: field(&text, "wchar:")?,
            device_write_bytes: field(&text, "write_bytes:")?,
        })
    }

    /// What was read and written between `before` and now, without what it takes to ask.
    pub(crate) fn since(before: Self) -> Result<Self> {
        let now = Self::now()?;
        let again = Self::now()?;
        Ok(now.less(before).less(again.less(now)))
    }

    fn less(self, other: Self) -> Self {
        Self {
            read_calls: self.read_calls.saturating_sub(other.read_calls),
            read_bytes: self.read_bytes.saturating_sub(other.read_bytes),
            device_read_bytes: self.device_read_bytes.saturating_sub(other.device_read_bytes),
            write_calls: self.write_calls.saturating_sub(other.write_calls),
            write_bytes: self.write_bytes.saturating_sub(other.write_bytes),
            device_write_bytes: self.device_write_bytes.saturating_sub(other.device_write_bytes),
        }
    }

    /// Adds `other`.
    pub(crate) fn add(&mut self, other: Self) {
        self.read_calls += other.read_calls;
        self.read_bytes += other.read_bytes;
        self.device_read_bytes += other.device_read_bytes;
        self.write_calls += other.write_calls;
        self.write_bytes += other.write_bytes;
        self.device_write_bytes += other.device_write_bytes;
    }
}

/// Bytes that the files in `folder` take on the disk.
pub(crate) fn space_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in entries(folder)? {
        let entry = entry?;
        let stat = entry.metadata()?;
        bytes += if stat.is_dir() {
            space_bytes(&entry.path())?
        } else {
            stat.blocks() * STAT_BLOCK_BYTES
        };
    }
    Ok(bytes)
}

/// What `folder` holds.
#[expect(clippy::disallowed_methods, reason = "this looks at the files of other engines too")]
pub(crate) fn entries(folder: &Path) -> std::io::Result<fs::ReadDir> {
    fs::read_dir(folder)
}

/// The text of the file `path`, which may be one of the system.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The number that stands behind `name` at the start of a line.
pub(crate) fn field(text: &str, name: &str) -> Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("the system tells no number {name}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_parsed_by_name() {
        let text = "VmPeak:\t 9 kB\nVmHWM:\t   12 kB\nName:\tx\n";
        assert_eq!(field(text, "VmHWM:").unwrap(), 12);
        assert!(field(text, "Name:").is_err());
        assert!(field(text, "VmRSS:").is_err());
    }

    #[test]
    fn reading_the_counters_is_not_counted() {
        let before = Io::now().unwrap();
        let io = Io::since(before).unwrap();
        assert!(io.read_calls <= 2 && io.read_bytes < 400, "{io:?}");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes files")]
    fn memory_and_space_are_known() {
        let memory = Memory::now().unwrap();
        assert!(memory.anonymous + memory.mapped <= memory.resident);
        assert!(memory.resident <= memory.peak);
        let folder = tempfile::tempdir().unwrap();
        let empty = space_bytes(folder.path()).unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        let file = folder.path().join("a/b");
        fs::write(file, [1; 10_000]).unwrap();
        assert!(space_bytes(folder.path()).unwrap() >= empty + 10_000);
    }
}
