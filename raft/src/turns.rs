//! Turns of other tasks, between calls that block the thread.

use std::{future::poll_fn, task::Poll};

/// Calls until the next turn of other tasks. Tokio runs the task that was notified last on the same
/// thread only: one that sends entries to another node would wait for all of these syncs.
const CALLS: u32 = 8;

/// Lets other tasks of the thread run after some of the calls that block it. After all of them
/// would cost more: such a turn may wake up another thread.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    calls: u32,
}

impl Turns {
    /// Counts a call. Lets other tasks run after every eighth one.
    pub(crate) async fn after_call(&mut self) {
        self.calls += 1;
        if self.calls < CALLS {
            return;
        }
        self.calls = 0;
        let mut has_waited = false;
        poll_fn(|context| {
            if has_waited {
                return Poll::Ready(());
            }
            has_waited = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}
