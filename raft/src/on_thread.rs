//! Runs long work on a separate thread, so that no worker thread of the runtime blocks.
//!
//! Uses a thread, not `spawn_blocking`, because openraft also runs on other runtimes than Tokio.

use std::{panic::resume_unwind, thread};

use tokio::sync::oneshot;

use crate::{Error, Result};

/// Runs `work` on a new thread, and waits asynchronously for its result.
pub(crate) async fn on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = oneshot::channel();
    // The task may be gone when the work ends.
    let run = move || drop(sender.send(work()));
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run).map_err(Error::Thread)?;
    match receiver.await {
        Ok(result) => result,
        Err(_) => match thread.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => unreachable!("a thread that does not panic sends its result"),
        },
    }
}
