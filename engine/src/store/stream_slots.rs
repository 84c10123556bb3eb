//! Limits the number of concurrent streams, and so their memory.
//!
//! A stream holds a slot while it reads, and none while it is installed. So it waits, with a slot,
//! only for its reader. A reader may write nested streams on the same thread. These take no slot,
//! because the outer stream could deadlock.

use std::cell::Cell;

use crate::{
    Result,
    sync::{Condvar, Mutex},
};
use std::time::Duration;

/// Memory of a stream, in bytes: buffers of its table and blob file, and the pieces in memory.
const STREAM_BYTES: u64 = 1 << 20;
/// Streams take at most this part of the memory budget, unless it has no room for two.
const STREAMS_IN_BUDGET: u64 = 16;
const STREAMS_MIN: u64 = 2;
const STREAMS_MAX: u64 = 64;
/// Time between two checks whether a wait must end.
const CHECK: Duration = Duration::from_millis(100);

thread_local! {
    /// Slots of this thread, of all stores: readers may also write to each other's stores.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// The slots of a store.
#[derive(Debug, Default)]
pub(super) struct StreamSlots {
    taken: Mutex<u64>,
    freed: Condvar,
}

/// A slot, until it is dropped.
#[derive(Debug)]
pub(super) struct StreamSlot<'a> {
    slots: &'a StreamSlots,
    is_nested: bool,
}

/// Returns the number of streams at a time in a budget of this many bytes.
fn streams_max(budget_bytes: u64) -> u64 {
    (budget_bytes / STREAMS_IN_BUDGET / STREAM_BYTES).clamp(STREAMS_MIN, STREAMS_MAX)
}

impl StreamSlots {
    /// Takes a slot, or waits for one while `check` returns no error.
    ///
    /// # Errors
    ///
    /// Those of `check`.
    pub(super) fn take(
        &self,
        budget_bytes: u64,
        check: impl Fn() -> Result<()>,
    ) -> Result<StreamSlot<'_>> {
        let is_nested = HELD.get() > 0;
        if !is_nested {
            let mut taken = self.taken.lock();
            while *taken >= streams_max(budget_bytes) {
                check()?;
                self.freed.wait_for(&mut taken, CHECK);
            }
            *taken += 1;
        }
        HELD.set(HELD.get() + 1);
        Ok(StreamSlot { slots: self, is_nested })
    }
}

impl Drop for StreamSlot<'_> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        if !self.is_nested {
            *self.slots.taken.lock() -= 1;
            self.slots.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_take_a_sixteenth_of_the_budget() {
        let cases = [(0, 2), (8, 2), (48, 3), (256, 16), (1 << 20, 64)];
        for (mib, want) in cases {
            assert_eq!(streams_max(mib << 20), want, "{mib} MiB");
        }
    }
}
