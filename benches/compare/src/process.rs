//! System statistics of this process: memory, reads and writes, disk space of its files.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use crate::failure::Result;

/// Bytes of a block in `stat`, whatever the file system.
const STAT_BLOCK_BYTES: u64 = 512;

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Peak resident memory.
    pub(crate) peak: u64,
    /// Resident memory, including mapped files.
    pub(crate) resident: u64,
    /// Its anonymous part.
    pub(crate) anonymous: u64,
    /// Its part in mapped files.
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

/// Reads and writes of this process since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Io {
    /// Calls of `read` and similar. Excludes page faults in memory maps.
    pub(crate) read_calls: u64,
    /// Bytes returned by these calls.
    pub(crate) read_bytes: u64,
    /// Bytes read from the device, including memory maps.
    pub(crate) device_read_bytes: u64,
    /// Calls of `write` and similar.
    pub(crate) write_calls: u64,
    /// Bytes passed to these calls.
    pub(crate) write_bytes: u64,
    /// Bytes to be written to the device, including memory maps.
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

    /// Returns reads and writes since `before`, without the cost of this measurement.
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

/// Returns the disk space of the files in `folder`, in bytes.
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

/// Returns the entries of `folder`.
#[expect(clippy::disallowed_methods, reason = "this looks at the files of other engines too")]
pub(crate) fn entries(folder: &Path) -> std::io::Result<fs::ReadDir> {
    fs::read_dir(folder)
}

/// Reads the file `path`, which may be a system file.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Returns the number after `name` at the start of a line.
pub(crate) fn field(text: &str, name: &str) -> Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("the system reports no number {name}").into())
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
