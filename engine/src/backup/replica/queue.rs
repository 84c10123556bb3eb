//! Files that a replica still has to fetch.

use std::collections::{BTreeSet, VecDeque};

use super::marker::Marker;
use crate::{Error, Result, backup::record::StoredFile};

/// Files left to fetch.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The marker of the backup.
    pub(super) marker: Marker,
    /// Names of the files that the replica needs.
    pub(super) needed: BTreeSet<String>,
    pub(super) pending: VecDeque<StoredFile>,
    /// Files being fetched.
    pub(super) in_flight: Vec<StoredFile>,
    /// Damaged files, which are not fetched again.
    pub(super) damaged: Vec<StoredFile>,
    /// Manifest and log have their final names.
    pub(super) is_promoted: bool,
    pub(super) is_complete: bool,
    /// Number of threads that fetch files.
    pub(super) threads: usize,
    pub(super) files_fetched: u64,
    pub(super) bytes_fetched: u64,
    pub(super) error: Option<Error>,
}

impl Queue {
    /// Returns the error if only damaged files are left.
    pub(super) fn damage(&self) -> Option<Error> {
        let is_idle = self.pending.is_empty() && self.in_flight.is_empty();
        self.error.clone().filter(|_| is_idle && !self.damaged.is_empty())
    }

    /// Returns `true` if all files have arrived, but the replica is not complete.
    pub(super) fn is_drained(&self) -> bool {
        let is_idle = self.pending.is_empty() && self.in_flight.is_empty();
        is_idle && self.damaged.is_empty() && !self.is_complete
    }

    /// Records the result of a fetch of `file`.
    pub(super) fn take(&mut self, file: StoredFile, fetched: &Result<()>) {
        self.in_flight.retain(|other| *other != file);
        let is_needed = self.needed.contains(&file.name);
        match fetched {
            Ok(()) => {
                self.files_fetched += 1;
                self.bytes_fetched += file.bytes;
            }
            // The file belongs to a backup before a refresh.
            Err(_) if !is_needed => {}
            Err(Error::Io { .. } | Error::NoKey { .. } | Error::Closed) => {
                self.pending.push_back(file);
            }
            Err(_) => self.damaged.push(file),
        }
    }

    pub(super) fn left(&self) -> impl Iterator<Item = &StoredFile> {
        self.pending.iter().chain(&self.in_flight).chain(&self.damaged)
    }
}
