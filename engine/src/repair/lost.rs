//! Distinguishes lost files from temporarily unreadable files.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::{Error, Result};

/// Returns `true` if a retry would not help: the file is missing or too short, or the device cannot
/// read it. Other errors, such as too many open files, are unrelated to the file.
pub(super) fn is_of_file(error: &io::Error) -> bool {
    let codes = [
        Errno::IO,
        Errno::NXIO,
        Errno::BADMSG,
        // A lost sector, and a damaged file system.
        #[cfg(target_os = "linux")]
        Errno::NODATA,
        #[cfg(target_os = "linux")]
        Errno::UCLEAN,
    ];
    match error.raw_os_error() {
        Some(code) if codes.map(Errno::raw_os_error).contains(&code) => true,
        _ => matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData
        ),
    }
}

/// Returns the error unless its subject is lost. A file of a later release is not lost: that
/// release can read it.
pub(super) fn check_lost(error: &Error) -> Result<()> {
    match error.clone().of_opening() {
        Error::Io { source, .. } if !is_of_file(&source) => Err(error.clone()),
        newer @ Error::NewerRelease { .. } => Err(newer),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_the_file_itself_are_losses() {
        for code in [Errno::NOENT, Errno::IO, Errno::BADMSG] {
            assert!(is_of_file(&code.into()), "{code}");
        }
        for code in [Errno::MFILE, Errno::NFILE, Errno::ACCESS, Errno::PERM, Errno::NOMEM] {
            assert!(!is_of_file(&code.into()), "{code}");
        }
        assert!(is_of_file(&ErrorKind::UnexpectedEof.into()));
    }
}
