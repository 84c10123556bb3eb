//! `sieve reencrypt`.

use std::{io::Write, path::PathBuf};

use sievedb::text::bytes;

use super::{Access, open_store};
use crate::{error::Result, text::counted};

/// Encrypts all files again that do not use the last key of the key file.
///
/// Prints the ids of the keys that files of the store still use. After an error, run it again.
///
/// Backups, archived logs and checkpoints keep their keys: never destroy a key that one of them
/// needs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let done = open_store(&self.store, Access::Write)?.reencrypt()?;
        let ids: Vec<_> = done.key_ids.iter().map(u64::to_string).collect();
        writeln!(
            out,
            "{} rewritten ({}); keys in use: {}",
            counted(done.files_rewritten, ["file", "files"]),
            bytes(done.bytes_rewritten),
            ids.join(", ")
        )?;
        Ok(())
    }
}
