//! `sieve verify`.

use std::{
    io::Write,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use sievedb::{Options, text::bytes};

use crate::{
    bench::progress,
    error::{Error, Result},
    interrupt,
    text::counted,
};

/// Looks at every byte of a store, and lists what is not as it should be; ends with 1 if anything is.
///
/// Checks each file and each block against its checksum, order, bounds and counts of each table,
/// the log, and asks each filter for every key of its table. Writes nothing, and needs only the right to
/// read. The store must not be open; one that cannot be opened any more is looked at all the same.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the store.
    store: PathBuf,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let bar = progress::bar(0, "bytes", "looking at tables");
        let read = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        let so_far = Arc::clone(&read);
        interrupt::exit_with(move || {
            let [done, all, problems] = [0, 1, 2].map(|at: usize| so_far[at].load(Relaxed));
            let problems = counted(problems, ["problem", "problems"]);
            format!("{} of {} verified, {problems} so far", bytes(done), bytes(all))
        });
        let report = Options::new().verify(&self.store, |progress| {
            let now = [progress.bytes_done, progress.bytes_all, progress.problems];
            read.iter().zip(now).for_each(|(read, now)| read.store(now, Relaxed));
            bar.set_length(progress.bytes_all);
            bar.set_position(progress.bytes_done);
        })?;
        bar.finish_and_clear();
        writeln!(out, "{report}")?;
        match report.problems.len() {
            0 => Ok(()),
            count => Err(Error::Problems { count }),
        }
    }
}
