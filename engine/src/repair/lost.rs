//! Distinguishes lost files from temporarily unreadable files.

use crate::{Error, Result, error::is_of_file};

/// Returns the error unless its subject is lost. A file is not lost if another release, another
/// build or another key can read it.
pub(super) fn check_lost(error: &Error) -> Result<()> {
    match error.clone().of_opening() {
        Error::Corrupt { .. } | Error::NotEncrypted { .. } => Ok(()),
        Error::Io { source, .. } if is_of_file(&source) => Ok(()),
        readable => Err(readable),
    }
}

/// Returns `None` if the subject of an error is lost.
pub(super) fn lost_as_none<T>(found: Result<T>) -> Result<Option<T>> {
    found.map(Some).or_else(|error| check_lost(&error).map(|()| None))
}
