//! What the system knows of this process: its memory, its reads, the space its files take.

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
}

impl Memory {
    pub(crate) fn now() -> Result<Self> {
        let text = read("/proc/self/status")?;
        let bytes = |name| Ok::<_, crate::failure::Failure>(field(&text, name)? * 1024);
        Ok(Self {
            peak: bytes("VmHWM:")?,
            resident: bytes("VmRSS:")?,
            anonymous: bytes("RssAnon:")?,
        })
    }
}

/// Reads of this process since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Calls of `read` and its like. A page that a memory map brings in is none.
    pub(crate) calls: u64,
    /// Bytes that they returned.
    pub(crate) bytes: u64,
    /// Bytes that came from the device, through memory maps too.
    pub(crate) device_bytes: u64,
}

impl Reads {
    pub(crate) fn now() -> Result<Self> {
        let text = read("/proc/self/io")?;
        Ok(Self {
            calls: field(&text, "syscr:")?,
            bytes: field(&text, "rchar:")?,
            device_bytes: field(&text, "read_bytes:")?,
        })
    }

    /// What was read between `before` and now, without what it takes to ask.
    pub(crate) fn since(before: Self) -> Result<Self> {
        let now = Self::now()?;
        let again = Self::now()?;
        let less = |now: u64, before: u64, again: u64| {
            now.saturating_sub(before).saturating_sub(again.saturating_sub(now))
        };
        Ok(Self {
            calls: less(now.calls, before.calls, again.calls),
            bytes: less(now.bytes, before.bytes, again.bytes),
            device_bytes: less(now.device_bytes, before.device_bytes, again.device_bytes),
        })
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

#[expect(clippy::disallowed_methods, reason = "this looks at the files of other engines too")]
fn entries(folder: &Path) -> std::io::Result<fs::ReadDir> {
    fs::read_dir(folder)
}

/// What the system tells in the file `path`.
pub(crate) fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}").into())
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
    fn numbers_are_found_by_name() {
        let text = "VmPeak:\t 9 kB\nVmHWM:\t   12 kB\nName:\tx\n";
        assert_eq!(field(text, "VmHWM:").unwrap(), 12);
        assert!(field(text, "Name:").is_err());
        assert!(field(text, "VmRSS:").is_err());
    }

    #[test]
    fn asking_for_reads_does_not_count() {
        let before = Reads::now().unwrap();
        let reads = Reads::since(before).unwrap();
        assert!(reads.calls <= 2 && reads.bytes < 400, "{reads:?}");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes files")]
    fn memory_and_space_are_known() {
        let memory = Memory::now().unwrap();
        assert!(memory.anonymous <= memory.resident && memory.resident <= memory.peak);
        let folder = tempfile::tempdir().unwrap();
        let empty = space_bytes(folder.path()).unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        let file = folder.path().join("a/b");
        fs::write(file, [1; 10_000]).unwrap();
        assert!(space_bytes(folder.path()).unwrap() >= empty + 10_000);
    }
}
