//! The store under test, its model, and the choice of calls.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, mem,
    sync::Arc,
    thread,
    time::Duration,
};

use bytes::Bytes;
use sievedb::{
    Db, Durability, Error, Keyspace,
    clock::{Clock as _, ManualClock},
    planted::PlantedBug,
};
use sievedb_doubles::{FaultFs, MemoryFs};
use sievedb_tests::{
    model::{DEFAULT, KeyRange, Name},
    rng::Rng,
};

use super::{
    filter::Filter,
    history::{FAILED_MAX, History},
    model::{Change, Contents, Space},
    operator::Operator,
    past::Point,
    ranges::HeldRange,
    sets::OptionSet,
    snapshots::HeldSnapshot,
    transactions::{OpenTransaction, Touch},
};

/// Keyspaces besides the default one.
pub(super) const OTHERS: [&str; 4] = ["other", "users", "\u{e9}t\u{e9}", "z"];

/// Calls that a failure prints.
const TAIL: usize = 40;

/// Calls with their shares of 10,000.
const CALLS: &[(usize, &str)] = &[
    (1380, "insert"),
    (350, "insert with ttl"),
    (150, "insert expiring at"),
    (150, "insert without ttl"),
    (600, "remove"),
    (700, "merge"),
    (400, "batch"),
    (8, "large batch"),
    (60, "remove range"),
    (20, "remove prefix"),
    (150, "insert if absent"),
    (200, "compare and set"),
    (150, "fetch update"),
    (150, "fetch add"),
    (80, "remove if"),
    (80, "take"),
    (60, "pop"),
    (100, "expire at"),
    (100, "persist key"),
    (150, "ttl"),
    (20, "ingest"),
    (20, "ingest files"),
    (1160, "get"),
    (300, "contains key"),
    (200, "may contain"),
    (100, "get many"),
    (100, "contains many"),
    (100, "first and last"),
    (10, "len"),
    (20, "sizes"),
    (20, "explain"),
    (400, "range"),
    (60, "hold range"),
    (150, "continue range"),
    (20, "hold snapshot"),
    (60, "read snapshot"),
    (4, "check snapshot"),
    (30, "note past"),
    (90, "read past"),
    (120, "begin"),
    (1800, "transaction"),
    (110, "commit"),
    (15, "roll back"),
    (60, "persist"),
    (8, "flush"),
    (15, "flush keyspace"),
    (3, "compact"),
    (6, "compact keyspace"),
    (4, "background"),
    (20, "create"),
    (8, "drop"),
    (8, "clear"),
    (10, "rename"),
    (8, "set default ttl"),
    (200, "advance clock"),
    (5, "reopen"),
    (10, "crash"),
    (6, "faults"),
    (10, "check"),
];

/// A random history of a store, compared with a model.
pub(crate) struct Story {
    pub(super) set: &'static OptionSet,
    seed: u64,
    pub(super) planted: Option<PlantedBug>,
    pub(super) lots: Rng,
    pub(super) disk: Arc<MemoryFs>,
    pub(super) faults: Arc<FaultFs>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) filter: Arc<Filter>,
    /// The store clock when the store was opened, and the other clock then.
    pub(super) opened: (u64, Duration),
    pub(super) db: Option<Db>,
    pub(super) handles: BTreeMap<u64, Keyspace>,
    pub(super) history: History,
    pub(super) snapshots: Vec<HeldSnapshot>,
    pub(super) points: Vec<Point>,
    pub(super) ranges: Vec<HeldRange>,
    pub(super) transactions: Vec<OpenTransaction>,
    /// Writes since the oldest open transaction began.
    pub(super) touches: Vec<Touch>,
    keys: Vec<Bytes>,
    values: u64,
    pub(super) ids: u64,
    /// Calls until the file system works again.
    pub(super) failing: Option<usize>,
    /// Calls have failed since the last opening.
    pub(super) is_tainted: bool,
    /// Only another opening decides what the store has.
    pub(super) must_restart: bool,
    counts: BTreeMap<&'static str, usize>,
    tail: VecDeque<String>,
    calls: usize,
}

impl Story {
    pub(crate) fn new(set: &'static OptionSet, seed: u64, planted: Option<PlantedBug>) -> Self {
        let disk = Arc::new(MemoryFs::with_seed(seed));
        let mut contents = Contents::default();
        contents.apply(&Change::Create { keyspace: DEFAULT.into(), id: 0, style: set.style() });
        let mut story = Self {
            set,
            seed,
            planted,
            lots: Rng::new(seed),
            faults: Arc::new(FaultFs::new(Arc::clone(&disk) as _)),
            disk,
            clock: Arc::new(ManualClock::new()),
            filter: Arc::default(),
            opened: (0, Duration::ZERO),
            db: None,
            handles: BTreeMap::new(),
            history: History::new(contents),
            snapshots: Vec::new(),
            points: Vec::new(),
            ranges: Vec::new(),
            transactions: Vec::new(),
            touches: Vec::new(),
            keys: keys(),
            values: 0,
            ids: 0,
            failing: None,
            is_tainted: false,
            must_restart: false,
            counts: BTreeMap::new(),
            tail: VecDeque::new(),
            calls: 0,
        };
        story.clock.set_unix_time(Duration::from_secs(1 << 20));
        story.create();
        story
    }

