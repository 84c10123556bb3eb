//! The manifest: live files and other durable state of a store.
//!
//! A manifest is a file of records ([`crate::log`]). Each record is an edit; the first one
//! recreates the whole state. `CURRENT` names the manifest that counts.
pub(crate) mod current;
pub(crate) mod dump;
pub(crate) mod edit;
pub(crate) mod file;
pub(crate) mod load;
pub(crate) mod retained;
pub(crate) mod state;
mod table_field;
pub(crate) mod tail;
#[cfg(test)]
mod tests;

pub(crate) use current::Current;
pub(crate) use edit::{
    FilterReplaced, KeyspaceChanged, KeyspaceCreated, KeyspaceRenamed, TableMoved, VersionEdit,
};
pub(crate) use file::ManifestFile;
pub(crate) use load::{check_no_store, load};
pub(crate) use state::{KeyspaceState, ManifestState};
