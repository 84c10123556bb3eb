//! Opening and closing, with and without a crash in between.

use std::sync::Arc;

use sievedb::{Durability, Error, FilterPolicy, KeyspaceOptions, Options, stats::BackgroundStats};
use sievedb_doubles::MemoryFs;

use super::{Opened, Recorder};
use crate::{
    history::{CrashPoint, History},
    model::Model,
    observe::{keyspace, observe},
    settings::{FOLDER, small_keyspace},
};

impl Recorder {
    /// Opens the store.
    pub fn open(&mut self) {
        let opened = self.options.clone().open(FOLDER);
        let Some(db) = self.accept("open", opened) else { return };
        for name in db.keyspaces() {
            let handle = keyspace(&db, &name);
            let Some(handle) = self.accept("open a keyspace", handle) else { return };
            self.incarnations += 1;
            let opened = Opened { handle, incarnation: self.incarnations };
            self.keyspaces.insert(name.into(), opened);
        }
        self.db = Some(db);
    }

    /// Closes the store by letting all handles go. All that was acknowledged is durable then, if
    /// nothing failed.
    pub fn close(&mut self) {
        if self.db.is_none() {
            return;
        }
        self.release_all();
        self.let_go();
        // Nobody is told of a call that fails while the last handle goes.
        if self.failures.is_none() {
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        }
    }

    /// Closes the store with [`Db::close`](sievedb::Db::close). All that was acknowledged is
    /// durable if that succeeds. Returns whether it did.
    pub fn close_and_report(&mut self) -> bool {
        let Some(db) = self.db.clone() else { return false };
        self.release_all();
        self.let_go();
        let closed = self.accept("close", db.close().map_err(Error::from)).is_some();
        if closed {
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        }
        closed
    }

    /// What flushes and compactions did before the store was last closed.
    #[must_use]
    pub fn background(&self) -> BackgroundStats {
        self.background
    }

    fn let_go(&mut self) {
        if let Some(db) = &self.db {
            self.background = db.stats().background;
        }
        self.snapshots.clear();
        self.ranges.clear();
        self.keyspaces.clear();
        self.db = None;
    }

    /// How the store is opened from the next time on.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// Which filters the tables of the default keyspace get from the next time on.
    pub fn set_filter_policy(&mut self, policy: FilterPolicy) {
        self.options = self.options.clone().keyspace(small_keyspace().filter_policy(policy));
    }

    /// What the default keyspace is opened with from the next time on.
    pub fn set_keyspace(&mut self, keyspace: KeyspaceOptions) {
        self.options = self.options.clone().keyspace(keyspace);
    }

    /// Closes the store and opens it again.
    ///
    /// # Panics
    ///
    /// If what it then holds is not what it held, or could hold after failures.
    pub fn reopen(&mut self) {
        self.close();
        self.open();
        let Some(found) = self.observe() else { return };
        let exact = self.failures.is_none();
        let survives = if exact { Durability::Memory } else { Durability::Disk };
        let here = CrashPoint { at: usize::MAX, survives };
        if let Err(text) = self.history.check(&found, here) {
            panic!("after the store was opened again: {text}");
        }
        if !exact {
            // What is lost and which of the failed writes are there is settled now.
            self.history.restart(found);
        }
    }

    /// Opens the store on `disk`, which a crash left of a store with `history`, and begins a new
    /// history with what it holds. That must be legal after `crash`.
    ///
    /// # Errors
    ///
    /// Why the store cannot be read or is in no legal state.
    ///
    /// # Panics
    ///
    /// If the store cannot be opened.
    pub fn recover(
        disk: Arc<MemoryFs>,
        options: Options,
        history: &History,
        crash: CrashPoint,
    ) -> Result<Self, String> {
        let mut recorder = Self::closed(disk, options, Model::nothing());
        recorder.open();
        let found = observe(recorder.db(), history.keys()).map_err(|error| error.to_string())?;
        history.check(&found, crash)?;
        recorder.history.know_keys_of(history);
        recorder.history.restart(found);
        Ok(recorder)
    }

    /// As [`recover`](Self::recover), in place of this store, with the numbers and lots that come
    /// next.
    ///
    /// # Errors
    ///
    /// As [`recover`](Self::recover).
    pub fn go_on_after(
        &mut self,
        crashed: Arc<MemoryFs>,
        options: Options,
        crash: CrashPoint,
    ) -> Result<(), String> {
        self.let_go();
        let next = Self::recover(crashed, options, &self.history, crash)?;
        let (rng, values) = (self.rng.clone(), self.values);
        *self = Self { rng, values, ..next };
        Ok(())
    }
}
