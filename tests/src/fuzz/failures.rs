//! Errors that injected failures cause.

use std::io::ErrorKind;

use sievedb::Error;
use sievedb_doubles::{Call, Failure};

/// Returns whether `error` reports one of `failures` or follows from one.
pub(super) fn follows_from(error: &Error, failures: &[Failure]) -> bool {
    match error {
        Error::Io { source, .. } => match source.raw_os_error() {
            Some(errno) => failures.iter().any(|failure| failure.raw_os_error == Some(errno)),
            // A creation that failed with effect is retried.
            None => {
                let created = |it: &Failure| it.call == Call::Create && it.carried_out;
                source.kind() == ErrorKind::AlreadyExists && failures.iter().any(created)
            }
        },
        Error::ReadOnly { cause } => follows_from(cause, failures),
        _ => false,
    }
}
