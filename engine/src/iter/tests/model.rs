//! A cursor over a vector, a random history, and a simple reader of it.

use std::{
    cell::Cell, collections::BTreeMap, env, io, ops::Bound, path::PathBuf, rc::Rc, sync::Arc,
};

use bytes::Bytes;
use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use sievedb_format::{InternalKey, Kind, RangeTombstone, SequenceNumber, Trailer};

use crate::{
    Append, Error, Result,
    fold::OperatorCell,
    iter::{
        bounds::{KeyBounds, is_above, is_below},
        cursor::Cursor,
        merge::MergeCursor,
    },
    merge_operator::NamedOperator,
};

/// One version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) user_key: Vec<u8>,
    pub(crate) trailer: Trailer,
    pub(crate) value: Bytes,
}

impl Entry {
    pub(crate) fn new(user_key: &[u8], sequence: SequenceNumber, kind: Kind) -> Self {
        let value = match kind {
            Kind::Put => Bytes::from(format!("v{sequence}")),
            Kind::Merge => Bytes::from(format!("m{sequence}")),
            _ => Bytes::new(),
        };
        Self { user_key: user_key.to_vec(), trailer: Trailer::new(sequence, kind), value }
    }

    pub(crate) fn key(&self) -> InternalKey<'_> {
        InternalKey::new(&self.user_key, self.trailer)
    }
}

/// Parses entries such as `"a@7 a@5- b@6"`: key, sequence number, `-` for a tombstone, `+` for a
/// merge operand, `?` for a blob reference.
pub(crate) fn entries(text: &str) -> Vec<Entry> {
    let entry = |word: &str| {
        let (key, version) = word.split_once('@').expect("key@sequence");
        let sequence =
            version.trim_end_matches(['-', '+', '?']).parse().expect("a sequence number");
        let kind = match version.as_bytes().last() {
            Some(b'-') => Kind::Tombstone,
            Some(b'+') => Kind::Merge,
            Some(b'?') => Kind::BlobReference,
            _ => Kind::Put,
        };
        Entry::new(key.as_bytes(), sequence, kind)
    };
    text.split_whitespace().map(entry).collect()
}

/// The inverse of [`entries`].
pub(crate) fn text(entries: &[Entry]) -> String {
    let word = |entry: &Entry| {
        let mark = match entry.trailer.kind() {
            Kind::Put => "",
            Kind::Tombstone => "-",
            Kind::Merge => "+",
            _ => "?",
        };
        format!("{}@{}{mark}", entry.user_key.escape_ascii(), entry.trailer.sequence())
    };
    entries.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Moves of a cursor, and the index of the move that fails.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) count: Cell<usize>,
    /// Number of searches.
    pub(crate) searches: Cell<usize>,
    pub(crate) fail_at: Cell<Option<usize>>,
    /// Number of prefetches.
    pub(crate) announced: Cell<usize>,
}

/// A cursor over sorted entries.
#[derive(Debug)]
pub(crate) struct VecCursor {
    entries: Rc<Vec<Entry>>,
    at: Option<usize>,
    repeats: bool,
    /// Reports whether the previous entry has another key.
    tells: bool,
    /// Each search reads from a file.
    reads: bool,
    /// The step of a seek that searches.
    searching_step: usize,
    /// That step is the next one, and is predicted.
    foretells: bool,
    moves: Rc<Moves>,
}

impl VecCursor {
    pub(crate) fn new(entries: impl Into<Rc<Vec<Entry>>>, moves: &Rc<Moves>) -> Self {
        Self {
            entries: entries.into(),
            at: None,
            repeats: false,
            tells: false,
            reads: false,
            searching_step: 0,
            foretells: false,
            moves: Rc::clone(moves),
        }
    }

    /// Makes the cursor report for some entries that the previous one has another key.
    fn telling(mut self) -> Self {
        self.tells = true;
        self
    }

    /// Makes each search read.
    pub(crate) fn reading(mut self) -> Self {
        self.reads = true;
        self
    }

    /// Makes the cursor seek in steps, and report before this step that it reads.
    pub(crate) fn searching_in(mut self, step: usize) -> Self {
        self.searching_step = step;
        self
    }

    fn announce(&mut self) {
        self.at = None;
        self.moves.announced.set(self.moves.announced.get() + 1);
    }

    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.at = None;
        self.repeats = false;
        let count = self.moves.count.get();
        self.moves.count.set(count + 1);
        if self.moves.fail_at.get() == Some(count) {
            return Err(failure());
        }
        self.at = at.filter(|&at| at < self.entries.len());
        Ok(())
    }

    fn first_at(&self, target: InternalKey<'_>) -> usize {
        self.entries.partition_point(|entry| entry.key() < target)
    }

    fn entry(&self) -> &Entry {
        &self.entries[self.at.expect("positioned")]
    }
}

