//! Resource counters of this process.

use std::fs;

/// Returns the bytes read from devices, including page faults and read-ahead, if known.
pub(crate) fn device_bytes() -> Option<u64> {
    field("/proc/self/io", "read_bytes:")
}

/// Returns the resident anonymous memory in bytes, if known.
pub(crate) fn own_memory_bytes() -> Option<u64> {
    Some(field("/proc/self/status", "RssAnon:")? << 10)
}

/// Returns the resident memory of mapped files in bytes, if known.
pub(crate) fn mapped_memory_bytes() -> Option<u64> {
    Some(field("/proc/self/status", "RssFile:")? << 10)
}

fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_is_known_on_linux() {
        assert!(own_memory_bytes().is_some_and(|bytes| bytes > 4096));
        assert!(mapped_memory_bytes().is_some());
    }
}
