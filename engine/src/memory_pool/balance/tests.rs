//! Single epochs, and a model of a store.

use super::*;

const MIB: u64 = 1 << 20;
const NOMINAL: u64 = 16 * MIB;
const GHOST_BYTES: u64 = NOMINAL / 4;
const TABLE_BYTES: u64 = 256 * MIB;

/// Drives a balance.
#[derive(Debug, Default)]
struct Driver {
    balance: Balance,
    memtables: u64,
    spared: GhostStats,
    reads: Reads,
}

impl Driver {
    /// Writes `written` bytes, while compactions merged `merged` bytes and the list spared `spared`
    /// bytes.
    fn epoch(&mut self, written: u64, merged: u64, spared: u64) {
        self.balance.note_merge(merged);
        self.memtables += written;
        self.spared.spared_bytes += spared;
        self.spared.samples += spared / (16 << 10);
        self.observe();
    }

    /// As [`epoch`](Self::epoch), with exactly the amount of an epoch. The benefits, per byte, of
    /// memtables and of the cache have this ratio.
    fn benefits(&mut self, of_memtables: f64, of_cache: f64) {
        let active = self.balance.ceiling(NOMINAL) / 2;
        let levels = (TABLE_BYTES as f64 / active as f64).ln();
        let merged = of_memtables * active as f64 / 2.0 * levels;
        self.epoch(active / 2, merged as u64, (of_cache * GHOST_BYTES as f64) as u64);
    }

    fn observe(&mut self) {
        if !self.balance.is_epoch_over(NOMINAL, self.memtables) {
            return;
        }
        self.balance.end_epoch(&Observed {
            nominal: NOMINAL,
            spared: self.spared,
            reads: self.reads,
            ghost_bytes: GHOST_BYTES,
            table_bytes: TABLE_BYTES,
        });
    }

    fn flush(&mut self) {
        self.balance.note_flush(std::mem::take(&mut self.memtables));
    }

    fn share(&self) -> u64 {
        self.balance.share
    }
}

#[test]
fn the_larger_benefit_decides() {
    // (name, share before, benefits of memtables and of the cache in 20 epochs, share after)
    let cases = [
        ("equal", 64, (1.0, 1.0), 64),
        ("within the dead band", 64, (1.0, 1.9), 64),
        ("the cache spares more", 64, (1.0, 2.1), 16),
        ("much more", 64, (1.0, 100.0), 16),
        ("nothing", 64, (0.0, 0.0), 64),
        ("nothing is merged", 64, (0.0, 10.0), 64),
        ("only writes", 64, (1.0, 0.0), 64),
        ("equal after reads", 16, (1.0, 1.0), 16),
        ("memtables spare less than twice", 16, (1.9, 1.0), 16),
        ("memtables spare more", 16, (2.1, 1.0), 64),
    ];
    for (name, before, (of_memtables, of_cache), after) in cases {
        let mut driver = Driver::default();
        driver.balance.share = before;
        (0..20).for_each(|_| driver.benefits(of_memtables, of_cache));
        assert_eq!(driver.share(), after, "{name}");
        assert_eq!(driver.balance.moves.returned, 0, "{name}");
    }
}

#[test]
fn the_share_falls_by_a_step_an_epoch_once_enough_is_known() {
    let mut driver = Driver::default();
    let mut shares = Vec::new();
    for _ in 0..EPOCHS_MIN + 8 {
        driver.benefits(1.0, 10.0);
        shares.push(driver.share());
    }
    let (first, then) = shares.split_at(EPOCHS_MIN as usize);
    assert!(first.iter().all(|share| *share == 64), "{shares:?}");
    assert_eq!(then, [56, 48, 40, 32, 24, 16, 16, 16]);
    assert_eq!(driver.balance.ceiling(NOMINAL), NOMINAL / 4);
    assert_eq!(driver.balance.moves(), CeilingMoves { lowered: 6, ..CeilingMoves::default() });
}

#[test]
fn few_samples_do_not_lower_the_share() {
    let mut driver = Driver::default();
    for _ in 0..20 {
        driver.spared.spared_bytes += MIB;
        driver.spared.samples += 3;
        driver.epoch(4 * MIB, MIB, 0);
    }
    assert_eq!(driver.share(), SHARE_MAX);
    (0..5).for_each(|_| driver.epoch(4 * MIB, MIB, MIB));
    assert!(driver.share() < SHARE_MAX, "the same bytes of more reads do");
}