/// The error of the move that fails.
pub(crate) fn failure() -> Error {
    Error::io("read", "model.sst", io::Error::other("told to fail"))
}

impl Cursor for VecCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.entries.len().checked_sub(1))
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.moves.searches.update(|searches| searches + 1);
        self.go(Some(self.first_at(target)))
    }

    fn seek_step(&mut self, step: usize, target: InternalKey<'_>) -> Result<()> {
        self.foretells = step + 1 == self.searching_step;
        if step == self.searching_step { self.seek(target) } else { Ok(()) }
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.moves.searches.update(|searches| searches + 1);
        self.go(self.first_at(target).checked_sub(1))
    }

    fn advise_seek_step(&mut self, step: usize) {
        if step == self.searching_step {
            self.announce();
        }
    }

    fn advise_seek_before(&mut self, _: InternalKey<'_>) {
        self.announce();
    }

    fn has_missed_cache(&self) -> bool {
        self.reads && (self.foretells || self.moves.count.get() > 0)
    }

    fn next(&mut self) -> Result<()> {
        let left = self.at.expect("positioned");
        self.go(Some(left + 1))?;
        self.repeats =
            self.at.is_some_and(|at| self.entries[at].user_key == self.entries[left].user_key);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.go(self.at.expect("positioned").checked_sub(1))
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        self.at.map(|at| self.entries[at].key())
    }

    fn is_older_version(&self) -> bool {
        self.repeats
    }

    fn is_newest_version(&mut self) -> bool {
        let at = self.at.expect("positioned");
        let before = at.checked_sub(1).map(|before| &self.entries[before].user_key);
        self.tells && !at.is_multiple_of(3) && before != Some(&self.entries[at].user_key)
    }

    fn value_ref(&self) -> &[u8] {
        &self.entry().value
    }

    fn value(&self) -> Bytes {
        self.entry().value.clone()
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("model.sst")
    }
}

/// Entries, each in one of several sources.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// Sorted.
    pub(crate) sources: Vec<Rc<Vec<Entry>>>,
    pub(crate) range_tombstones: Vec<RangeTombstone>,
}

impl History {
    /// Spreads `entries` over sources.
    pub(crate) fn new(entries: Vec<(usize, Entry)>, range_tombstones: Vec<RangeTombstone>) -> Self {
        let count = entries.iter().map(|(source, _)| source + 1).max().unwrap_or(0);
        let mut sources = vec![Vec::new(); count];
        for (source, entry) in entries {
            sources[source].push(entry);
        }
        for source in &mut sources {
            source.sort_by(|left, right| left.key().cmp(&right.key()));
        }
        Self { sources: sources.into_iter().map(Rc::new).collect(), range_tombstones }
    }

    /// Returns all entries, sorted.
    pub(crate) fn sorted(&self) -> Vec<Entry> {
        let mut all: Vec<_> = self.sources.iter().flat_map(|source| source.to_vec()).collect();
        all.sort_by(|left, right| left.key().cmp(&right.key()));
        all
    }

    pub(crate) fn merge(&self, moves: &Rc<Moves>) -> MergeCursor<VecCursor> {
        let cursor = |source: &Rc<Vec<Entry>>| VecCursor::new(Rc::clone(source), moves).telling();
        MergeCursor::new(self.sources.iter().map(cursor).collect(), 0)
    }

    /// Returns a merge of the entries within `bounds`.
    pub(crate) fn merge_within(
        &self,
        bounds: &KeyBounds,
        moves: &Rc<Moves>,
    ) -> MergeCursor<VecCursor> {
        let (start, end) = bounds.as_slices();
        let is_within = |e: &&Entry| is_above(&e.user_key, start) && is_below(&e.user_key, end);
        let cursor = |source: &Rc<Vec<Entry>>| {
            let entries: Vec<_> = source.iter().filter(is_within).cloned().collect();
            VecCursor::new(entries, moves).telling()
        };
        let prefix_bytes = bounds.common_prefix().len();
        MergeCursor::new(self.sources.iter().map(cursor).collect(), prefix_bytes)
    }

    /// Returns the entries visible at `sequence`.
    pub(crate) fn read(&self, sequence: SequenceNumber) -> BTreeMap<Vec<u8>, Bytes> {
        read(&self.sorted(), &self.range_tombstones, sequence)
    }
}

