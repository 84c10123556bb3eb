//! The part of a keyspace that a command reads.

use std::ops::Bound;

use sievedb::{Keyspace, Range};

use crate::{error::Result, text::Notation};

/// Bounds of keys, as arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct BoundsArgs {
    /// First key, inclusive.
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// End key, exclusive.
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Only keys with this prefix.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
}

/// Bounds of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) from: Option<Vec<u8>>,
    pub(crate) to: Option<Vec<u8>>,
    pub(crate) prefix: Option<Vec<u8>>,
}

impl BoundsArgs {
    /// Decodes the keys.
    ///
    /// # Errors
    ///
    /// [`Error::BadText`](crate::error::Error::BadText).
    pub(crate) fn read(&self, notation: Notation) -> Result<Bounds> {
        let read =
            |text: &Option<String>| text.as_deref().map(|text| notation.read(text)).transpose();
        Ok(Bounds { from: read(&self.from)?, to: read(&self.to)?, prefix: read(&self.prefix)? })
    }
}

impl Bounds {
    /// Returns the entries within the bounds.
    pub(crate) fn entries(&self, keyspace: &Keyspace) -> Range {
        match &self.prefix {
            Some(prefix) => keyspace.prefix(prefix),
            None => keyspace.range((
                self.from.clone().map_or(Bound::Unbounded, Bound::Included),
                self.to.clone().map_or(Bound::Unbounded, Bound::Excluded),
            )),
        }
    }
}
