//! Openings, power cuts and faults.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use sievedb::{Db, Durability, Error, TimeToLive, clock::Clock as _};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, Times};
use sievedb_tests::{
    case::Cut,
    model::{DEFAULT, Name},
    settings::STORE_DIR,
};

use super::{
    history::{Found, History},
    model::Change,
    reads::observe,
    story::Story,
};

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const ENOSPC: i32 = 28;

/// Expiry of the key that measures the store clock, in milliseconds.
const PROBE_MS: u64 = (1 << 40) * 1000;

const PROBE_KEY: &[u8] = b"clock";

fn probe() -> Change {
    let (keyspace, key, value) = (DEFAULT.into(), PROBE_KEY.into(), "probe".into());
    Change::Put { keyspace, key, value, expiry_ms: PROBE_MS }
}

impl Story {
    /// Opens the store.
    fn open(&self) -> Result<Db, Error> {
        let fs = Arc::clone(&self.faults) as Arc<_>;
        let clock = Arc::clone(&self.clock) as _;
        self.set.options(fs, clock, &self.filter, self.planted).open(STORE_DIR)
    }

    /// Opens a new store.
    pub(super) fn create(&mut self) {
        let db = self.open().expect("nothing fails");
        self.opened = (milliseconds(self.clock.unix_time()), self.clock.now());
        self.handles.insert(0, db.default_keyspace().clone());
        self.db = Some(db);
    }

    pub(super) fn let_go(&mut self) {
        self.snapshots.clear();
        self.points.clear();
        self.ranges.clear();
        self.transactions.clear();
        self.touches.clear();
        self.handles.clear();
        self.db = None;
    }

    /// Closes the store and opens it again, half of the time after a power cut.
    pub(super) fn restart(&mut self) {
        self.end_faults();
        self.let_go();
        if !self.is_tainted {
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        }
        let at = self.disk.operations();
        let loss = match self.lots.below(4) {
            0 => Loss::Everything,
            1 => Loss::Random { seed: self.lots.number(), torn: true },
            _ => Loss::Nothing,
        };
        self.note(|| format!("reopen behind {at} operations, {loss:?}"));
        let is_late = !self.is_tainted && self.lots.chance(1, 8);
        self.recover(at, loss, is_late);
    }

    /// Cuts the power after any operation since the last opening.
    pub(super) fn crash(&mut self) {
        let operations = self.disk.operations();
        // Most cuts are at the end: early cuts lose most of the history.
        let back = if self.lots.chance(1, 8) { operations } else { operations.min(15) };
        let at = operations - self.lots.below(back + 1);
        let loss = match (self.lots.below(8), self.disk.unsynced(at)) {
            (0 | 1, _) => Loss::Nothing,
            (2, _) => Loss::Everything,
            (3, unsynced) if unsynced > 0 => Loss::Alone(self.lots.below(unsynced)),
            (lot, _) => Loss::Random { seed: self.lots.number(), torn: lot % 3 != 0 },
        };
        self.note(|| format!("crash behind {at} of {operations} operations, {loss:?}"));
        self.recover(at, loss, false);
    }

