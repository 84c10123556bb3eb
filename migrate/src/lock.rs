//! The lock of an open database.

use std::path::Path;

use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::{
    error::{Error, Result},
    file::File,
};

/// File that RocksDB locks while a database is open.
const LOCK: &str = "LOCK";

/// Returns an error if another process has the database open.
pub(crate) fn check(directory: &Path) -> Result<()> {
    let path = directory.join(LOCK);
    let file = match File::open(path.as_path()) {
        // A copy of a database may lack the file.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(());
        }
        file => file?,
    };
    let holder = fcntl_getlk(file.handle(), &Flock::from(FlockType::WriteLock));
    match holder.map_err(|error| Error::io("query the lock of", &path, error.into()))? {
        None => Ok(()),
        Some(holder) => {
            let process = holder.pid.map(|id| id.as_raw_nonzero().get().unsigned_abs());
            Err(Error::Locked { path: directory.to_owned(), process })
        }
    }
}
