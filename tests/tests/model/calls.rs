//! Random choice of calls.

use std::{collections::BTreeMap, fmt, ops::Bound, sync::Arc};

use bytes::Bytes;
use sievedb::{
    Append, Compression, Durability, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Options,
    PrefixExtractor, ReadMode, fs::Fs, planted::PlantedBug,
};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    case::Cut,
    model::{Change, DEFAULT, Model},
    recorder::Recorder,
    rng::Rng,
    settings::{small_keyspace, small_options},
};

/// Keyspaces that are created and dropped, besides the default one.
const OTHERS: [&str; 3] = ["other", "users", "\u{e9}t\u{e9}"];

/// A random history of a store.
pub(crate) struct Story {
    pub(super) recorder: Recorder,
    pub(super) lots: Rng,
    counts: Counts,
    seed: u64,
    planted: Option<PlantedBug>,
}

/// Numbers of each call.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<&'static str, usize>);

impl Counts {
    /// Returns the rarest call.
    pub(super) fn rarest(&self) -> (&'static str, usize) {
        let rarest = self.0.iter().min_by_key(|(_, count)| **count);
        rarest.map_or(("any call", 0), |(name, count)| (*name, *count))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self.0.iter().map(|(name, count)| format!("{count} {name}")).collect();
        write!(f, "{}", counts.join(", "))
    }
}

/// Returns small, otherwise random options.
fn options(disk: &Arc<MemoryFs>, lots: &mut Rng, planted: Option<PlantedBug>) -> Options {
    let modes = [ReadMode::Pread, ReadMode::Map, ReadMode::Direct];
    let options = small_options(Arc::clone(disk) as Arc<dyn Fs>);
    let options = match planted {
        Some(bug) => options.planted_bug(bug),
        None => options,
    };
    options
        .read_mode(*lots.pick(&modes))
        .block_cache_bytes(*lots.pick(&[0, 8 << 10, 64 << 10]))
        .open_files_max(*lots.pick(&[1, 4, 64]))
        .log_segment_bytes(*lots.pick(&[4 << 10, 8 << 10]))
        .keyspace(keyspace_options(lots))
}

fn filter_policy(lots: &mut Rng) -> FilterPolicy {
    use FilterPolicyKind::{Auto, Bloom, Fuse, None, Ribbon};
    let kind = *lots.pick(&[Auto, Auto, Bloom, Ribbon, Fuse, None]);
    FilterPolicy::new(kind).bits_per_key(*lots.pick(&[0.0, 0.5, 3.7, 10.0]))
}

fn keyspace_options(lots: &mut Rng) -> KeyspaceOptions {
    use PrefixExtractor::{FixedLength, Separator};
    let options = small_keyspace();
    // "key" with a number, shorter keys, and keys with another byte there.
    let extractors = [FixedLength(1), FixedLength(4), FixedLength(5), Separator(b'1')];
    let options = if lots.chance(2, 3) {
        options.prefix_extractor(lots.pick(&extractors).clone())
    } else {
        options
    };
    options
        .memtable_bytes(*lots.pick(&[4 << 10, 4 << 10, 16 << 10]))
        .table_bytes(*lots.pick(&[4 << 10, 4 << 10, 16 << 10]))
        .filter_policy(filter_policy(lots))
        .range_filter_bits_per_key(*lots.pick(&[0.0, 0.0, 5.0, 12.0]))
        .compression(*lots.pick(&[Compression::Lz4, Compression::None]))
        .merge_operator(Arc::new(Append::new()))
}

impl Story {
    /// Creates a store from `seed`, with or without a bug.
    pub(crate) fn new(seed: u64, planted: Option<PlantedBug>) -> Self {
        let disk = Arc::new(MemoryFs::with_seed(seed));
        let mut lots = Rng::new(seed);
        let mut options = options(&disk, &mut lots, planted);
        if planted.is_none() && seed.is_multiple_of(3) {
            options = options.compaction_ranges(3);
        }
        let recorder = Recorder::new(disk, options, Model::default());
        Self { recorder, lots, counts: Counts::default(), seed, planted }
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Makes call `number`.
    pub(crate) fn call(&mut self, number: usize) {
        let name = self.choose();
        *self.counts.0.entry(name).or_default() += 1;
        // A panic in the engine contains neither the seed nor the call.
        let place = Place { seed: self.seed, number, name };
        self.carry_out(name);
        std::mem::forget(place);
    }

    fn choose(&mut self) -> &'static str {
        const SHARES: &[(usize, &str)] = &[
            (280, "insert"),
            (20, "insert if absent"),
            (100, "remove"),
            (60, "merge"),
            (8, "remove range"),
            (3, "remove prefix"),
            (60, "batch"),
            (200, "get"),
            (60, "contains_key"),
            (20, "get_many"),
            (20, "contains_many"),
            (60, "may_contain"),
            (90, "range"),
            (40, "prefix"),
            (10, "iter"),
            (10, "hold snapshot"),
            (20, "check snapshot"),
            (6, "hold range"),
            (6, "finish range"),
            (12, "persist"),
            (5, "flush"),
            (5, "flush keyspace"),
            (2, "compact"),
            (3, "compact keyspace"),
            (4, "create"),
            (3, "drop"),
            (3, "clear"),
            (3, "rename"),
            (2, "reopen"),
            (4, "crash"),
            (3, "check all"),
            (20, "transaction"),
            (2, "large batch"),
            (3, "stats"),
        ];
        let total = SHARES.iter().map(|(share, _)| share).sum();
        let mut lot = self.lots.below(total);
        for (share, name) in SHARES {
            if lot < *share {
                return name;
            }
            lot -= share;
        }
        unreachable!("the lot is below the sum")
    }

