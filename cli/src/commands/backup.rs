//! `sieve backup`.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use sievedb::{Backup, BackupSet, Pruned, ReplicaStats, RestoreOptions, Retention, text::bytes};

use super::{Access, check_content, open_store, options};
use crate::{
    error::{Error, Result},
    interrupt,
    text::{counted, read_name},
    time::UnixTime,
};

/// Creates, lists, verifies, prunes and restores backups, and keeps replicas of them.
///
/// A backup set is a directory that has the content of each file once. So a backup copies only what
/// is new since an earlier one. A checkpoint or restored store counts as the same store: use a new
/// set for it.
///
/// Backups of several stores can share a set. Then pass `--number` to `restore` and `replica`: by
/// default, they use the store with the newest backup.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Adds a backup of a store that no process has open for writing.
    ///
    /// After an interruption, run it again: it skips what was copied.
    Create {
        /// Directory of the store.
        store: PathBuf,
        /// Directory of the backup set, created if missing.
        set: PathBuf,
    },
    /// Prints a line for each backup, with tabs: number, Unix time, sequence number, files, bytes,
    /// the sequence number up to which the later log is archived, and the id of the store. Omits
    /// backups with a damaged record: `sieve backup verify` reports them.
    List {
        /// Directory of the backup set.
        set: PathBuf,
    },
    /// Reads every file of every backup, and lists all problems. Exits with 1 if there are any.
    Verify {
        /// Directory of the backup set.
        set: PathBuf,
    },
    /// Removes backups, and the files that no other backup needs. Keeps the newest of each store.
    ///
    /// Requires a rule. The rules count the backups of each store, in UTC. Weeks begin on Monday. A
    /// backup is kept if any of the rules keeps it, or if its record is damaged.
    ///
    /// A damaged record keeps all files of the set, and the command exits with 1. Other backups are
    /// removed from the list all the same. Delete the record, unless it is the newest.
    #[command(group(
        clap::ArgGroup::new("rules")
            .args(["last", "daily", "weekly", "monthly"])
            .required(true)
            .multiple(true)
    ))]
    Prune {
        /// Directory of the backup set.
        set: PathBuf,
        /// Keep the last N backups.
        #[arg(long, value_name = "N", default_value_t = 0)]
        last: usize,
        /// Keep the newest backup of each of the last N days that have one.
        #[arg(long, value_name = "N", default_value_t = 0)]
        daily: usize,
        /// The same for weeks.
        #[arg(long, value_name = "N", default_value_t = 0)]
        weekly: usize,
        /// The same for months.
        #[arg(long, value_name = "N", default_value_t = 0)]
        monthly: usize,
    },
    /// Writes a backup into a new store, with the archived log after it.
    ///
    /// A program archives the log while it has the store open: `BackupSet::archive`.
    Restore {
        /// Directory of the backup set.
        set: PathBuf,
        /// Directory of the new store, missing or empty.
        dest: PathBuf,
        /// Number of the backup, as printed by `sieve backup list`.
        ///
        /// Without `--to-sequence` or `--to-time`, the log after it is not restored. Default: the
        /// newest backup that is not after the requested point, of the store that has the newest
        /// backup of the set.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        number: Option<u64>,
        /// Restore the last batch at or before this sequence number.
        #[arg(long, value_name = "N", conflicts_with = "to_time")]
        to_sequence: Option<u64>,
        /// Restore up to this time of the store clock, in Unix seconds.
        ///
        /// Writes of up to a second before it, or of the interval of the archive, may be missing.
        /// Values that have expired since are absent.
        #[arg(long, value_name = "SECONDS")]
        to_time: Option<UnixTime>,
        /// Restore only this keyspace. Can be repeated.
        #[arg(long, value_name = "NAME", value_parser = read_name)]
        keyspace: Vec<String>,
    },
    /// Writes a backup into a replica, which later runs move to newer backups.
    ///
    /// After an interruption, run it again: it skips what was copied. Until it succeeds, other
    /// commands refuse DEST. A store with new writes is no longer a replica.
    Replica {
        /// Directory of the backup set.
        set: PathBuf,
        /// Directory of the replica, missing or empty for a new one.
        dest: PathBuf,
        /// Move to the newest backup of the same store, with the archived log after it. Copies
        /// only new files.
        #[arg(long)]
        refresh: bool,
        /// Number of the backup of a new replica. Default: the newest backup of the set, of any
        /// store, with its archived log.
        #[arg(long, value_name = "N", conflicts_with = "refresh",
              value_parser = clap::value_parser!(u64).range(1..))]
        number: Option<u64>,
        /// Copy only this keyspace. Can be repeated. Repeat it with `--refresh`.
        #[arg(long, value_name = "NAME", value_parser = read_name)]
        keyspace: Vec<String>,
        /// Number of files that are copied at the same time, from 1 to 64.
        #[arg(long, value_name = "N", default_value_t = 4,
              value_parser = clap::value_parser!(u8).range(1..=64))]
        threads: u8,
    },
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        self.run_on(out).map_err(|error| match error {
            Error::Store(source @ sievedb::Error::Corrupt { .. }) => self.damage(source),
            error => error,
        })
    }

    /// Returns the error of a damaged file of the set or of the store.
    fn damage(&self, source: sievedb::Error) -> Error {
        let (Self::Create { set, .. }
        | Self::List { set }
        | Self::Verify { set }
        | Self::Prune { set, .. }
        | Self::Restore { set, .. }
        | Self::Replica { set, .. }) = self;
        match &source {
            sievedb::Error::Corrupt { path, .. } if path.starts_with(set) => {
                Error::InSet { set: set.clone(), source }
            }
            _ => source.into(),
        }
    }

    fn run_on(&self, out: &mut dyn Write) -> Result<()> {
        match self {
            Self::Create { store, set } => {
                let db = open_store(store, Access::Read)?;
                interrupt::exit_with(|| "no backup was added; run it again to continue".to_owned());
                let backup = backup_set(set).create(&db)?;
                let (number, sequence) = (backup.number, backup.sequence);
                let (all, added) = (bytes(backup.bytes), bytes(backup.bytes_added));
                writeln!(
                    out,
                    "backup {number}: {all}, {added} new, up to sequence number {sequence}"
                )?;
            }
            Self::List { set } => {
                for backup in backup_set(set).list()? {
                    let time = backup.time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                    let (number, sequence) = (backup.number, backup.sequence);
                    let Backup { files, bytes, archived_to, store, .. } = backup;
                    write!(out, "{number}\t{time}\t{sequence}\t{files}\t{bytes}")?;
                    writeln!(out, "\t{archived_to}\t{store:032x}")?;
                }
            }
            Self::Verify { set } => {
                let report = backup_set(set).verify()?;
                let written = writeln!(out, "{report}");
                let count = report.problems.len() as u64;
                if count > 0 {
                    let problems = counted(count, ["problem", "problems"]);
                    let summary = format!("the backup set has {problems}, listed above");
                    let advice = "restore another backup, or create one".to_owned();
                    return Err(Error::Problems { summary, advice });
                }
                written?;
            }
            &Self::Prune { ref set, last, daily, weekly, monthly } => {
                let kept = Retention::new().last(last).daily(daily).weekly(weekly).monthly(monthly);
                let Pruned { removed, damaged, .. } = backup_set(set).prune(&kept)?;
                let count = removed.len() as u64;
                let written = writeln!(out, "{} removed", counted(count, ["backup", "backups"]));
                if let Some(number) = damaged.first() {
                    let summary = format!("no files were removed: record {number} is damaged");
                    let record = set.join(format!("backups/{number:06}"));
                    let advice = format!("delete {}, unless it is the newest", record.display());
                    return Err(Error::Problems { summary, advice });
                }
                written?;
            }
            Self::Restore { set, dest, number, to_sequence, to_time, keyspace } => {
                check_content(dest)?;
                let place = dest.display().to_string();
                interrupt::exit_with(move || {
                    format!("no store was written; delete {place} if this command created it")
                });
                let mut options = RestoreOptions::new();
                if let &Some(number) = number {
                    options = options.backup(number);
                }
                if let &Some(sequence) = to_sequence {
                    options = options.to(sequence);
                }
                if let &Some(UnixTime(time)) = to_time {
                    options = options.to(time);
                }
                if !keyspace.is_empty() {
                    options = options.keyspaces(keyspace);
                }
                let backup = backup_set(set).restore_with(&options, dest)?;
                let Backup { number, sequence, .. } = backup;
                writeln!(out, "backup {number}: restored up to sequence number {sequence}")?;
            }
            &Self::Replica { ref set, ref dest, refresh, number, ref keyspace, threads } => {
                check_content(dest)?;
                let place = dest.display().to_string();
                interrupt::exit_with(move || {
                    format!("files are missing in {place}; run it again to continue")
                });
                let mut select = RestoreOptions::new().fetch_threads(threads.into());
                if let Some(number) = number {
                    select = select.backup(number);
                }
                if !keyspace.is_empty() {
                    select = select.keyspaces(keyspace);
                }
                fetch(set, dest, (&select, number), refresh, out)?;
            }
        }
        Ok(())
    }
}

