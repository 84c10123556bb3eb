//! Operations that filters require of their store.

use std::{path::PathBuf, sync::Arc};

use crate::{
    Error, Options, Result,
    listener::Event,
    manifest::{ManifestState, VersionEdit},
    read::tree::Tree,
    table::store::TableStore,
};

/// Operations that filters require of their store.
pub(crate) trait FilterHost {
    fn options(&self) -> &Options;

    fn tables(&self) -> &TableStore;

    /// Returns all keyspaces.
    fn keyspaces(&self) -> Vec<Arc<Tree>>;

    /// Returns the keyspace `id`, unless it was dropped.
    fn keyspace(&self, id: u64) -> Option<Arc<Tree>>;

    /// Returns `true` if background work must end.
    fn is_ending(&self) -> bool;

    /// Begins a new manifest if the last edit failed on a full disk. Call it before writing a file
    /// that an edit will name.
    fn renew_manifest(&self) -> Result<()>;

    /// Makes the edit that `change` returns durable, then calls `install`. No other edit comes in
    /// between. The edit names `new_file`. Returns `true` if there was an edit.
    fn edit(
        &self,
        new_file: Option<PathBuf>,
        change: impl FnOnce(&ManifestState) -> Option<VersionEdit>,
        install: impl FnOnce(),
    ) -> Result<bool>;

    /// Makes the store read-only because of `cause`.
    fn poison(&self, cause: Error);

    /// Reports `event` to the listener.
    fn report(&self, event: &Event);
}
