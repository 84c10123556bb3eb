//! `sieve`: the command line of SieveDB.
//!
//! Ends as `grep` and `diff` do:
//!
//! | code | meaning                                                                                   |
//! |------|-------------------------------------------------------------------------------------------|
//! | 0    | all went well                                                                             |
//! | 1    | the answer is no: `get` found no key, `verify` a problem, `bench` a result that is wrong  |
//! | 2    | there is no answer: something failed, or the command line makes no sense                  |
//! | 130  | interrupted by Ctrl-C: a long command prints how far it came                              |

mod args;
mod bench;
mod commands;
mod error;
mod interrupt;
mod messages;
mod text;

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
        // Whoever reads the output has seen enough: `sieve scan ... | head`.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // What was said before the failure still belongs to the output.
            drop(out);
            if !matches!(error, Error::KeyNotFound) {
                report(&error);
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// Prints an error with its causes, and what can be done.
fn report(error: &Error) {
    let mut text = format!("sieve: {error}\n");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!("  because: {}\n", message(error));
        cause = error.source();
    }
    if let Some(advice) = error.advice() {
        text += &format!("  to do: {advice}\n");
    }
    // Where nobody can read it, the code still tells.
    let _ = io::stderr().write_all(text.as_bytes());
}
