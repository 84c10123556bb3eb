//! `sieve`: the command line of SieveDB.
//!
//! Exit codes, as those of `grep` and `diff`:
//!
//! | code | meaning                                                               |
//! |------|-----------------------------------------------------------------------|
//! | 0    | success                                                               |
//! | 1    | `get`, `ttl`, `history`: absent key; `verify`, `upgrade`,             |
//! |      | `backup verify`, `backup prune`: problems; `scan`, `repair`: data     |
//! |      | skipped or lost; `migrate`: the copy differs; `bench`: wrong result   |
//! | 2    | the command failed, or its arguments are invalid                      |
//! | 130  | interrupted by Ctrl-C; a long command prints its progress             |

mod args;
mod bench;
mod commands;
mod error;
mod interrupt;
#[cfg(feature = "encryption")]
mod keys;
mod messages;
mod records;
mod text;
mod time;

use std::{
    error::Error as _,
    io::{self, BufWriter, Write as _},
    process::ExitCode,
};

use clap::Parser as _;

use crate::{args::Args, error::Error, messages::message};

fn main() -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    let result = Args::parse().run(&mut out).and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe: `sieve scan ... | head`.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Flushes the output before the error.
            drop(out);
            if !matches!(error, Error::KeyNotFound) {
                report(&error);
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// Prints an error on standard error, with its causes and what to do.
fn report(error: &Error) {
    let mut text = format!("sieve: {error}\n");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!("  caused by: {}\n", message(error));
        cause = error.source();
    }
    if let Some(advice) = error.advice() {
        text += &format!("  help: {advice}\n");
    }
    // If standard error is closed, the exit code still reports the failure.
    let _ = io::stderr().write_all(text.as_bytes());
}
