//! The change stream as a `Stream`.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::Stream;

use super::{ChangeBatch, Changes};
use crate::Result;

/// The change stream in asynchronous code, returned by [`Changes::into_stream`].
///
/// Waits for more batches after the newest one. Ends after an error, and when the store is closed:
/// see [`Changes`].
#[derive(Debug)]
#[must_use = "a stream does nothing until it is polled"]
pub struct ChangesStream(Changes);

impl Changes {
    /// Returns the changes as a `Stream`. The type is not an `Iterator`, because `StreamExt` has
    /// methods with the names of `Iterator`'s.
    ///
    /// ```
    /// use futures_util::StreamExt as _;
    /// use sievedb::{Db, Result};
    ///
    /// async fn print_all(db: &Db) -> Result<()> {
    ///     let mut changes = db.changes(0)?.into_stream();
    ///     while let Some(batch) = changes.next().await {
    ///         println!("{:?}", batch?.changes());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn into_stream(self) -> ChangesStream {
        ChangesStream(self)
    }
}

impl ChangesStream {
    /// Returns the sequence number from which [`Db::changes`](crate::Db::changes) resumes, as
    /// [`Changes::position`].
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.0.position()
    }
}

impl Stream for ChangesStream {
    type Item = Result<ChangeBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_next(context)
    }
}