    /// Makes a call.
    pub(crate) fn call(&mut self) {
        const TOTAL: usize = {
            let (mut total, mut at) = (0, 0);
            while at < CALLS.len() {
                total += CALLS[at].0;
                at += 1;
            }
            total
        };
        self.calls += 1;
        if let Some(left) = &mut self.failing {
            *left -= 1;
            if *left == 0 {
                self.end_faults();
            }
        }
        if self.must_restart || self.history.failed() >= FAILED_MAX {
            self.restart();
        }
        let mut lot = self.lots.below(TOTAL);
        let chosen = CALLS.iter().find(|(share, _)| {
            let is_chosen = lot < *share;
            lot = lot.wrapping_sub(*share);
            is_chosen
        });
        let name = chosen.expect("the lot is below the sum").1;
        self.count(name);
        self.switch_filter_on(name);
        let began = self.disk.operations();
        self.carry_out(name);
        self.switch_filter_off(name, began);
    }

    fn carry_out(&mut self, name: &'static str) {
        match name {
            "insert" | "insert with ttl" | "insert expiring at" | "insert without ttl"
            | "remove" | "merge" => self.single(name),
            "remove range" | "remove prefix" => self.remove_range(name == "remove prefix"),
            "batch" => {
                let count = self.lots.below(8);
                self.batch(count);
            }
            "large batch" => {
                let count = 60 + self.lots.below(200);
                self.batch(count);
            }
            "ingest" | "ingest files" => self.ingest(name == "ingest files"),
            "insert if absent" | "compare and set" | "fetch update" | "fetch add" | "remove if"
            | "take" | "pop" | "expire at" | "persist key" => self.conditional(name),
            "range" => self.range(),
            "hold range" => self.hold_range(),
            "continue range" => self.continue_range(),
            "hold snapshot" => self.hold_snapshot(),
            "read snapshot" => self.read_snapshot(),
            "check snapshot" => self.check_snapshot(),
            "note past" => self.note_past(),
            "read past" => self.read_past(),
            "begin" => self.begin(),
            "transaction" => self.step_transaction(),
            "commit" => self.commit(),
            "roll back" => self.roll_back(),
            "persist" | "flush" | "flush keyspace" | "compact" | "compact keyspace"
            | "background" => self.maintain(name),
            "create" | "drop" | "clear" | "rename" => self.change_keyspace(name),
            "set default ttl" => self.set_default_ttl(),
            "advance clock" => {
                let by_ms = *self.lots.pick(&[1, 1, 7, 40, 300, 5000]);
                self.note(|| format!("advance the clock by {by_ms} ms"));
                self.clock.advance(Duration::from_millis(by_ms));
            }
            "reopen" => self.restart(),
            "crash" => self.crash(),
            "faults" => self.begin_faults(),
            "check" => self.check(),
            read => self.read(read),
        }
    }

    /// Ends the story: everything is compared once more, also after an opening and by `verify`.
    pub(crate) fn end(&mut self) {
        self.end_faults();
        self.check();
        self.restart();
        self.check();
        let report = self.db().verify().expect("it succeeds");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }

    /// Counts an outcome of calls.
    pub(super) fn count(&mut self, outcome: &'static str) {
        *self.counts.entry(outcome).or_default() += 1;
    }

