//! Transactions on a store on a disk in memory, with flushes, compactions and power cuts.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use sievedb::{Db, Durability, Error, Keyspace, Options, fs::Fs};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    isolation::{
        check::{Report, check},
        history::{History, Key, Outcome, WriteId},
        run::{KEYSPACES, Recorder, run},
        survivors::survivors,
        target::Target,
    },
    rng::{Rng, mix},
    settings::{STORE_DIR, small_options},
    yielding::Yielding,
};

const THREADS: usize = 8;

/// Bytes behind the id in a value. With them a few hundred transactions fill many memtables.
const PADDING: [u8; 40] = [b'x'; 40];

/// An open store.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) db: Db,
    keyspaces: [Keyspace; KEYSPACES.len()],
    /// Place of the last commit that is durable.
    durable: AtomicU64,
    commits: AtomicU64,
}

impl Opened {
    fn open(kind: &impl Kind, disk: &Arc<MemoryFs>) -> Self {
        let fs = kind.fs(Arc::clone(disk) as Arc<dyn Fs>);
        let options = kind.options(small_options(fs).worker_threads(2));
        let db = options.open(STORE_DIR).expect("nothing fails");
        let keyspaces = KEYSPACES.map(|name| db.keyspace(&name.to_string()).expect("it opens"));
        Self { db, keyspaces, durable: AtomicU64::new(0), commits: AtomicU64::new(0) }
    }

    /// Returns the keyspace of a key, and the rest of the key.
    pub(super) fn split<'k>(&self, key: &'k str) -> (&Keyspace, &'k str) {
        let (keyspace, key) = key.split_once('/').expect("a keyspace and a key");
        let at = KEYSPACES.iter().position(|name| keyspace.starts_with(*name));
        (&self.keyspaces[at.expect("a keyspace of the test")], key)
    }

    /// Chooses how durable the next commit is.
    pub(super) fn durability(&self) -> Durability {
        match mix(self.commits.fetch_add(1, SeqCst)) % 64 {
            0 => Durability::Disk,
            1..16 => Durability::OsBuffer,
            _ => Durability::Memory,
        }
    }

    /// Notes an acknowledged commit.
    pub(super) fn acknowledge(&self, order: u64, durability: Durability) {
        if durability == Durability::Disk {
            self.durable.fetch_max(order, SeqCst);
        }
    }

    /// Returns all entries.
    fn entries(&self) -> BTreeMap<Key, WriteId> {
        let snapshot = self.db.snapshot();
        let mut entries = BTreeMap::new();
        for (name, keyspace) in KEYSPACES.iter().zip(&self.keyspaces) {
            for entry in snapshot.keyspace(keyspace).expect("its own").iter() {
                let (key, value) = entry.expect("nothing fails");
                entries.insert(full_key(*name, &key), id_of(&value));
            }
        }
        entries
    }

    fn flush_and_compact(&self, is_over: &AtomicBool, seed: u64) {
        let mut rng = Rng::new(seed);
        while !is_over.load(SeqCst) {
            let keyspace = rng.pick(&self.keyspaces);
            let done = if rng.chance(1, 4) { keyspace.compact() } else { keyspace.flush() };
            assert!(done.as_ref().err().is_none_or(Error::is_no_space), "{done:?}");
            thread::yield_now();
        }
    }
}

fn full_key(keyspace: char, key: &[u8]) -> Key {
    format!("{keyspace}/{}", key.escape_ascii()).into()
}

pub(super) fn value_of(id: WriteId) -> Vec<u8> {
    [&id.to_be_bytes()[..], &PADDING].concat()
}

pub(super) fn id_of(value: &[u8]) -> WriteId {
    let (id, padding) = value.split_first_chunk().expect("an id");
    assert_eq!(padding, PADDING, "not a value of the test");
    u64::from_be_bytes(*id)
}

/// Converts the entry of a scan in the keyspace of `from`.
pub(super) fn scanned(
    from: &str,
    (key, value): (impl AsRef<[u8]>, impl AsRef<[u8]>),
) -> (Key, WriteId) {
    let keyspace = from.chars().next().expect("a keyspace");
    (full_key(keyspace, key.as_ref()), id_of(value.as_ref()))
}

/// A kind of transactions of a store.
pub(super) trait Kind {
    /// Its transactions.
    type Target<'s>: Target;

    /// Changes the options of the store.
    fn options(&self, options: Options) -> Options {
        options
    }

    /// Returns the file system of the store.
    fn fs(&self, disk: Arc<dyn Fs>) -> Arc<dyn Fs> {
        Arc::new(Yielding::new(disk))
    }

    /// Called after the transactions of a phase, before the power cut.
    fn end_phase(&self, _: &Opened) {}

    /// Uses a store that was opened.
    fn target<'s>(&self, store: &'s Opened) -> Self::Target<'s>;
}

/// Result of a phase.
#[derive(Debug)]
pub(crate) struct Phase {
    /// Number of transactions that committed.
    pub(crate) commits: usize,
    pub(crate) report: Report,
}

/// Runs `count` transactions in each of `phases`, with a power cut after each.
///
/// # Panics
///
/// If a power cut loses a durable commit, or leaves something that is no prefix of the commits.
pub(super) fn phases(kind: &impl Kind, (phases, count): (usize, usize), seed: u64) -> Vec<Phase> {
    let mut rng = Rng::new(seed);
    let recorder = Recorder::default();
    let mut disk = Arc::new(MemoryFs::with_seed(rng.number()));
    let mut store = Opened::open(kind, &disk);
    let mut done = Vec::new();
    for phase in 0..phases {
        let initial: Vec<_> = store.entries().into_iter().collect();
        let is_over = AtomicBool::new(false);
        let (of_run, of_chores) = (rng.number(), rng.number());
        let transactions = thread::scope(|scope| {
            scope.spawn(|| store.flush_and_compact(&is_over, of_chores));
            let records = run(&kind.target(&store), &recorder, (count, THREADS, of_run));
            is_over.store(true, SeqCst);
            records
        });
        kind.end_phase(&store);
        let history = History { initial, transactions };
        let outcomes = history.transactions.iter().map(|transaction| transaction.outcome);
        let commits = outcomes.filter(|outcome| *outcome == Outcome::Committed).count();
        done.push(Phase { commits, report: check(&history) });
        let loss = match rng.below(3) {
            0 => Loss::Everything,
            _ => Loss::Random { seed: rng.number(), torn: true },
        };
        let left = disk.crash(disk.operations(), &loss);
        let durable = store.durable.load(SeqCst);
        drop(store);
        disk = Arc::new(left);
        store = Opened::open(kind, &disk);
        let durable = (durable > 0).then_some(durable);
        let found = survivors(&history, &store.entries(), durable);
        found.unwrap_or_else(|error| panic!("phase {phase}, {loss:?}: {error}"));
    }
    done
}
