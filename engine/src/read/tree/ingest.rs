//! Installation of ingested tables, while writes to the keyspace wait.

use std::sync::Arc;

use super::Tree;
use crate::{
    memory::MemoryUse,
    read::view::{KeptView, PlacedMemtable},
    sync::atomic::Ordering::SeqCst,
    version::Version,
};

impl Tree {
    /// Begins to install ingested tables. Writes to the keyspace wait until the installation ends.
    /// The caller holds the placement lock.
    pub(crate) fn begin_ingest(&self) {
        let _change = self.change.lock();
        debug_assert!(!self.is_ingesting(), "one ingest at a time");
        self.ingesting.store(true, SeqCst);
    }

    #[inline]
    pub(crate) fn is_ingesting(&self) -> bool {
        self.ingesting.load(SeqCst)
    }

    /// Ends the installation of ingested tables, whether it succeeded or failed.
    pub(crate) fn end_ingest(&self) {
        let _change = self.change.lock();
        self.ingesting.store(false, SeqCst);
        self.ingested.notify_all();
    }

    /// Waits until no ingested tables are being installed.
    pub(crate) fn wait_ingested(&self) {
        let mut change = self.change.lock();
        while self.is_ingesting() {
            self.ingested.wait(&mut change);
        }
    }

    /// Replaces the version by one with ingested tables, and the active memtable, which is empty:
    /// readers of the previous view must not see writes after the ingest.
    pub(crate) fn install_ingested(&self, version: impl FnOnce(&Version) -> Version) {
        let change = self.change.lock();
        let view = self.kept_view();
        debug_assert!(view.placed_memtables().all(|placed| placed.first_sequence().is_none()));
        let active = Arc::new(PlacedMemtable::new(self.options().memtable_bytes, &self.memory));
        let version = Arc::new(version(&view.version));
        view.active.set_use(MemoryUse::PinnedMemtables);
        self.set_view(&change, KeptView { active, version, ..view });
    }
}
