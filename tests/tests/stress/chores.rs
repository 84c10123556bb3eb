//! Maintenance concurrent with readers and writers.

use std::{thread, time::Duration};

use sievedb::{Durability, Error, FilterPolicy, Keyspace};

use super::{
    check::Seen,
    random::Random,
    run::{More, Shared},
    small_keyspace,
};

/// Starts threads that compact, flush, sync, hold snapshots, and create and drop keyspaces.
pub(super) fn start(more: More<'_, '_>) {
    let More { scope, shared } = more;
    scope.spawn(|| compact(shared));
    scope.spawn(|| hold_snapshots(shared));
    for number in 0..2 {
        scope.spawn(move || create_and_drop(shared, number));
    }
    scope.spawn(|| change_filters(shared));
}

fn compact(shared: &Shared) {
    let Shared { db, mirror, .. } = shared;
    let mut random = Random::new(shared.seed ^ 1);
    while !shared.is_over() {
        match random.below(5) {
            0 => db.compact().unwrap(),
            1 => mirror.compact().unwrap(),
            2 => db.flush().unwrap(),
            3 => mirror.flush().unwrap(),
            _ => db.persist(Durability::Disk).unwrap(),
        }
        thread::sleep(Duration::from_millis(u64::from(random.below(100))));
        // Counters are summed while their threads count.
        let stats = db.stats();
        assert!(stats.levels.iter().all(|level| level.tables >= level.runs), "{stats}");
    }
}

/// Raises and lowers the filter limit, and changes the policy of a keyspace.
fn change_filters(shared: &Shared) {
    let Shared { db, mirror, .. } = shared;
    let mut random = Random::new(shared.seed ^ 9);
    while !shared.is_over() {
        let bytes_max = u64::from(random.below(30)).pow(3) * 10;
        db.set_filter_bytes_max(bytes_max).unwrap();
        let found = db.stats().memory.filter_bytes;
        assert!(found <= bytes_max, "{found} bytes of filters, {bytes_max} are allowed");
        let policy = FilterPolicy::default().bits_per_key(f64::from(random.below(20)));
        let policy = policy.memory_bytes_max(u64::from(random.below(30)).pow(3) * 10);
        mirror.set_filter_policy(policy).unwrap();
        thread::sleep(Duration::from_millis(u64::from(random.below(50))));
    }
    db.set_filter_bytes_max(u64::MAX).unwrap();
}

/// Holds several snapshots, each read repeatedly across flushes and compactions.
fn hold_snapshots(shared: &Shared) {
    let Shared { db, progress, .. } = shared;
    let mut random = Random::new(shared.seed ^ 2);
    let mut held = Vec::new();
    while !shared.is_over() {
        let least = progress.all_acknowledged();
        let (snapshot, scan) = (db.snapshot(), db.iter());
        let seen = Seen::collect(Seen::ALL, snapshot.iter(), false);
        seen.check(progress, &least, false);
        held.push((snapshot, scan, least, seen));
        thread::sleep(Duration::from_millis(u64::from(random.below(50))));
        for (snapshot, _, _, seen) in &held {
            assert!(*seen == Seen::collect(Seen::ALL, snapshot.iter(), false), "it changed");
        }
        if held.len() > 6 {
            let at = random.below(6) as usize;
            let (snapshot, scan, least, _) = held.swap_remove(at);
            drop(snapshot);
            // The iterator is slightly later than the snapshot.
            Seen::collect(Seen::ALL, scan.rev(), true).check(progress, &least, false);
        }
    }
}

/// Fills a keyspace, drops it and recreates it: no old entry may be visible.
fn create_and_drop(shared: &Shared, number: u32) {
    let Shared { db, .. } = shared;
    let name = format!("comes and goes {number}");
    let mut random = Random::new(shared.seed ^ (3 + u64::from(number)));
    for round in 0_u32.. {
        if shared.is_over() {
            return;
        }
        let keyspace = db.keyspace_with(&name, &small_keyspace()).unwrap();
        let count = random.below(2000);
        fill(&keyspace, round, count);
        if random.below(3) == 0 {
            keyspace.flush().unwrap();
        }
        check_filled(&keyspace, round, count);
        // Compactions and iterators outlive the keyspace.
        let scan = keyspace.iter();
        let mut batch = db.batch();
        batch.insert(&keyspace, "late", "").unwrap();
        assert!(db.drop_keyspace(&name).unwrap());
        assert!(!db.keyspaces().unwrap().contains(&name));
        let left: Vec<_> = scan.collect::<sievedb::Result<_>>().unwrap();
        assert_eq!(left.len() as u32, count, "an iterator outlives its keyspace");
        let dropped = |outcome| matches!(outcome, Err(Error::KeyspaceDropped { .. }));
        assert!(dropped(keyspace.insert("late", "")), "a write to a dropped keyspace");
        assert!(dropped(keyspace.get("late").map(drop)), "a read of a dropped keyspace");
        assert!(dropped(keyspace.flush()), "a flush of a dropped keyspace");
        assert!(dropped(keyspace.compact()), "a compaction of a dropped keyspace");
        assert!(
            dropped(batch.commit(Durability::OsBuffer).map(drop)),
            "a batch to a dropped keyspace"
        );
        assert!(!db.drop_keyspace(&name).unwrap());
    }
}

fn fill(keyspace: &Keyspace, round: u32, count: u32) {
    assert!(keyspace.iter().next().is_none(), "round {round} begins with old entries");
    for key in 0..count {
        keyspace.insert(key.to_be_bytes(), round.to_be_bytes().repeat(20)).unwrap();
    }
}

fn check_filled(keyspace: &Keyspace, round: u32, count: u32) {
    let mut keys = 0..count;
    for entry in keyspace.iter() {
        let (key, value) = entry.unwrap();
        assert_eq!(*key, keys.next().expect("more entries than were written").to_be_bytes());
        assert_eq!(*value, round.to_be_bytes().repeat(20));
    }
    assert_eq!(keys.len(), 0, "entries are missing");
}
