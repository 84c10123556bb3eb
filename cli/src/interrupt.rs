//! Ctrl-C in long commands.
//!
//! By default the signal ends the process at once.

use std::{
    io::{self, Write as _},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::error::EXIT_INTERRUPTED;

/// On Ctrl-C, prints the result of `done` on standard error and exits with 130.
///
/// `done` runs on another thread, concurrently with the command.
pub(crate) fn exit_with(mut done: impl FnMut() -> String + Send + 'static) {
    handle(move || {
        let _ = writeln!(io::stderr(), "sieve: interrupted: {}", done());
        process::exit(EXIT_INTERRUPTED.into());
    });
}

/// Calls `on_interrupt` on another thread on Ctrl-C; it must make the command end.
pub(crate) fn call(on_interrupt: impl FnMut() + Send + 'static) {
    handle(on_interrupt);
}

/// Returns a flag that Ctrl-C sets, for a command that polls it. A second Ctrl-C exits with 130 at
/// once: the command may be blocked by its output.
pub(crate) fn flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    handle(move || {
        if set.swap(true, Ordering::AcqRel) {
            process::exit(EXIT_INTERRUPTED.into());
        }
    });
    flag
}

fn handle(handler: impl FnMut() + Send + 'static) {
    // Without a handler the signal ends the process at once.
    let _ = ctrlc::set_handler(handler);
}
