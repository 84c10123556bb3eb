//! The manifest: which files are live, and what else a store must remember.
//!
//! A manifest is a file of records ([`crate::log`]). Each record is an edit; the first one
//! recreates the whole state. `CURRENT` names the manifest that counts.
//!
//! | module         | answers                                                          |
//! |----------------|------------------------------------------------------------------|
//! | [`edit`]       | what a change of the state is, and its bytes                     |
//! | `table_field`  | the bytes of a table's entry                                     |
//! | [`state`]      | all edits applied, and what must hold                            |
//! | [`current`]    | the bytes of `CURRENT`                                           |
//! | [`mod@file`]   | creates a manifest and appends to it                             |
//! | [`mod@load`]   | reads the manifest after a crash                                 |
//! | [`dump`]       | a manifest's bytes and their meaning                             |
pub(crate) mod current;
pub(crate) mod dump;
pub(crate) mod edit;
pub(crate) mod file;
pub(crate) mod load;
pub(crate) mod state;
mod table_field;
#[cfg(test)]
mod tests;

pub(crate) use current::Current;
pub(crate) use edit::{FilterReplaced, KeyspaceChanged, KeyspaceCreated, TableMoved, VersionEdit};
pub(crate) use file::ManifestFile;
pub(crate) use load::{check_no_store, load};
pub(crate) use state::{KeyspaceState, ManifestState};