/// Memtables in which lookups find their entries are a cache themselves.
#[test]
fn entries_found_in_memtables_count() {
    let share_with = |found: u64| {
        let mut driver = Driver::default();
        for _ in 0..20 {
            driver.reads.lookups += 1_000 + found;
            driver.reads.found += found;
            driver.reads.bytes += 2 * MIB;
            driver.benefits(0.1, 1.0);
        }
        driver.share()
    };
    assert_eq!(share_with(0), SHARE_MIN);
    assert_eq!(share_with(10_000), SHARE_MAX, "they would have read 20 MiB");
}

#[test]
fn a_burst_restores_the_share_within_two_epochs() {
    let mut driver = Driver::default();
    (0..20).for_each(|_| driver.benefits(1.0, 50.0));
    assert_eq!(driver.share(), SHARE_MIN);
    // Reads until the burst began count in its first epoch.
    driver.benefits(1.0, 50.0);
    driver.benefits(0.0, 0.0);
    assert_eq!(driver.share(), SHARE_MAX);
    assert_eq!(driver.balance.moves().returned, 1);
    // The share stays while writes continue, and for some epochs of mixed work.
    (0..20).for_each(|_| driver.benefits(1.0, 0.0));
    assert_eq!(driver.share(), SHARE_MAX);
    driver.benefits(1.0, 50.0);
    assert_eq!(driver.share(), SHARE_MAX - SHARE_STEP, "the epochs of the burst count");
    driver.balance.restore();
    (0..EPOCHS_MIN).for_each(|_| driver.benefits(1.0, 50.0));
    assert_eq!(driver.share(), SHARE_MAX);
    assert_eq!(driver.balance.moves().returned, 2);
    driver.balance.restore();
    assert_eq!(driver.balance.moves().returned, 2, "nothing was lowered");
}

#[test]
fn nothing_is_decided_within_an_epoch() {
    let mut driver = Driver::default();
    (0..20).for_each(|_| driver.benefits(1.0, 1.0));
    let epochs = driver.balance.epochs;
    driver.epoch(4 * MIB - 1, MIB, MIB);
    driver.observe();
    assert_eq!(driver.balance.epochs, epochs);
    // Flushed bytes were written before.
    driver.flush();
    driver.observe();
    assert_eq!(driver.balance.epochs, epochs);
    driver.epoch(1, 0, 0);
    assert_eq!(driver.balance.epochs, epochs + 1);
    // Memtables that are dropped are forgotten.
    driver.memtables = 0;
    driver.observe();
    driver.epoch(4 * MIB - 1, 0, 0);
    assert_eq!(driver.balance.epochs, epochs + 1);
    driver.epoch(1, 0, 0);
    assert_eq!(driver.balance.epochs, epochs + 2);
}

/// A store modelled by equations: a pool of 64 MiB, tables of 256 MiB, reads with a power law.
struct Model {
    driver: Driver,
    /// Bytes of blocks requested by reads, for each byte written.
    reads: f64,
    flushed: u64,
    shares: Vec<u64>,
    /// Bytes read and merged.
    bytes: f64,
}

impl Model {
    fn new() -> Self {
        let driver = Driver::default();
        Self { driver, reads: 0.0, flushed: 0, shares: vec![SHARE_MAX], bytes: 0.0 }
    }

    /// Returns the bytes read per byte requested, with a cache of `bytes` bytes.
    fn misses(bytes: f64) -> f64 {
        1.0 - (bytes / TABLE_BYTES as f64).powf(0.3)
    }

    /// Returns the bytes merged for each byte written, with `active` bytes of memtables.
    fn merges(active: f64) -> f64 {
        2.0 * (TABLE_BYTES as f64 / active).ln() / 10_f64.ln() * 10.0 / 2.0
    }

    /// Returns the ratio that the rule compares, at `share`: the benefit of a byte for memtables
    /// divided by that of a byte for the cache.
    fn ratio(&self, share: u64) -> f64 {
        let active = (NOMINAL / SHARE_MAX * share / 2) as f64;
        let cache = (4 * NOMINAL) as f64 - active / 2.0;
        let ghost = GHOST_BYTES as f64;
        let spared = self.reads * (Self::misses(cache) - Self::misses(cache + ghost));
        let merged = Self::merges(active);
        let levels = (TABLE_BYTES as f64 / active).ln();
        merged / (active / 2.0 * levels) / (spared / ghost)
    }

