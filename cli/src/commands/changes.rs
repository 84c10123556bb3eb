//! `sieve changes`.

use std::{
    io::Write,
    path::PathBuf,
    sync::atomic::Ordering,
    thread,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::{Value, json};
use sievedb::{
    ChangeBatch, Changes, Db,
    changes::{Change, ChangeKind},
};

use super::{Access, open_store};
use crate::{
    error::{Error, Result},
    interrupt,
    text::{Notation, escape},
};

/// Interval between two refreshes of a followed store.
const INTERVAL: Duration = Duration::from_millis(200);

/// Prints the committed changes that the store retains, in order, one per line.
///
/// A line has the sequence number, the keyspace, the kind, and the fields of the kind, separated by
/// tabs. `insert` has the key, the value and, if it expires, the Unix time in milliseconds. `merge`
/// has the key and the operand, and `remove` the key. `remove_range` has the start and, if it is
/// bounded, the exclusive end. Other kinds have no fields: `ingest` does not list its entries.
///
/// A keyspace without a known name is printed as `#` and its number, and the first `#` of a name as
/// `\x23`.
///
/// Requires a store opened with `Options::retain_changes`. Exits with 2 if the store retains no
/// changes, or has dropped some after N.
///
/// With `--follow`, or while a process has the store open for writing, also prints writes that are
/// not synced yet. A power cut or a failed sync can undo them, and reuse their sequence numbers:
/// rebuild copies of the data then.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
    #[command(flatten)]
    notation: Notation,
    /// Print changes after this sequence number [default: all retained changes].
    #[arg(long, value_name = "N")]
    since: Option<u64>,
    /// Print each batch as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Continue until Ctrl-C, which exits with 130 and prints the N to continue with.
    #[arg(long)]
    follow: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        if !self.follow {
            let db = open_store(&self.store, Access::Beside)?;
            return self.print(&mut changes_after(&db, self.since)?, || false, out);
        }
        let (mut since, interrupted) = (self.since, interrupt::flag());
        let db = open_store(&self.store, Access::Follow)?;
        // Kept across refreshes: a new stream would read the newest segment from its start.
        let mut changes = None;
        let is_interrupted = || interrupted.load(Ordering::Acquire);
        while !is_interrupted() {
            db.refresh()?;
            let current = match &mut changes {
                Some(current) => current,
                None => changes.insert(changes_after(&db, since)?),
            };
            let printed = self.print(current, is_interrupted, out);
            since = Some(Changes::position(current));
            match printed {
                // The next refresh shows where the changes continue, or that they are lost.
                Err(Error::Store(sievedb::Error::FilesGone { .. })) => changes = None,
                printed => printed?,
            }
            out.flush()?;
            thread::sleep(INTERVAL);
        }
        let done = since.map_or_else(
            || "printed no changes".to_owned(),
            |since| format!("printed changes up to {since}; continue with --since {since}"),
        );
        Err(Error::Interrupted { done })
    }

    /// Prints the next changes, until `is_ended` returns `true`.
    fn print(
        &self,
        changes: &mut Changes,
        is_ended: impl Fn() -> bool,
        out: &mut dyn Write,
    ) -> Result<()> {
        while !is_ended()
            && let Some(batch) = changes.next()
        {
            let batch = batch?;
            if self.json {
                writeln!(out, "{}", self.json_of(&batch))?;
            } else {
                batch.changes().iter().try_for_each(|change| self.line(change, out))?;
            }
        }
        Ok(())
    }

    fn line(&self, change: &Change, out: &mut dyn Write) -> Result<()> {
        let (kind, fields) = self.fields(&change.kind);
        let keyspace = keyspace_text(change.keyspace, change.keyspace_name());
        write!(out, "{}\t{keyspace}\t{kind}", change.sequence)?;
        fields.iter().try_for_each(|(_, text)| write!(out, "\t{text}"))?;
        Ok(writeln!(out)?)
    }

    fn json_of(&self, batch: &ChangeBatch) -> Value {
        let change = |change: &Change| {
            let (kind, fields) = self.fields(&change.kind);
            let mut json = json!({
                "sequence": change.sequence,
                "keyspace": change.keyspace,
                "name": change.keyspace_name(),
                "kind": kind,
            });
            for (name, text) in fields {
                json[name] = text.into();
            }
            json
        };
        let changes: Vec<_> = batch.changes().iter().map(change).collect();
        json!({
            "first": batch.first_sequence(),
            "last": batch.last_sequence(),
            "changes": changes,
        })
    }

    /// Returns the name of a kind, and its fields as text, by name.
    fn fields(&self, kind: &ChangeKind) -> (&'static str, Vec<(&'static str, String)>) {
        let bytes = |bytes: &[u8]| self.notation.write(bytes);
        match kind {
            ChangeKind::Insert { key, value, expires_at } => {
                let mut fields = vec![("key", bytes(key)), ("value", bytes(value))];
                let since = expires_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                fields.extend(since.map(|time| ("expires_ms", time.as_millis().to_string())));
                ("insert", fields)
            }
            ChangeKind::Remove { key } => ("remove", vec![("key", bytes(key))]),
            ChangeKind::Merge { key, operand } => {
                ("merge", vec![("key", bytes(key)), ("operand", bytes(operand))])
            }
            ChangeKind::RemoveRange { start, end } => {
                let mut fields = vec![("start", bytes(start))];
                fields.extend(end.as_ref().map(|end| ("end", bytes(end))));
                ("remove_range", fields)
            }
            ChangeKind::Clear => ("clear", Vec::new()),
            ChangeKind::Ingest => ("ingest", Vec::new()),
            ChangeKind::CreateKeyspace { .. } => ("create_keyspace", Vec::new()),
            ChangeKind::DropKeyspace => ("drop_keyspace", Vec::new()),
            ChangeKind::RenameKeyspace { .. } => ("rename_keyspace", Vec::new()),
            _ => ("unknown", Vec::new()),
        }
    }
}

/// Returns the name of a keyspace with the escapes of keys, or else its number.
fn keyspace_text(id: u64, name: Option<&str>) -> String {
    let Some(name) = name else { return format!("#{id}") };
    match name.strip_prefix('#') {
        Some(rest) => format!(r"\x23{}", escape(rest.as_bytes())),
        None => escape(name.as_bytes()),
    }
}

/// Returns the changes after `since`, or all retained ones.
fn changes_after(db: &Db, since: Option<u64>) -> sievedb::Result<Changes> {
    let oldest = || db.stats().changes_kept_after.unwrap_or(0);
    db.changes(since.unwrap_or_else(oldest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::read_name;

    #[test]
    fn names_differ_from_numbers() {
        assert_eq!(keyspace_text(7, None), "#7");
        for name in ["7", "#7", "##", "a\tb", "ä#"] {
            let text = keyspace_text(7, Some(name));
            assert!(!text.starts_with('#'), "{text}");
            assert_eq!(read_name(&text).as_deref(), Ok(name));
        }
    }
}