/// Returns the entries visible at `at`: applies the writes up to there in order.
pub(crate) fn read(
    entries: &[Entry],
    range_tombstones: &[RangeTombstone],
    at: SequenceNumber,
) -> BTreeMap<Vec<u8>, Bytes> {
    enum Write<'a> {
        Point(&'a Entry),
        Range(&'a RangeTombstone),
    }
    let points = entries.iter().map(|entry| (entry.trailer.sequence(), Write::Point(entry)));
    let ranges = range_tombstones.iter().map(|range| (range.sequence, Write::Range(range)));
    let mut writes: Vec<_> = points.chain(ranges).filter(|&(sequence, _)| sequence <= at).collect();
    writes.sort_by_key(|&(sequence, _)| sequence);
    let mut state = BTreeMap::new();
    for (_, write) in writes {
        match write {
            Write::Point(entry) if entry.trailer.kind() == Kind::Put => {
                state.insert(entry.user_key.clone(), entry.value.clone());
            }
            Write::Point(entry) if entry.trailer.kind() == Kind::Merge => {
                let value = match state.get(&entry.user_key) {
                    Some(base) => [base, &*entry.value].join(&b','),
                    None => entry.value.to_vec(),
                };
                state.insert(entry.user_key.clone(), value.into());
            }
            Write::Point(entry) => drop(state.remove(&entry.user_key)),
            Write::Range(range) => {
                state.retain(|key, _| **key < *range.start || **key >= *range.end);
            }
        }
    }
    state
}

/// The merge operator of histories: joins values with commas.
pub(crate) fn append() -> OperatorCell {
    let cell = OperatorCell::default();
    cell.set(&Arc::default(), &NamedOperator::new(Arc::new(Append::with_separator(","))));
    cell
}

/// Similar keys: few, short, prefixes of one another, one of them often.
pub(crate) fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let bytes = select(vec![0, b'a', b'b', u8::MAX]);
    prop_oneof![1 => Just(b"a".to_vec()), 3 => prop::collection::vec(bytes, 0..3)]
}

/// Bounds of every form, including inverted ones.
pub(crate) fn any_bounds() -> impl Strategy<Value = KeyBounds> {
    let bound = || {
        prop_oneof![
            any_key().prop_map(Bound::Included),
            any_key().prop_map(Bound::Excluded),
            Just(Bound::Unbounded),
        ]
    };
    (bound(), bound()).prop_map(|(start, end)| KeyBounds {
        start: start.map(Bytes::from),
        end: end.map(Bytes::from),
    })
}

/// Up to `writes_max` writes over `sources_max` sources, numbered from 1.
pub(crate) fn any_history(writes_max: usize, sources_max: usize) -> impl Strategy<Value = History> {
    #[derive(Debug, Clone)]
    enum Write {
        Point(usize, Vec<u8>, Kind),
        Range(Vec<u8>, Vec<u8>),
    }
    let kind =
        prop_oneof![3 => Just(Kind::Put), 2 => Just(Kind::Tombstone), 3 => Just(Kind::Merge)];
    let point = (0..sources_max, any_key(), kind);
    let write = prop_oneof![
        12 => point.prop_map(|(source, key, kind)| Write::Point(source, key, kind)),
        1 => (any_key(), any_key()).prop_map(|(start, end)| Write::Range(start, end)),
    ];
    prop::collection::vec(write, 0..writes_max).prop_map(|writes| {
        let (mut points, mut ranges) = (Vec::new(), Vec::new());
        for (write, sequence) in writes.iter().zip(1..) {
            match write {
                Write::Point(source, key, kind) => {
                    points.push((*source, Entry::new(key, sequence, *kind)));
                }
                Write::Range(start, end) if start < end => {
                    ranges.push(RangeTombstone::new(start, end, sequence));
                }
                Write::Range(..) => {}
            }
        }
        History::new(points, ranges)
    })
}

/// Checks `test` on `cases` random values. The seed is printed with a failure; `SIEVE_SEED` sets
/// it.
pub(crate) fn check<S: Strategy>(
    cases: u32,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let seed = env::var("SIEVE_SEED").ok().map(|seed| seed.parse().expect("SIEVE_SEED is a u64"));
    let seed = seed.unwrap_or_else(|| getrandom::u64().expect("the system has random numbers"));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(error) = TestRunner::new_with_rng(config, rng).run(strategy, test) {
        panic!("SIEVE_SEED={seed}\n{error}");
    }
}
