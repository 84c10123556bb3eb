//! What the operating system counts of this process.

use std::fs;

/// Bytes that the process had fetched from devices, page faults and read-ahead included; `None`
/// where the system does not tell.
pub(crate) fn device_bytes() -> Option<u64> {
    field("/proc/self/io", "read_bytes:")
}

/// Memory of the process that no file stands behind, in bytes.
pub(crate) fn own_memory_bytes() -> Option<u64> {
    Some(field("/proc/self/status", "RssAnon:")? << 10)
}

/// Pages of mapped files that the process has in memory, in bytes.
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
    fn the_system_tells() {
        assert!(own_memory_bytes().is_some_and(|bytes| bytes > 4096));
        assert!(mapped_memory_bytes().is_some());
    }
}
