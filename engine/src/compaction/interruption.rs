//! Stops a merge early.

use crate::{Error, Result};

/// Entries and bytes of values between two checks: about 0.3 ms of a compaction.
const ENTRIES_MAX: u32 = 1024;
const BYTES_MAX: usize = 1 << 20;

/// Checks regularly whether a merge must stop.
#[derive(Debug)]
pub(crate) struct Interruption<S> {
    stops: S,
    entries: u32,
    bytes: usize,
}

impl<S: FnMut() -> bool> Interruption<S> {
    /// Stops the merge when `stops` returns `true`.
    pub(crate) fn new(stops: S) -> Self {
        Self { stops, entries: 0, bytes: 0 }
    }

    /// Counts an entry with a value of so many bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the merge must stop. The caller replaces it if there is another reason
    /// than a store that is being closed.
    #[inline]
    pub(crate) fn check(&mut self, value_bytes: usize) -> Result<()> {
        self.entries += 1;
        self.bytes += value_bytes;
        if self.entries >= ENTRIES_MAX || self.bytes >= BYTES_MAX {
            (self.entries, self.bytes) = (0, 0);
            if (self.stops)() {
                return Err(Error::Closed);
            }
        }
        Ok(())
    }
}
