//! Opening and closing, with and without a crash.

use std::sync::Arc;

use sievedb::{Durability, Error, FilterPolicy, KeyspaceOptions, Options, stats::BackgroundStats};
use sievedb_doubles::MemoryFs;

use super::{Opened, Recorder, past::check_past};
use crate::{
    history::{CrashPoint, History},
    model::Model,
    observe::{keyspace, observe},
    settings::{STORE_DIR, small_keyspace},
};

impl Recorder {
    /// Opens the store.
    pub fn open(&mut self) {
        let opened = self.options.clone().open(STORE_DIR);
        let Some(db) = self.accept("open", opened) else { return };
        for name in db.keyspaces().expect("it is open") {
            let handle = keyspace(&db, &name);
            let Some(handle) = self.accept("open a keyspace", handle) else { return };
            self.incarnations += 1;
            let opened = Opened { handle, incarnation: self.incarnations };
            self.keyspaces.insert(name.into(), opened);
        }
        self.db = Some(db);
    }

    /// Closes the store by dropping all handles. All acknowledged writes are durable if nothing
    /// failed.
    pub fn close(&mut self) {
        if self.db.is_none() {
            return;
        }
        self.release_all();
        self.let_go();
        // A drop of the last handle does not report failures.
        if self.failures.is_none() {
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        }
    }

    /// Closes the store with [`Db::close`](sievedb::Db::close), and returns whether it succeeded.
    /// Then all acknowledged writes are durable.
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

    /// Returns the background statistics at the last close.
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

    /// Sets the options of later opens.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// Sets the filter policy of the default keyspace for later opens.
    pub fn set_filter_policy(&mut self, policy: FilterPolicy) {
        self.options = self.options.clone().keyspace(small_keyspace().filter_policy(policy));
    }

    /// Sets the options of the default keyspace for later opens.
    pub fn set_keyspace(&mut self, keyspace: KeyspaceOptions) {
        self.options = self.options.clone().keyspace(keyspace);
    }

    /// Closes and reopens the store.
    ///
    /// # Panics
    ///
    /// If its contents are not legal.
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
        self.check_past();
        self.check_received(&found);
        if !exact {
            // This decides which failed writes are present.
            self.history.restart(found);
        }
    }

    /// Opens the store on `disk`, which a crash left of a store with `history`, and starts a new
    /// history with its contents, which must be legal after `crash`.
    ///
    /// # Errors
    ///
    /// Why the store cannot be read or is in an illegal state.
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
        check_past(recorder.db(), history)?;
        if let Some(received) = history.received().and_then(|it| it.by(crash.at)) {
            received.check(recorder.db(), &found)?;
            recorder.history.set_received(Some(received));
        }
        recorder.history.know_keys_of(history);
        recorder.history.restart(found);
        let visible = recorder.db().snapshot().sequence();
        recorder.history.forget_pasts_behind(visible);
        Ok(recorder)
    }

    /// As [`recover`](Self::recover), in place of this store, continuing its value and random
    /// numbers.
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
