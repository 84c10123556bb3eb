//! Ctrl-C in commands that may take long.
//!
//! A command that has not called a function of this module ends at once, as every process does.

use std::{
    io::{self, Write as _},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::error::EXIT_INTERRUPTED;

/// Exits with 130 on Ctrl-C, after it has printed on standard error what `done` returns.
///
/// `done` runs on another thread, beside the command.
pub(crate) fn exit_with(mut done: impl FnMut() -> String + Send + 'static) {
    handle(move || {
        let _ = writeln!(io::stderr(), "sieve: interrupted: {}", done());
        process::exit(EXIT_INTERRUPTED.into());
    });
}

/// Calls `on_interrupt` on another thread on Ctrl-C, for a command that it makes end.
pub(crate) fn call(on_interrupt: impl FnMut() + Send + 'static) {
    handle(on_interrupt);
}

/// Returns a flag that Ctrl-C sets, for a command that ends by itself when it sees it.
pub(crate) fn flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    handle(move || set.store(true, Ordering::Release));
    flag
}

fn handle(handler: impl FnMut() + Send + 'static) {
    // Without a handler the signal ends the process, which is not worse than before.
    let _ = ctrlc::set_handler(handler);
}
