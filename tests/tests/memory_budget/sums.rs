//! Twenty keyspaces, filled by several threads.

use std::thread;

use sievedb::{
    FilterPolicy, FilterPolicyKind, Keyspace, KeyspaceOptions, Options, PrefixExtractor,
    stats::MemoryStats,
};
use sievedb_tests::{rng::Rng, settings};

use crate::{
    MIB,
    counting::{forget_peak, peak_bytes, turn},
    samples::sample_while,
};

const BUDGET: usize = 24 * MIB;

/// Measurements while a store was filled.
struct Filled {
    /// Peak of allocated bytes.
    peak: usize,
    /// Largest sample, including block pages.
    sampled: usize,
    /// The same with filters.
    with_filters: usize,
    /// Peak of filter memory: chunks of the filter arena do not come from the allocator.
    filters: usize,
    memory: MemoryStats,
}

/// Fills twenty keyspaces from four threads.
fn fill(options: &Options, keyspace: &KeyspaceOptions) -> Filled {
    const KEYSPACES: u64 = 20;

    let seed = settings::seed("memory budget", 4);
    let long = std::env::var_os("SIEVE_LONG").is_some();
    let writes_of_each = if long { 400_000 } else { 30_000 };
    let dir = tempfile::tempdir().unwrap();
    let before = forget_peak();
    let db = options.clone().open(dir.path()).unwrap();
    let keyspaces: Vec<Keyspace> = (0..KEYSPACES)
        .map(|number| db.keyspace_with(&format!("{number}"), keyspace).unwrap())
        .collect();
    let [mut filters, mut sampled, mut with_filters] = [0; 3];
    let see = |bytes: usize, memory: &MemoryStats| {
        let (bytes, of_filters) = (bytes.saturating_sub(before), memory.filter_bytes as usize);
        filters = filters.max(of_filters);
        sampled = sampled.max(bytes);
        with_filters = with_filters.max(bytes + of_filters);
    };
    sample_while(&db, see, || {
        thread::scope(|scope| {
            for number in 0..4_u64 {
                let keyspaces = &keyspaces;
                scope.spawn(move || write_and_read(keyspaces, seed ^ number << 32, writes_of_each));
            }
        });
    });
    let peak = peak_bytes() - before;
    let memory = db.stats().memory;
    println!("peak {peak}, sampled {sampled}, with filters {with_filters}, budget {BUDGET}");
    println!("filters {filters}; {memory:?}");
    println!("{:?}", db.stats().background);
    assert!(db.stats().background.compactions > 0, "the test must do something");
    assert!(memory.memtable_bytes <= memory.memtable_bytes_max);
    Filled { peak, sampled, with_filters, filters, memory }
}

fn small_keyspace() -> KeyspaceOptions {
    KeyspaceOptions::new().base_level_bytes(4 << 20).table_bytes(2 << 20)
}

#[test]
fn sum_of_all_parts_stays_within_the_budget() {
    let _turn = turn();
    // With small filters, unused filter memory cannot hide an excess.
    let options = Options::new().memory_budget(BUDGET as u64).filter_bytes_max(512 << 10);
    let Filled { peak, filters, with_filters, .. } = fill(&options, &small_keyspace());
    let sum = peak + filters;
    assert!(sum <= BUDGET, "{peak} and {filters} bytes at the most");
    assert!(with_filters <= BUDGET, "{with_filters} bytes with pages of blocks");
}

/// Filters of all roles stay within the budget's limit, of which they use a large part.
#[test]
fn filters_stay_within_their_limit() {
    // A few filters come from the allocator.
    const HEAP_BYTES: usize = MIB;

    let _turn = turn();
    let keyspace = small_keyspace()
        .filter_policy(FilterPolicy::new(FilterPolicyKind::Ribbon).bits_per_key(40.0))
        .prefix_extractor(PrefixExtractor::FixedLength(8))
        .range_filter_bits_per_key(40.0);
    let options = Options::new().memory_budget(BUDGET as u64);
    let Filled { peak, sampled, filters, memory, .. } = fill(&options, &keyspace);
    let part = memory.filter_bytes_max as usize;
    assert_eq!(part, BUDGET / 4);
    assert!((HEAP_BYTES..=part).contains(&filters), "{filters} bytes of filters, {part} allowed");
    let others = BUDGET - part;
    let most = peak.max(sampled);
    assert!(most <= others + HEAP_BYTES, "{most} bytes beside {part} of filters");
}

/// Writes to all keyspaces, mostly the first ones, reads back, and scans.
fn write_and_read(keyspaces: &[Keyspace], seed: u64, writes: u64) {
    let mut rng = Rng::new(seed);
    let value = vec![0x5e; 2_000];
    for number in 0..writes {
        let low = rng.below(keyspaces.len()).min(rng.below(keyspaces.len()));
        let keyspace = &keyspaces[low];
        let key = rng.below(1 << 20).to_be_bytes();
        let mut value = value[..20 + rng.below(1_000)].to_vec();
        // Incompressible: otherwise little memory is used.
        value.chunks_mut(8).for_each(|word| word[0] = rng.below(256) as u8);
        keyspace.insert(key, &value).unwrap();
        match number % 64 {
            0..8 => {
                keyspace.get(rng.below(1 << 20).to_be_bytes()).unwrap();
            }
            63 => {
                for entry in keyspace.range(key..).take(50) {
                    entry.unwrap();
                }
            }
            _ => {}
        }
    }
}
