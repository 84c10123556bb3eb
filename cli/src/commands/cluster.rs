//! `sieve cluster`.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::error::{Error, Result};

/// The program that runs.
const PROGRAM: &str = "sieve-cluster";

/// Runs a replicated store of three nodes over HTTP, for a trial.
///
/// Runs the program `sieve-cluster` beside `sieve`, or else the one in `PATH`, with the same
/// arguments: `sieve cluster start DIR`. In the repository of SieveDB,
/// `cargo install --path raft/cluster` installs it, and `raft/README.md` describes a trial: reads
/// and writes, nodes that are killed and restarted, and nodes that are added and removed.
/// The nodes do not encrypt their stores.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Arguments of `sieve-cluster`, such as `--help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Args {
    /// Replaces this process by the program.
    pub(crate) fn run(&self) -> Result<()> {
        #[cfg(feature = "encryption")]
        if crate::keys::are_loaded() {
            return Err(Error::NotEncrypted { name: PROGRAM });
        }
        let beside = env::current_exe().ok().map(|path| path.with_file_name(PROGRAM));
        let program =
            beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
        let source = Command::new(&program).args(&self.arguments).exec();
        Err(match source.kind() {
            io::ErrorKind::NotFound => Error::NoProgram { name: PROGRAM },
            _ => Error::Io { op: "run", path: Path::new(&program).to_owned(), source },
        })
    }
}