    /// Returns how often each call was made, and what some of them resulted in.
    pub(crate) fn counts(&self) -> &BTreeMap<&'static str, usize> {
        &self.counts
    }

    /// Notes a call, to print the last ones if one fails.
    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(text());
    }

    // What calls are about.

    pub(super) fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open")
    }

    /// Returns the store clock, by its definition.
    pub(super) fn now_ms(&self) -> u64 {
        let passed = self.clock.now() - self.opened.1;
        self.opened.0 + u64::try_from(passed.as_millis()).expect("a test is short")
    }

    /// Returns an existing keyspace, its model and its handle.
    pub(super) fn keyspace(&mut self) -> (Name, Arc<Space>, Keyspace) {
        let spaces = &self.history.now().spaces;
        let at = self.lots.below(spaces.len() + 1);
        let (name, space) = spaces.iter().nth(at).unwrap_or_else(|| {
            spaces.first_key_value().expect("every store has the default keyspace")
        });
        (name.clone(), Arc::clone(space), self.handles[&space.id].clone())
    }

    pub(super) fn key(&mut self) -> Bytes {
        self.lots.pick(&self.keys).clone()
    }

    /// Returns a new value for a keyspace with this operator; one of 100 cannot be merged.
    pub(super) fn value(&mut self, operator: Operator) -> Bytes {
        self.values += 1;
        let mut value = format!("v{}.", self.values).into_bytes();
        let more = match self.lots.below(100) {
            0 => 1000 + self.lots.below(4000),
            1..20 => 0,
            _ => self.lots.below(2 * self.set.value_bytes),
        };
        self.lots.fill(&mut value, more);
        if self.lots.chance(1, 100) {
            return value.into();
        }
        operator.value(value.into(), &mut self.lots)
    }

    pub(super) fn key_range(&mut self) -> KeyRange {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let (one, other) = (self.key(), self.key());
        let is_upside_down = self.lots.chance(1, 12);
        let (low, high) = if (one > other) == is_upside_down { (one, other) } else { (other, one) };
        let bound = |key, lot| match lot {
            0 => Unbounded,
            1 | 2 => Excluded(key),
            _ => Included(key),
        };
        (bound(low, self.lots.below(6)), bound(high, self.lots.below(6)))
    }

    /// Returns a short range, or in rare cases any.
    pub(super) fn narrow_range(&mut self) -> KeyRange {
        use std::ops::Bound::{Excluded, Included};
        if self.lots.chance(1, 12) {
            return self.key_range();
        }
        let at = self.lots.below(self.keys.len());
        let end = (at + self.lots.below(12)).min(self.keys.len() - 1);
        let (low, high) = (self.keys[at].clone(), self.keys[end].clone());
        let high = if self.lots.chance(1, 2) { Included(high) } else { Excluded(high) };
        (if self.lots.chance(1, 4) { Excluded(low) } else { Included(low) }, high)
    }

    pub(super) fn durability(&mut self) -> Durability {
        match self.lots.below(16) {
            0 => Durability::Disk,
            1..6 => Durability::Memory,
            _ => Durability::OsBuffer,
        }
    }

    pub(super) fn all_keys(&self) -> &[Bytes] {
        &self.keys
    }

    // Results of calls.

    /// # Panics
    ///
    /// If `error` is none that a fault explains.
    pub(super) fn tolerate(&mut self, what: &str, error: &Error) {
        let is_expected = match error {
            Error::Io { .. } => self.failing.is_some(),
            Error::ReadOnly { .. } => self.is_tainted,
            _ => false,
        };
        assert!(is_expected, "{what}: {error:?}");
        self.must_restart |= matches!(error, Error::ReadOnly { .. });
        self.count(if self.must_restart { "(failed, read-only)" } else { "(failed)" });
        self.note(|| format!("... {what} failed: {error}"));
    }

    /// Returns the result of a read, unless it failed as it may.
    pub(super) fn accept<T>(&mut self, what: &str, result: Result<T, Error>) -> Option<T> {
        result.inspect_err(|error| self.tolerate(what, error)).ok()
    }

    /// Adds a write with its result to the model.
    pub(super) fn written<T>(
        &mut self,
        changes: Vec<Change>,
        durability: Durability,
        began: usize,
        result: Result<T, Error>,
    ) -> Option<T> {
        let is_nothing = changes.iter().all(Change::is_nothing);
        match result {
            Ok(value) => {
                if !is_nothing {
                    self.touch(&changes);
                    self.history.add(changes, began, false);
                    self.history.acknowledge(durability, self.disk.operations());
                }
                Some(value)
            }
            Err(error) => {
                self.tolerate("write", &error);
                if !is_nothing {
                    self.history.add(changes, began, true);
                }
                None
            }
        }
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{self}");
        } else if self.db.is_some() {
            self.let_go();
        }
        // Faults would make the close of the store fail.
        self.faults.heal();
        drop(mem::take(&mut self.handles));
    }
}

/// Where a failed story was, and the calls that led there.
impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the last calls:")?;
        for line in &self.tail {
            writeln!(f, "    {line}")?;
        }
        let Self { calls, set, seed, .. } = self;
        write!(
            f,
            "call {calls} of set \"{}\"; SIEVE_SEED={seed} SIEVE_MIXED_SET=\"{}\" repeats it",
            set.name, set.name
        )
    }
}

/// Returns the keys of all calls, ascending.
fn keys() -> Vec<Bytes> {
    let mut keys: Vec<Bytes> = (0..150).map(|number| format!("key{number:03}").into()).collect();
    keys.extend((0..20).map(|number| Bytes::from(format!("key{:03}\0", number * 7))));
    keys.extend((0..4).map(|count| Bytes::from(vec![0; count])));
    keys.extend((1..4).map(|count| Bytes::from(vec![0xff; count])));
    keys.extend((0..3).map(|last| Bytes::from([&b"long"[..], &[b'x'; 700], &[last]].concat())));
    keys.extend(["a", "a\0", "a\0\0", "b", "key", "key1"].map(Bytes::from));
    keys.sort_unstable();
    keys.dedup();
    keys
}
