//! A file system that calls a function before it creates a file.

use std::{fmt, io, path::Path, sync::Arc};

use sievedb::fs::{AppendFile, Fs};
use sievedb_doubles::MemoryFs;

use crate::layer::{Layer, Layered};

/// An in-memory disk that calls a function before each [`create`](Fs::create). The function may use
/// the store: the engine holds no lock while it creates a table.
pub type HookFs<F> = Layered<Hook<F>>;

/// The layer of [`HookFs`].
pub struct Hook<F> {
    disk: MemoryFs,
    before_create: F,
}

impl<F: Fn(&Path) + Send + Sync> HookFs<F> {
    /// Calls `before_create` with the path of each new file.
    #[must_use]
    pub fn new(before_create: F) -> Self {
        Self(Hook { disk: MemoryFs::new(), before_create })
    }
}

impl<F> fmt::Debug for Hook<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").finish_non_exhaustive()
    }
}

impl<F: Fn(&Path) + Send + Sync> Layer for Hook<F> {
    fn inner(&self) -> &dyn Fs {
        &self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        (self.before_create)(path);
        self.disk.create(path)
    }
}
