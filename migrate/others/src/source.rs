//! A database of another engine.

use std::path::Path;

use clap::ValueEnum;

use crate::error::Result;

/// An engine whose databases can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// A directory of fjall 3. fjall recovers its journal when it opens it.
    #[cfg(feature = "fjall")]
    Fjall,
    /// A directory of LMDB.
    #[cfg(feature = "lmdb")]
    Lmdb,
    /// A file of redb 2.6 to 4.
    #[cfg(feature = "redb")]
    Redb,
    /// A directory of sled 0.34.
    #[cfg(feature = "sled")]
    Sled,
}

/// Receives the entries of a keyspace.
pub type Add<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// An open database.
pub trait Source {
    /// Returns the names of its keyspaces, tables or trees.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported): one cannot be copied.
    fn keyspaces(&self) -> Result<Vec<String>>;

    /// Passes all entries of a keyspace to `add`, in key order.
    ///
    /// # Errors
    ///
    /// Those of the engine, and those of `add`.
    fn entries(&self, name: &str, add: &mut Add<'_>) -> Result<()>;
}

/// Opens a database, which must exist.
///
/// # Errors
///
/// * [`Error::NotDatabase`](crate::Error::NotDatabase): the path has no database of this engine.
/// * [`Error::Source`](crate::Error::Source): the engine cannot open it, or another process has it
///   open.
pub fn open(engine: Engine, path: &Path) -> Result<Box<dyn Source>> {
    Ok(match engine {
        #[cfg(feature = "fjall")]
        Engine::Fjall => Box::new(crate::fjall::Fjall::open(path)?),
        #[cfg(feature = "lmdb")]
        Engine::Lmdb => Box::new(crate::lmdb::Lmdb::open(path)?),
        #[cfg(feature = "redb")]
        Engine::Redb => Box::new(crate::redb::Redb::open(path)?),
        #[cfg(feature = "sled")]
        Engine::Sled => Box::new(crate::sled::Sled::open(path)?),
    })
}
