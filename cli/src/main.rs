//! `sieve`: the command line of SieveDB.
//!
//! Ends with 0 if all went well, 1 if something failed or a key is not there, 2 if the command
//! line makes no sense.

mod args;
mod bench;
mod commands;
mod error;
mod text;

use std::{
    error::Error as _,
    io::{self, BufWriter, Write as _},
    process::ExitCode,
};

use clap::Parser as _;

use crate::{args::Args, error::Error};

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
            ExitCode::from(if matches!(error, Error::BadText { .. }) { 2 } else { 1 })
        }
    }
}

/// Prints an error with its causes.
fn report(error: &Error) {
    eprintln!("sieve: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  because: {error}");
        cause = error.source();
    }
}