    pub(super) fn carry_out(&mut self, name: &str) {
        match name {
            "insert" => {
                let change = self.put();
                let durability = self.durability();
                self.recorder.write(vec![change], durability);
            }
            "insert if absent" => {
                let (keyspace, key) = (self.keyspace(), self.key());
                self.recorder.insert_if_absent(&keyspace, key, 40);
            }
            "remove" => {
                let change = self.removal();
                let durability = self.durability();
                self.recorder.write(vec![change], durability);
            }
            "merge" => {
                let change = self.merge();
                let durability = self.durability();
                self.recorder.write(vec![change], durability);
            }
            "remove range" | "remove prefix" => {
                let change = self.range_removal(name == "remove prefix");
                let durability = self.durability();
                self.recorder.write(vec![change], durability);
            }
            "batch" => {
                let changes = 1 + self.lots.below(12);
                self.batch(changes);
            }
            "transaction" => {
                let (changes, undone) = (self.changes(), self.changes());
                let durability = self.durability();
                self.recorder.transaction(changes, &undone, durability);
            }
            "large batch" => {
                let changes = 100 + self.lots.below(200);
                self.batch(changes);
            }
            "hold snapshot" if self.recorder.snapshots() < 4 => self.recorder.hold_snapshot(),
            "hold snapshot" | "check snapshot" => self.look_at_snapshot(),
            "hold range" if self.recorder.ranges() < 3 => {
                let keyspace = self.keyspace();
                self.recorder.hold_range(&keyspace);
            }
            "hold range" | "finish range" => {
                if self.recorder.ranges() > 0 {
                    let number = self.lots.below(self.recorder.ranges());
                    self.recorder.finish_range(number);
                }
            }
            "persist" => {
                let durability = self.durability();
                self.recorder.persist(durability);
            }
            "flush" => self.recorder.flush(),
            "flush keyspace" => {
                let keyspace = self.keyspace();
                self.recorder.flush_keyspace(&keyspace);
            }
            "compact" => self.recorder.compact(),
            "compact keyspace" => {
                let keyspace = self.keyspace();
                let range = self.lots.chance(1, 2).then(|| (self.key(), self.key()));
                self.recorder.compact_keyspace(&keyspace, range);
            }
            "create" => {
                let name = *self.lots.pick(&OTHERS);
                let options = self.lots.chance(1, 2).then(|| keyspace_options(&mut self.lots));
                self.recorder.create_with(name, options.as_ref());
            }
            "drop" => {
                let name = *self.lots.pick(&OTHERS);
                self.recorder.drop_keyspace(name);
            }
            "clear" => {
                let keyspace = self.keyspace();
                self.recorder.clear(&keyspace);
            }
            "rename" => {
                let (old, new) = (*self.lots.pick(&OTHERS), *self.lots.pick(&OTHERS));
                self.recorder.rename(old, new);
            }
            "reopen" => {
                let options = options(self.recorder.disk(), &mut self.lots, self.planted);
                self.recorder.set_options(options);
                self.recorder.reopen();
            }
            "crash" => self.crash(),
            "check all" => self.recorder.check(),
            "stats" => {
                let stats = self.recorder.db().stats();
                assert_eq!(stats.read_only, None, "{stats}");
            }
            read => self.read(read),
        }
    }

    pub(super) fn end(&mut self) {
        self.recorder.release_all();
        self.recorder.check();
        self.recorder.reopen();
        self.recorder.close();
    }

    /// Returns an existing keyspace.
    pub(super) fn keyspace(&mut self) -> String {
        let names: Vec<_> =
            OTHERS.into_iter().filter(|name| self.recorder.handle(name).is_some()).collect();
        if names.is_empty() || self.lots.chance(1, 2) {
            return DEFAULT.to_owned();
        }
        (*self.lots.pick(&names)).to_owned()
    }

    /// Returns one of a few hundred keys, so that most calls share keys.
    pub(super) fn key(&mut self) -> Bytes {
        let kind = self.lots.below(20);
        let number = self.lots.below(200);
        match kind {
            0 => Bytes::new(),
            1 => vec![0; number % 5].into(),
            2 => vec![0xff; number % 5].into(),
            3 => (0..1 + number % 4).map(|_| *self.lots.pick(b"a\0\xff")).collect(),
            4 => format!("key{number:03}\0").into(),
            5 => [&b"long"[..], &[b'x'; 700], &[number as u8 % 4]].concat().into(),
            6..=9 => format!("key{:03}", number % 20).into(),
            _ => format!("key{number:03}").into(),
        }
    }

