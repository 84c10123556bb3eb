//! Marks the new store of a repair until it is complete.

use std::path::Path;

use crate::{
    Error, Result,
    error::SYNC,
    file_name::REPAIR,
    fs::Fs,
    store::folder::{create_levels, refused},
};

/// Creates the directory `to` with the mark, which is durable before any file of the store.
pub(super) fn mark(fs: &dyn Fs, to: &Path) -> Result<()> {
    create_levels(fs, to).map_err(|error| refused("create", to, to, error))?;
    let path = to.join(REPAIR);
    fs.create(&path).map_err(|error| Error::io("create", path, error))?;
    sync(fs, to)
}

/// Removes the mark from a durable store.
pub(super) fn unmark(fs: &dyn Fs, to: &Path) -> Result<()> {
    let path = to.join(REPAIR);
    fs.unlink(&path).map_err(|error| Error::io("remove", path, error))?;
    sync(fs, to)
}

fn sync(fs: &dyn Fs, to: &Path) -> Result<()> {
    fs.sync_dir(to).map_err(|error| Error::io(SYNC, to, error))
}
