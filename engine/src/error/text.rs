//! Messages of errors: what happened, to which file or key, then what to do.

use std::{fmt, io};

use sievedb_format::Corruption;

use super::{Error, LOCK};
use crate::text;

/// The end of each message about damage.
const TO_DO_ABOUT_DAMAGE: &str = "run `sieve verify` to list all damage, then restore a backup or \
                                  copy what can be read with `sieve repair`";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the cause: `source()` returns it, and callers print both.
        match self {
            Self::Io { op, path, source } => {
                write!(f, "cannot {op} {}", path.display())?;
                match source.kind() {
                    io::ErrorKind::FileTooLarge if self.is_no_space() => write!(
                        f,
                        "; raise the limit of file lengths (`ulimit -f`) of the process, then try \
                         again"
                    ),
                    _ if self.is_no_space() => {
                        write!(
                            f,
                            "; free space on this file system or raise the quota, then try again"
                        )
                    }
                    io::ErrorKind::PermissionDenied if *op == LOCK => write!(
                        f,
                        "; give this user read and write permission for the directory and its \
                         files, or read permission and open the store with Options::read_only"
                    ),
                    io::ErrorKind::PermissionDenied => {
                        write!(f, "; give this user permission for the file and its directory")
                    }
                    _ => Ok(()),
                }
            }
            // The error is about the file as a whole.
            Self::Corrupt { path, offset: 0, source: Corruption::Missing { .. } } => {
                write!(f, "{} cannot be used; {TO_DO_ABOUT_DAMAGE}", path.display())
            }
            Self::Corrupt { path, offset, .. } => {
                let path = path.display();
                write!(f, "{path} is corrupt near byte {offset}; {TO_DO_ABOUT_DAMAGE}")
            }
            Self::NeedsFeature { path, keyspace, feature } => {
                if let Some(name) = keyspace {
                    write!(f, "the keyspace {name:?} in ")?;
                }
                let path = path.display();
                write!(
                    f,
                    "{path} needs the feature {feature}, which this build lacks; build sievedb \
                     with it"
                )
            }
            Self::NewerRelease { path, needs } => write!(
                f,
                "{} was written by a newer release: needs {needs}; open the store with that \
                 release",
                path.display()
            ),
            Self::Encrypted { path } => write!(
                f,
                "{} is encrypted; open the store with its keys (Options::encryption)",
                path.display()
            ),
            Self::NotEncrypted { path } => write!(
                f,
                "{} is not encrypted; open the store without keys, or copy its entries to a new \
                 store",
                path.display()
            ),
            Self::NoKey { path, key_id, .. } => write!(
                f,
                "{} needs the root key {key_id}, which the key provider did not return; add it there",
                path.display()
            ),
            Self::WrongKey { path, key_id } => write!(
                f,
                "{} was encrypted by another root key {key_id}; check the key provider",
                path.display()
            ),
            Self::ForeignDirectory { path, name } => write!(
                f,
                "not a store: {} contains {name:?}; use an empty directory",
                path.display()
            ),
            Self::DirectoryNotEmpty { path, name } => {
                write!(
                    f,
                    "{} is not empty: it contains {name:?}; use an empty directory",
                    path.display()
                )
            }
            Self::DirectoriesOverlap { from, to } => write!(
                f,
                "{} and {} must not contain one another; use a new directory elsewhere",
                from.display(),
                to.display()
            ),
            Self::NoBackup { path, number: 0 } => {
                write!(f, "there is no backup in {}; check the path", path.display())
            }
            Self::NoBackup { path, number } => {
                write!(f, "there is no backup {number} in {}; list the backups", path.display())
            }
            Self::ReaderFailed { key, .. } => write!(
                f,
                "cannot read the value for \"{}\" from its reader; nothing was written",
                key.escape_ascii()
            ),
            Self::KeysNotAscending { key } => write!(
                f,
                "the keys are not in ascending order at \"{}\"; sort them, without duplicates",
                key.escape_ascii()
            ),
            Self::NotIngestible { path, reason } => write!(
                f,
                "{} cannot be ingested: {reason}; write it with TableWriter",
                path.display()
            ),
            Self::IngestNotArchived { path, sequence } => write!(
                f,
                "the archived log in {} has an ingest at sequence number {sequence}, whose tables \
                 it lacks; restore a backup made after it, or a point before it",
                path.display()
            ),
            Self::NotArchived { path, at, archived_to } => write!(
                f,
                "{} cannot restore {at}: the log is archived to sequence number {archived_to}; \
                 choose a point between the first backup and there",
                path.display()
            ),
            Self::IncompleteReplica { path } => write!(
                f,
                "files of the replica in {} have not arrived; open it by BackupSet::open_replica \
                 until it is complete",
                path.display()
            ),
            Self::IncompleteRepair { path } => write!(
                f,
                "the repair that wrote {} did not end; remove the directory and repeat the repair",
                path.display()
            ),
            Self::NoReplica { path } => write!(
                f,
                "{} is not a replica, or was opened for writing; open a replica in another \
                 directory",
                path.display()
            ),
            Self::NoStore { path } => {
                write!(f, "there is no store in {}; check the path", path.display())
            }
            Self::NotADirectory { path } => {
                write!(f, "not a directory: {}, or one of its parents, is a file", path.display())
            }
            Self::Locked { path, process } => {
                write!(
                    f,
                    "{} is open in another process, or by a handle in this process",
                    path.display()
                )?;
                match process {
                    Some(id) if *id == std::process::id() => {
                        write!(f, " (LOCK names this process)")?;
                    }
                    Some(id) => {
                        write!(f, " (LOCK names process {id}, which may have ended)")?;
                    }
                    None => {}
                }
                write!(f, "; close it there first, or open it read-only everywhere")
            }
            Self::StoreExists { path } => write!(
                f,
                "{} already contains a store; use another directory, or do not set \
                 Options::create_new",
                path.display()
            ),
            Self::NoKeyspace { name } => write!(
                f,
                "the store has no keyspace {name:?}; list keyspaces with Db::keyspaces, or create \
                 one with Db::keyspace"
            ),
            Self::StillOpen { path, handles } => write!(
                f,
                "{} is still open: other handles exist ({handles}); drop them, or call \
                 Db::shutdown",
                path.display()
            ),
            Self::StillBusy { path } => write!(
                f,
                "{} is not closed: work in flight has not ended; call Db::shutdown again",
                path.display()
            ),
            Self::ReadOnly { cause } if matches!(**cause, Self::OpenedReadOnly { .. }) => {
                write!(f, "the store is open read-only")
            }
            Self::ReadOnly { .. } => {
                write!(f, "the store is read-only after an error; reopen it to recover")
            }
            Self::OpenedReadOnly { path } => {
                write!(f, "{} was opened with Options::read_only", path.display())
            }
            Self::FilesGone { path } => write!(
                f,
                "the writer of the store has deleted {}; refresh the follower and read again",
                path.display()
            ),
            Self::FollowerAhead { path, follower, store } => write!(
                f,
                "{} ends at sequence number {store}, before {follower}, which was shown already; \
                 open the follower again",
                path.display()
            ),
            Self::Following { path } => write!(
                f,
                "{} was opened with Options::follow; do this in the process that writes it",
                path.display()
            ),
            Self::KeyTooLong { bytes, bytes_max } => {
                write!(f, "a key of {bytes} bytes is too long: at most {bytes_max} are allowed")
            }
            Self::ValueTooLong { bytes, bytes_max } => {
                write!(f, "a value of {bytes} bytes is too long: at most {bytes_max} are allowed")
            }
            Self::WriteTooLarge { bytes, bytes_max } => {
                let (size, most) = (text::bytes(*bytes), text::bytes(*bytes_max));
                write!(
                    f,
                    "a write that takes {size} ({bytes} bytes) of memory is too large: at most \
                     {most} ({bytes_max}) are allowed, 3/4 of Options::memtable_bytes_max; split \
                     the batch, or raise Options::memory_budget"
                )
            }
            Self::FilterTooLarge { bytes, bytes_max } => write!(
                f,
                "a filter that takes {bytes} bytes of memory to build is too large: at most \
                 {bytes_max} are allowed; raise Options::memory_budget"
            ),
            Self::BudgetTooSmall { what, bytes, bytes_min, made_of } => {
                let (size, least) = (text::bytes(*bytes), text::bytes(*bytes_min));
                write!(
                    f,
                    "{what} of {size} ({bytes} bytes) is too small: at least {least} \
                     ({bytes_min}) are needed, {made_of}"
                )
            }
            Self::InvalidOption { name, allowed } => {
                write!(f, "the option {name} is invalid: {allowed}")
            }
            Self::InvalidKeyspaceName { name } => {
                write!(f, "{name:?} cannot name a keyspace: 1 to 255 bytes are allowed")
            }
            Self::KeyspaceExists { name } => write!(
                f,
                "the store already has a keyspace {name:?}; use another name, or drop that keyspace"
            ),
            Self::RequiredKeyspace { name } => {
                write!(f, "the keyspace {name:?} cannot be dropped or renamed: every store has it")
            }
            Self::KeyspaceDropped { name } => write!(f, "the keyspace {name:?} was dropped"),
            Self::ForeignKeyspace { name } => {
                write!(f, "the keyspace {name:?} belongs to another store")
            }
            Self::NotACounter { key, bytes } => write!(
                f,
                "the value of the key {} is not a counter: it has {bytes} bytes, not 8; use \
                 another key, or remove this one",
                text::key(key)
            ),
            Self::Conflict { keyspace, key } => write!(
                f,
                "another write changed the key {} of the keyspace {keyspace:?} after the \
                 transaction began; run the transaction again",
                text::key(key)
            ),
            Self::TransactionTooLarge { bytes, bytes_max } => write!(
                f,
                "a transaction that takes {} ({bytes} bytes) of memory is too large: at most {} \
                 ({bytes_max}) are allowed; split it, or raise TransactionOptions::bytes_max",
                text::bytes(*bytes),
                text::bytes(*bytes_max)
            ),
            Self::ReadOnlyTransaction => {
                write!(
                    f,
                    "the transaction is read-only; write in one without \
                     TransactionOptions::read_only"
                )
            }
            Self::NoSavepoint => {
                write!(
                    f,
                    "the savepoint was released, or is of another transaction; set a new savepoint"
                )
            }
            Self::UnknownMergeOperator { keyspace, operator } => write!(
                f,
                "the keyspace {keyspace:?} needs the merge operator {operator:?}, which is \
                 unknown; pass it to Options::merge_operator"
            ),
            Self::NoMergeOperator { keyspace } => write!(
                f,
                "the keyspace {keyspace:?} has no merge operator; set one with \
                 KeyspaceOptions::merge_operator"
            ),
            Self::MergeOperatorFixed { keyspace, operator } => write!(
                f,
                "the keyspace {keyspace:?} has the merge operator {operator:?}, which cannot be \
                 changed; copy the entries to a new keyspace"
            ),
            Self::MergeFailed { keyspace, operator, key, .. } => write!(
                f,
                "the merge operator {operator:?} failed for the key {} of the keyspace \
                 {keyspace:?}; fix the operator, or overwrite the key",
                text::key(key)
            ),
            Self::NotInHistory { keyspace, at, oldest: Some(oldest) } => write!(
                f,
                "{at} is not in the history of the keyspace {keyspace:?}, which begins at sequence \
                 number {oldest}; use a later point, up to the present"
            ),
            Self::NotInHistory { keyspace, at, oldest: None } => write!(
                f,
                "the keyspace {keyspace:?} has no history, so it cannot be read at {at}; set \
                 KeyspaceOptions::keep_history"
            ),
            Self::ChangesLost { since, oldest, newest } if since > newest => write!(
                f,
                "changes after {since} are in the future of the store, whose last sequence number \
                 is {newest} (changes after {oldest} are kept); rebuild the copy from a snapshot"
            ),
            Self::ChangesLost { since, oldest, .. } => write!(
                f,
                "changes after {since} were dropped, and those after {oldest} are kept; rebuild \
                 the copy from a snapshot, or raise Options::retain_changes"
            ),
            Self::ChangesNotRetained { path } => write!(
                f,
                "{} keeps no changes; open it with Options::retain_changes",
                path.display()
            ),
            Self::CompactionFilterFailed { keyspace, filter, key, reason } => write!(
                f,
                "the compaction filter {filter:?} failed for the key {} of the keyspace \
                 {keyspace:?}: {reason}; fix the filter, and open the store again",
                text::key(key)
            ),
            Self::ForkedChild { path } => write!(
                f,
                "{} was opened by the parent of this forked process; drop the inherited handles, \
                 and open the store after the parent has closed it",
                path.display()
            ),
            Self::WouldStall { reason, .. } => {
                write!(f, "the write would be delayed: {reason}; wait for room and try again")
            }
            Self::NotWritten { sequence, newest } => write!(
                f,
                "no write has the sequence number {sequence}, the newest is {newest}; wait for a \
                 sequence number that a commit returned"
            ),
            Self::SequenceNumbersExhausted => {
                write!(f, "no sequence numbers are left; copy the entries into a new store")
            }
            Self::WorkerPanicked => {
                write!(f, "a background thread or a write panicked; reopen the store")
            }
            Self::CompactionsPaused => {
                write!(f, "compactions are paused; drop the guard of the pause, then call again")
            }
            Self::Closed => write!(f, "the store is closed; open it again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn n16_messages_say_what_to_do() {
        let io = |op, kind: io::ErrorKind| Error::io(op, "/store/000007.log", kind.into());
        let locked = |process| Error::Locked { path: "/store".into(), process };
        let what = "segment of the log";
        let lost = Error::corrupt("/store/000007.log", 0, Corruption::Missing { what });
        let damaged = Error::corrupt("/store/000007.log", 64, Corruption::Missing { what });
        let name = "notes".to_owned();
        let panicked = Arc::new(Error::WorkerPanicked);
        let cases: [(Error, [&str; 2]); 12] = [
            (io("create", io::ErrorKind::StorageFull), ["cannot create /store", "; free space"]),
            (io("append to", io::ErrorKind::QuotaExceeded), ["000007.log", "raise the quota"]),
            (io(LOCK, io::ErrorKind::PermissionDenied), ["cannot lock", "Options::read_only"]),
            (io("open", io::ErrorKind::PermissionDenied), ["cannot open", "give this user"]),
            (lost, ["000007.log cannot be used; run `sieve verify`", "`sieve repair`"]),
            (damaged, ["000007.log is corrupt near byte 64; run", "restore a backup"]),
            (locked(None), ["/store is open", "; close it there first"]),
            (locked(Some(0)), ["LOCK names process 0", "; close it there first"]),
            (
                Error::DirectoryNotEmpty { path: "/new".into(), name: name.clone() },
                ["/new", "; use"],
            ),
            (Error::NoKeyspace { name }, ["\"notes\"", "; list keyspaces"]),
            (Error::ReadOnly { cause: panicked }, ["read-only", "; reopen it"]),
            (Error::Closed, ["closed", "; open it again"]),
        ];
        for (error, parts) in cases {
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