    /// Writes `mib` MiB.
    fn write(&mut self, mib: u64) {
        for _ in 0..16 * mib {
            let active = self.driver.balance.ceiling(NOMINAL) / 2;
            let cache = (4 * NOMINAL - active / 2) as f64;
            let reads = self.reads * MIB as f64 / 16.0;
            let spared = reads * (Self::misses(cache) - Self::misses(cache + GHOST_BYTES as f64));
            self.driver.epoch(MIB / 16, 0, spared as u64);
            self.bytes += reads * Self::misses(cache);
            if self.driver.memtables >= active {
                self.flushed += self.driver.memtables;
                self.driver.flush();
                // Merges are clustered: one at each fourth flush.
                if self.flushed >= 4 * active {
                    let merged = self.flushed as f64 * Self::merges(active as f64);
                    self.driver.balance.note_merge(merged as u64);
                    self.bytes += merged;
                    self.flushed = 0;
                }
            }
            let share = self.driver.share();
            assert!((SHARE_MIN..=SHARE_MAX).contains(&share));
            if self.shares.last() != Some(&share) {
                self.shares.push(share);
            }
        }
    }

    /// Returns the number of times that the share changed its direction.
    fn turns(&self) -> usize {
        let rises: Vec<bool> = self.shares.windows(2).map(|pair| pair[1] > pair[0]).collect();
        rises.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }
}

/// The share converges to the balance of the benefits, and stays there.
#[test]
fn a_steady_load_ends_at_the_balance() {
    let mut ends = Vec::new();
    for reads in [0.0, 1.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 1_000.0, 10_000.0] {
        let mut model = Model { reads, ..Model::new() };
        model.write(400);
        assert_eq!(model.turns(), 0, "{reads}: {:?}", model.shares);
        let (share, changes) = (model.driver.share(), model.shares.len());
        let ratio = model.ratio(share);
        // Bursts of merges are briefly 3/2 of their mean.
        assert!(ratio < 3.0 || share == SHARE_MAX, "{reads}: {share}, {ratio}");
        assert!(ratio > 1.0 / 3.0 || share == SHARE_MIN, "{reads}: {share}, {ratio}");
        model.write(1_000);
        assert_eq!(model.shares.len(), changes, "{reads}: {:?}", model.shares);
        ends.push(share);
    }
    assert!(ends.is_sorted_by(|more, less| more >= less), "{ends:?}");
    assert_eq!((ends[0], ends[ends.len() - 1]), (SHARE_MAX, SHARE_MIN));
    assert!(ends.iter().any(|share| (SHARE_MIN + 1..SHARE_MAX).contains(share)), "{ends:?}");
}

/// Each phase turns the share at most once.
#[test]
fn alternating_loads_turn_the_share_once_each() {
    let mut model = Model::new();
    model.write(100);
    for phase in 0..10 {
        model.reads = if phase % 2 == 0 { 10_000.0 } else { 0.0 };
        model.write(200);
        let want = if phase % 2 == 0 { SHARE_MIN } else { SHARE_MAX };
        assert_eq!(model.driver.share(), want, "{phase}");
    }
    assert!(model.turns() <= 10, "{:?}", model.shares);
    assert_eq!(model.driver.balance.moves().returned, 5);
}

/// No load costs 1/50 more than with the nominal ceiling, and a read-heavy one costs less.
#[test]
fn fewer_bytes_are_read_and_merged() {
    for reads in [0.0, 10.0, 100.0, 300.0, 1_000.0, 10_000.0] {
        let mut model = Model { reads, ..Model::new() };
        model.write(1_000);
        let active = (NOMINAL / 2) as f64;
        let each =
            reads * Model::misses((4 * NOMINAL) as f64 - active / 2.0) + Model::merges(active);
        let nominal = each * (1_000 * MIB) as f64;
        assert!(model.bytes < 1.02 * nominal, "{reads}: {} of {nominal}", model.bytes);
        if reads >= 1_000.0 {
            assert!(model.bytes < 0.995 * nominal, "{reads}: {} of {nominal}", model.bytes);
        }
    }
}
