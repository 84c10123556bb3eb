//! Stores that follow another writer: consistent prefixes of its history.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod basics;
mod calls;
mod changes;
#[cfg(feature = "encryption")]
mod encrypted;
mod faults;
mod filters;
mod gone;
mod ingests;
mod progress;
mod threads;

use std::sync::Arc;

use sievedb::{Options, fs::Fs};
use sievedb_tests::settings::small_options;

/// Returns options of a follower.
fn following(fs: Arc<dyn Fs>) -> Options {
    small_options(fs).follow(true).open_files_max(100)
}
