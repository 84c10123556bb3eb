//! Reads a file in parts.

use std::path::Path;

use crate::{Error, Result, fs::ReadFile};

/// Length of a part, in bytes.
const PART_BYTES: u64 = 256 << 10;

/// Calls `on_part` with the first `bytes` bytes of the file `path`, part by part.
///
/// # Errors
///
/// [`Error::Io`], errors of `on_part`.
pub(crate) fn read_parts(
    file: &dyn ReadFile,
    path: &Path,
    bytes: u64,
    mut on_part: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; bytes.min(PART_BYTES) as usize];
    let mut offset = 0;
    while offset < bytes {
        let part = &mut buffer[..(bytes - offset).min(PART_BYTES) as usize];
        file.read_at(part, offset).map_err(|error| Error::io("read", path, error))?;
        on_part(part)?;
        offset += part.len() as u64;
    }
    Ok(())
}
