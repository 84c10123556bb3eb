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
            None => keyspace.range(self.of_keys()),
        }
    }

    /// Returns the bounds as first and last key.
    pub(crate) fn of_keys(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let start = self.prefix.as_ref().or(self.from.as_ref());
        let end = self.prefix.as_ref().map_or_else(|| self.to.clone(), |prefix| after(prefix));
        (
            start.cloned().map_or(Bound::Unbounded, Bound::Included),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        )
    }
}

/// Returns the smallest key after all keys with this prefix, if there is one.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_an_end() {
        let cases: [(&[u8], Option<&[u8]>); 4] =
            [(b"", None), (b"a", Some(b"b")), (b"a\xff\xff", Some(b"b")), (b"\xff", None)];
        for (prefix, want) in cases {
            assert_eq!(after(prefix).as_deref(), want, "{prefix:?}");
        }
    }
}
