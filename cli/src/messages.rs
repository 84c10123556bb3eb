//! Messages of the engine's errors in terms of the command line instead of the API.

use std::{error, io, path::Path};

use sievedb::{Corruption, Error};

/// Name of the engine's operation that locks a store.
const LOCK: &str = "lock";

/// Returns the message of an error or of a cause.
pub(crate) fn message(error: &(dyn error::Error + 'static)) -> String {
    error.downcast_ref().map_or_else(|| error.to_string(), store_message)
}

/// Returns the message of an engine error, without the advice about damage.
pub(crate) fn store_message(error: &Error) -> String {
    match error {
        Error::Io { op, path, source }
            if *op == LOCK && source.kind() == io::ErrorKind::PermissionDenied =>
        {
            format!(
                "cannot lock {}; give this user permission to read the file, and to write the \
                 directory and its files if the command writes",
                path.display()
            )
        }
        Error::Corrupt { path, offset: 0, source: Corruption::Missing { .. } } => {
            format!("{}{} cannot be used", kind_of(path), path.display())
        }
        Error::Corrupt { path, offset, .. } => {
            format!("{}{} is corrupt near byte {offset}", kind_of(path), path.display())
        }
        Error::Encrypted { path } => {
            format!("{} is encrypted; pass its keys with --key-file", path.display())
        }
        Error::NotEncrypted { path } => {
            format!("{} is not encrypted; omit --key-file and SIEVE_KEY_FILE", path.display())
        }
        Error::NoKey { path, key_id, .. } => {
            format!("{} needs the root key {key_id}; add it to the key file", path.display())
        }
        Error::WrongKey { path, key_id } => {
            let path = path.display();
            format!("{path} was encrypted by another root key {key_id}; check the key file")
        }
        Error::Locked { path, process } => {
            let holder =
                process.map(|id| format!(" (LOCK names process {id}, which may have ended)"));
            let holder = holder.unwrap_or_default();
            format!("{} is open in another process{holder}", path.display())
        }
        Error::FilesGone { path } => {
            let path = path.display();
            format!("the writer of the store has deleted {path} meanwhile; run the command again")
        }
        Error::FollowerAhead { path, .. } => {
            let path = path.display();
            format!("{path} was replaced by an older copy meanwhile; run the command again")
        }
        Error::Following { path } => format!(
            "another process writes {}; run the command again once it has closed the store",
            path.display()
        ),
        Error::NotInHistory { keyspace, oldest: None, .. } => {
            format!("the keyspace {keyspace:?} has no history; its program must keep one")
        }
        Error::ChangesLost { since, oldest, newest } if since <= newest => {
            format!("changes after {since} were dropped; those after {oldest} are kept")
        }
        Error::ChangesNotRetained { path } => {
            format!("{} keeps no changes; its program must retain them", path.display())
        }
        Error::NoKeyspace { name } => format!("the store has no keyspace {name:?}"),
        Error::NoMergeOperator { keyspace } => {
            format!("the keyspace {keyspace:?} has no merge operator")
        }
        Error::UnknownMergeOperator { keyspace, operator } => format!(
            "the keyspace {keyspace:?} needs the merge operator {operator:?}, which only the program \
             of the store has"
        ),
        Error::WriteTooLarge { bytes, .. } => {
            format!("the entry is too large: it needs {} of memory", sievedb::text::bytes(*bytes))
        }
        Error::IncompleteReplica { path } => {
            format!("files of the replica in {} have not arrived from its backups", path.display())
        }
        Error::IncompleteRepair { path } => format!(
            "the repair into {} did not end; delete the directory and repair again",
            path.display()
        ),
        Error::NoReplica { path } => format!(
            "{} is not a replica, or was opened for writing; use another directory",
            path.display()
        ),
        Error::StoreExists { path } => {
            format!("{} already contains a store; use another directory", path.display())
        }
        Error::OpenedReadOnly { path } => format!("{} was opened read-only", path.display()),
        Error::StillBusy { path } => {
            format!("{} is not closed: work in flight has not finished", path.display())
        }
        other => other.to_string(),
    }
}

/// Returns the kind of the store's file `path` with a space after it, or nothing if the name is
/// clear.
fn kind_of(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("sst") => "the table ",
        Some("log") => "the log segment ",
        Some("filter") => "the filter ",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sievedb::PointInTime;

    use super::*;

    fn errors() -> Vec<Error> {
        let path = || std::path::PathBuf::from("/store/000007.sst");
        let denied = || Arc::new(io::Error::from(io::ErrorKind::PermissionDenied));
        let name = || "users".to_owned();
        let source = || Corruption::Missing { what: "table" };
        let closed = || Arc::new(Error::Closed);
        let opened = || Arc::new(Error::OpenedReadOnly { path: path() });
        vec![
            Error::Io { op: LOCK, path: path(), source: denied() },
            Error::Io { op: "open", path: path(), source: denied() },
            Error::Corrupt { path: path(), offset: 0, source: source() },
            Error::Corrupt { path: path(), offset: 7, source: source() },
            Error::NeedsFeature { path: path(), keyspace: Some(name()), feature: "zstd" },
            Error::NewerRelease { path: path(), needs: name() },
            Error::ForeignDirectory { path: path(), name: name() },
            Error::DirectoryNotEmpty { path: path(), name: name() },
            Error::DirectoriesOverlap { from: path(), to: path() },
            Error::Encrypted { path: path() },
            Error::NotEncrypted { path: path() },
            Error::NoKey { path: path(), key_id: 7, source: Arc::new(io::Error::other("offline")) },
            Error::WrongKey { path: path(), key_id: 7 },
            Error::NoStore { path: path() },
            Error::IncompleteReplica { path: path() },
            Error::IncompleteRepair { path: path() },
            Error::NoReplica { path: path() },
            Error::NotADirectory { path: path() },
            Error::Locked { path: path(), process: None },
            Error::Locked { path: path(), process: Some(7) },
            Error::FilesGone { path: path() },
            Error::FollowerAhead { path: path(), follower: 9, store: 8 },
            Error::StoreExists { path: path() },
            Error::Following { path: path() },
            Error::NotInHistory { keyspace: name(), at: PointInTime::Sequence(7), oldest: None },
            Error::NotInHistory { keyspace: name(), at: PointInTime::Sequence(7), oldest: Some(8) },
            Error::ChangesLost { since: 7, oldest: 8, newest: 9 },
            Error::ChangesLost { since: 9, oldest: 7, newest: 8 },
            Error::ChangesNotRetained { path: path() },
            Error::NoKeyspace { name: name() },
            Error::NoMergeOperator { keyspace: name() },
            Error::UnknownMergeOperator { keyspace: name(), operator: name() },
            Error::StillBusy { path: path() },
            Error::ReadOnly { cause: closed() },
            Error::ReadOnly { cause: opened() },
            Error::OpenedReadOnly { path: path() },
            Error::KeyTooLong { bytes: 9, bytes_max: 8 },
            Error::ValueTooLong { bytes: 9, bytes_max: 8 },
            Error::WriteTooLarge { bytes: 9, bytes_max: 8 },
            Error::InvalidKeyspaceName { name: name() },
            Error::RequiredKeyspace { name: name() },
            Error::KeyspaceDropped { name: name() },
            Error::WorkerPanicked,
            Error::CompactionsPaused,
            Error::Closed,
        ]
    }

    #[test]
    fn n16_messages_do_not_name_the_api() {
        for error in errors() {
            let text = message(&error);
            assert!(!text.contains("::") && !text.contains("folder"), "{text}");
        }
    }
}