/// Fetches all files of a replica, which must be of the backup `wanted`. `refreshes`: moves it to
/// the newest backup first.
fn fetch(
    set: &Path,
    dest: &Path,
    (select, wanted): (&RestoreOptions, Option<u64>),
    refreshes: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let replica = backup_set(set).open_replica(select, &options(), dest)?;
    let (before, is_newer) = (replica.stats().backup, refreshes && replica.refresh()?);
    let no_replica = || sievedb::Error::NoReplica { path: dest.to_owned() };
    let number = replica.stats().backup.ok_or_else(no_replica)?;
    if wanted.is_some_and(|wanted| wanted != number) {
        let (path, name) = (dest.to_owned(), "REPLICA".to_owned());
        return Err(sievedb::Error::DirectoryNotEmpty { path, name }.into());
    }
    while !replica.wait(Duration::from_millis(100))? {
        if let Some(error) = replica.stats().error {
            return Err(error.into());
        }
    }
    let ReplicaStats { files_fetched, bytes_fetched, .. } = replica.stats();
    let (files, bytes) = (counted(files_fetched, ["file", "files"]), bytes(bytes_fetched));
    match refreshes && !is_newer && before == Some(number) && files_fetched == 0 {
        true => writeln!(out, "backup {number}: there is no newer one")?,
        false => writeln!(out, "backup {number}: {files} copied, {bytes}")?,
    }
    Ok(())
}

/// Returns the set in the directory `path`, with the keys of the key file.
fn backup_set(path: &Path) -> BackupSet {
    #[cfg(feature = "encryption")]
    return crate::keys::for_set(BackupSet::new(path));
    #[cfg(not(feature = "encryption"))]
    BackupSet::new(path)
}