    /// Opens what a crash left of the store, and checks that it has a legal state. `is_late`: the
    /// wall clock was set back meanwhile.
    fn recover(&mut self, at: usize, loss: Loss, is_late: bool) {
        let is_whole = at == self.disk.operations() && !self.is_tainted;
        let disk = Arc::new(self.disk.crash(at, &loss));
        self.end_faults();
        self.let_go();
        self.disk = disk;
        self.faults = Arc::new(FaultFs::new(Arc::clone(&self.disk) as _));
        let before_ms = self.now_ms();
        let unix_ms = match self.lots.below(6) {
            _ if is_late => 1,
            0 => before_ms + self.lots.below(5000) as u64,
            _ => before_ms,
        };
        self.clock.set_unix_time(Duration::from_millis(unix_ms));
        if self.lots.chance(1, 12) {
            // A failing opening leaves everything as it was.
            let fault = Fault::new(EIO, Times::ForGood).after(self.lots.below(30));
            self.faults.inject(fault);
            let error = self.open().err();
            self.note(|| format!("an opening with faults: {error:?}"));
            self.faults.heal();
        }
        let opened = self.open();
        let db = opened.unwrap_or_else(|error| panic!("the store cannot be opened: {error:?}"));
        let handles: Vec<_> = db
            .keyspaces()
            .expect("it is open")
            .into_iter()
            .map(|name| {
                let handle = db.open_keyspace(&name).expect("it was listed");
                (Name::from(name), handle)
            })
            .collect();
        let began = self.disk.operations();
        let now_ms = if is_late { measured_ms(&db) } else { milliseconds(self.clock.unix_time()) };
        assert!(!is_late || now_ms <= before_ms, "the clock was at {before_ms}, now at {now_ms}");
        let found = observe(&db, &handles, now_ms);
        let mut found = found.unwrap_or_else(|error| panic!("unreadable: {error:?}"));
        if is_late {
            self.undo_probe(&mut found, now_ms);
        }
        self.opened = (now_ms, self.clock.now());
        let state = self.history.resolve(&found, now_ms, at, Cut { at, loss }.point().survives);
        let (mut state, unknown) = state.unwrap_or_else(|text| panic!("{text}"));
        // What has expired is never visible again: the clock is set back after a close alone.
        state.forget_expired(now_ms);
        for (name, handle) in handles {
            let space = state.entries(&name).expect("the states are equal");
            let ttl_ms = handle.options().get_default_ttl().map(milliseconds);
            let before = match (space.id, self.history.now().of_id(space.id)) {
                // Each opening sets the options of the default keyspace.
                (0, _) => Some(self.set.style().default_ttl_ms),
                (_, before) => before.map(|(_, space)| space.default_ttl_ms),
            };
            let is_exact = is_whole && before.is_some();
            assert!(!is_exact || before == Some(ttl_ms), "{name}: {ttl_ms:?}, was {before:?}");
            space.default_ttl_ms = ttl_ms;
            self.handles.insert(space.id, handle);
        }
        self.history = History::new(state);
        if is_late {
            self.history.add(vec![probe()], began, false);
        }
        self.db = Some(db);
        self.is_tainted = false;
        self.must_restart = false;
        for (keyspace, key) in unknown {
            let id = self.history.now().space(&keyspace).expect("it was found").id;
            let began = self.disk.operations();
            let removed = self.handles[&id].remove(&key);
            let change = Change::Remove { keyspace, key };
            self.note(|| format!("{}: its operands are unknown", change.text()));
            self.written(vec![change], self.set.durability, began, removed);
        }
    }

    /// Replaces the probe of the clock by what was there before.
    fn undo_probe(&self, found: &mut Found, now_ms: u64) {
        let key = Bytes::from_static(PROBE_KEY);
        let entries = found.get_mut(DEFAULT).expect("every store has it");
        let at = entries.binary_search_by(|(other, _)| other.cmp(&key));
        entries.remove(at.expect("the probe is there"));
        let before = self.history.now().space(DEFAULT).expect("every store has it");
        if let Some(entry) = before.get_with_expiry(&key, now_ms) {
            entries.insert(at.unwrap_or_default(), (key, entry));
        }
    }

    pub(super) fn begin_faults(&mut self) {
        if self.failing.is_some() || self.history.failed() > 0 {
            return;
        }
        let (errno, times) = *self.lots.pick(&[
            (EIO, Times::Once),
            (EIO, Times::ForGood),
            (ENOSPC, Times::Once),
            (ENOSPC, Times::ForGood),
            (ENOMEM, Times::Once),
        ]);
        let written = *self.lots.pick(&[0, 5, usize::MAX]);
        let fault = Fault::new(errno, times).after(self.lots.below(40)).written_bytes(written);
        let fault = if errno == ENOSPC { fault.calls(&Call::GROWING) } else { fault };
        self.note(|| format!("faults: error {errno}, {times:?}"));
        self.faults.inject(fault);
        self.failing = Some(2 + self.lots.below(60));
        self.is_tainted = true;
    }

    pub(super) fn end_faults(&mut self) {
        if self.failing.take().is_some() {
            self.faults.heal();
            self.note(|| "faults end".to_owned());
            // Writes that need room fail until a worker has tried again.
            if let Some(db) = self.db.as_ref().filter(|_| self.set.has_workers) {
                let _ = db.flush();
            }
            self.must_restart |= self.db.as_ref().is_some_and(|db| db.stats().read_only.is_some());
        }
    }
}

/// Returns the store clock, by a key that expires at a known time.
fn measured_ms(db: &Db) -> u64 {
    let Change::Put { key, value, .. } = probe() else { unreachable!("it is a put") };
    let end = SystemTime::UNIX_EPOCH + Duration::from_millis(PROBE_MS);
    db.insert_expiring_at(&key, &value, end).expect("nothing fails");
    match db.ttl(&key).expect("nothing fails") {
        Some(TimeToLive::Remaining(left)) => PROBE_MS - milliseconds(left),
        other => panic!("{other:?}"),
    }
}

/// Returns whole milliseconds.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a test is short")
}
