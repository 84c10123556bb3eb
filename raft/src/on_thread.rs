//! Runs long work on a separate thread, so that no worker thread of the runtime blocks.
//!
//! Uses a thread, not `spawn_blocking`, because openraft also runs on other runtimes than Tokio.

use std::{any::Any, thread};

use tokio::sync::oneshot;

use crate::{Error, Result};

/// Runs `work` on a new thread, and waits asynchronously for its result.
///
/// # Errors
///
/// [`Error::Thread`]; errors of `work`; [`Error::Panicked`]. openraft stops at an error, but may
/// wait forever for a task that has panicked.
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
            Err(panic) => Err(Error::Panicked(message(&*panic))),
            Ok(()) => unreachable!("a thread that does not panic sends its result"),
        },
    }
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
