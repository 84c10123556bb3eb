//! `sieve verify`.

use std::{
    io::Write,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use sievedb::{VerifyProblemKind, VerifyReport, text::bytes};

use super::options;
use crate::{
    bench::progress,
    error::{Error, Result},
    interrupt,
    text::counted,
};

/// Verifies every byte of a store, and lists all problems.
///
/// Exits with 1 if there are problems, even if no data is affected.
///
/// Checks the checksum of each file and block, the order, bounds and counts of each table, and the
/// log. Probes each filter for every key of its table. Writes nothing and needs only read
/// permission. No process may have the store open for writing. Also works if the store cannot be
/// opened.
///
/// After a crash, the log or manifest may end with an incomplete record. It is only noted, with
/// exit code 0. The next open for writing truncates it. Damage to the last record looks the same.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let bar = progress::bar(0, "bytes", "verifying tables");
        let read = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        let so_far = Arc::clone(&read);
        interrupt::exit_with(move || {
            let [done, all, problems] = [0, 1, 2].map(|at: usize| so_far[at].load(Relaxed));
            let problems = counted(problems, ["problem", "problems"]);
            format!("{} of {} verified, {problems} so far", bytes(done), bytes(all))
        });
        let report = options().verify(&self.store, |progress| {
            let now = [progress.bytes_done, progress.bytes_all, progress.problems];
            read.iter().zip(now).for_each(|(read, now)| read.store(now, Relaxed));
            bar.set_length(progress.bytes_all);
            bar.set_position(progress.bytes_done);
        })?;
        bar.finish_and_clear();
        // A closed pipe does not hide problems.
        let written = writeln!(out, "{report}");
        match report.problems.len() {
            0 => Ok(written?),
            _ => Err(self.problems(&report)),
        }
    }

    /// Summarises the problems of `report`, with what to do about each kind.
    fn problems(&self, report: &VerifyReport) -> Error {
        use VerifyProblemKind::{Damaged, FilterUnusable, FilterWrong};
        let store = self.store.display();
        let count = |kind| report.problems.iter().filter(|it| it.kind == kind).count() as u64;
        let [damaged, wrong, unusable] = [Damaged, FilterWrong, FilterUnusable].map(count);
        let all = report.problems.len() as u64;
        let problems = counted(all, ["problem", "problems"]);
        let mut advice = Vec::new();
        if damaged > 0 {
            advice.push(format!(
                "restore a backup, or copy what can be read into a new store with `sieve repair {store} --into NEW`"
            ));
        }
        if wrong > 0 {
            let filters = counted(wrong, ["filter hides keys", "filters hide keys"]);
            advice.push(format!(
                "{filters} from lookups; `sieve repair {store} --into NEW` copies all keys into a new store"
            ));
        }
        // A repair builds new filters.
        if unusable > 0 && damaged == 0 {
            advice.push(format!(
                "`sieve compact {store}` rebuilds damaged filters from their tables; a program that opens the \
                 store for writing does so in the background"
            ));
        }
        if damaged + wrong + unusable < all {
            let unread = "files that cannot be read may still be intact";
            advice.push(format!("{unread}: fix the cause listed above, then verify again"));
        }
        let summary = if report.without_manifest && damaged > 0 {
            "the manifest is missing or damaged: tables and log were not verified".to_owned()
        } else if unusable == all {
            let nouns = ["filter that cannot be used", "filters that cannot be used"];
            let filters = counted(all, nouns);
            format!("the store has {problems}, listed above: {filters}; no data is affected")
        } else {
            format!("the store has {problems}, listed above")
        };
        Error::Problems { summary, advice: advice.join("; ") }
    }
}
