//! The error of closing a store.

use std::{error, fmt};

use crate::{Db, Error};

/// The error of [`Db::close`], with the handle if the store is still open.
///
/// `?` converts it into an [`Error`] and drops the handle. In a `Box<dyn Error>` the handle lives
/// until the box is dropped, and keeps the store open and locked.
#[derive(Debug)]
pub struct CloseError(Box<Parts>);

#[derive(Debug)]
struct Parts {
    error: Error,
    db: Option<Db>,
}

impl CloseError {
    pub(crate) fn new(error: Error, db: Option<Db>) -> Self {
        Self(Box::new(Parts { error, db }))
    }

    /// Returns the error.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.error
    }

    /// Returns the handle, usable as before. `None` if the store is closed and only its last writes
    /// failed.
    #[must_use]
    pub fn into_db(self) -> Option<Db> {
        self.0.db
    }
}

impl From<CloseError> for Error {
    fn from(error: CloseError) -> Self {
        error.0.error
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.error.fmt(f)
    }
}

impl error::Error for CloseError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.error.source()
    }
}