    fn durability(&mut self) -> Durability {
        let words = [Durability::Memory, Durability::OsBuffer, Durability::OsBuffer];
        if self.lots.chance(1, 16) { Durability::Disk } else { *self.lots.pick(&words) }
    }

    fn put(&mut self) -> Change {
        let (keyspace, key) = (self.keyspace().into(), self.key());
        let bytes = match self.lots.below(200) {
            0 => 5000 + self.lots.below(20_000),
            1..=40 => self.lots.below(600),
            41..=60 => 0,
            _ => self.lots.below(60),
        };
        let value = if bytes == 0 { Bytes::new() } else { self.recorder.new_value(bytes) };
        Change::Put { keyspace, key, value }
    }

    fn removal(&mut self) -> Change {
        Change::Remove { keyspace: self.keyspace().into(), key: self.key() }
    }

    /// Returns a merge operand, or a value for a keyspace without a merge operator.
    fn merge(&mut self) -> Change {
        let put = self.put();
        let options = self.recorder.handle(put.keyspace()).map(sievedb::Keyspace::options);
        match put {
            Change::Put { keyspace, key, value }
                if options.is_some_and(|it| it.get_merge_operator_name().is_some()) =>
            {
                Change::Merge { keyspace, key, operand: value }
            }
            put => put,
        }
    }

    /// Returns puts and removals.
    fn changes(&mut self) -> Vec<Change> {
        let changes = 1 + self.lots.below(6);
        (0..changes)
            .map(|_| if self.lots.chance(1, 3) { self.removal() } else { self.put() })
            .collect()
    }

    fn range_removal(&mut self, of_prefix: bool) -> Change {
        let (keyspace, one) = (self.keyspace().into(), self.key());
        if of_prefix {
            // Short ones would remove nearly everything.
            let kept = one.len().min(4 + self.lots.below(2));
            return Change::RemovePrefix { keyspace, prefix: one.slice(..kept) };
        }
        let narrow = format!("key{:03}", self.lots.below(200));
        let other = match self.lots.below(8) {
            0 => self.key(),
            _ if one.starts_with(b"key") => [&one[..5], b"9"].concat().into(),
            _ => narrow.into(),
        };
        let upside_down = self.lots.chance(1, 20);
        let (low, high) = if (one > other) != upside_down { (other, one) } else { (one, other) };
        let unbounded = self.lots.chance(1, 50);
        let low = if self.lots.chance(1, 4) { Bound::Excluded(low) } else { Bound::Included(low) };
        let high = match self.lots.below(4) {
            0 if unbounded => Bound::Unbounded,
            0 | 1 => Bound::Included(high),
            _ => Bound::Excluded(high),
        };
        Change::RemoveRange { keyspace, range: (low, high) }
    }

    fn batch(&mut self, changes: usize) {
        let changes = (0..changes)
            .map(|_| match self.lots.below(80) {
                0 => self.range_removal(false),
                1..20 => self.removal(),
                20..30 => self.merge(),
                _ => self.put(),
            })
            .collect();
        let durability = self.durability();
        self.recorder.write(changes, durability);
    }

    fn look_at_snapshot(&mut self) {
        if self.recorder.snapshots() == 0 {
            return;
        }
        let number = self.lots.below(self.recorder.snapshots());
        self.recorder.check_snapshot(number);
        if self.lots.chance(1, 3) {
            self.recorder.release_snapshot(number);
        }
    }

    /// Cuts the power after any operation since the last recovery, and continues.
    fn crash(&mut self) {
        let disk = Arc::clone(self.recorder.disk());
        // Most cuts are at the end: early cuts lose most of the history.
        let operations = disk.operations();
        let back = if self.lots.chance(1, 4) { operations } else { operations.min(12) };
        let at = operations - self.lots.below(back + 1);
        let seed = self.lots.number();
        let loss = match (self.lots.below(8), disk.unsynced(at)) {
            (0, _) => Loss::Nothing,
            (1, _) => Loss::Everything,
            (2, unsynced) if unsynced > 0 => Loss::Alone(self.lots.below(unsynced)),
            (lot, _) => Loss::Random { seed, torn: lot % 3 != 0 },
        };
        let crashed = Arc::new(disk.crash(at, &loss));
        let point = Cut { at, loss }.point();
        let options = options(&crashed, &mut self.lots, self.planted);
        if let Err(text) = self.recorder.go_on_after(crashed, options, point) {
            panic!("{text}\n{}", disk.trace(at, &loss));
        }
    }
}

/// Prints seed and call number when a panic unwinds.
struct Place {
    seed: u64,
    number: usize,
    name: &'static str,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self { seed, number, name } = self;
        eprintln!("call {number} ({name}); SIEVE_SEED={seed} repeats the story");
    }
}
