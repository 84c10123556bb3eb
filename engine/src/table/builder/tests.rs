//! Memory of a table during its write.

use sievedb_filter::FilterKind;
use sievedb_format::{Kind, Trailer};

use super::*;
use crate::{
    Options,
    filter_policy::FilterChoice,
    fs::{Fs, MemoryFs},
    keyspace_options::KeyspaceOptions,
    memory::MemoryUse,
    table::{cache_room::WorkerShare, room::NewEntries},
};

const MIB: u64 = 1 << 20;

/// Values are in memory three times: among the entries, in the content of their block, and
/// compressed.
#[test]
fn each_long_value_is_charged_its_copies() {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_seed(1));
    let db = Options::new().fs(fs).worker_threads(0).open("db").expect("a new store");
    let tables = &db.store().tables;
    let filter = FilterChoice { kind: FilterKind::Ribbon, bits_per_key: 10.0 };
    let long = vec![7; 8 * MIB as usize];
    for (name, entries_before) in [("the first", 0), ("another", 5), ("the 1024th", 1024)] {
        let share = tables.worker_share();
        let created = tables.create(&KeyspaceOptions::new(), filter, &share, 0, None);
        let mut table = created.expect("a new file");
        let mut add = |number: u64, value: &[u8]| {
            let key = number.to_be_bytes();
            table.add(InternalKey::new(&key, Trailer::new(1, Kind::Put)), value).expect("room");
        };
        (0..entries_before).for_each(|number| add(number, b"short"));
        assert!(tables.memory.bytes(MemoryUse::Writing) < MIB, "{name}");
        add(entries_before, &long);
        let bytes = tables.memory.bytes(MemoryUse::Writing);
        assert!((24 * MIB..26 * MIB).contains(&bytes), "{name}: {bytes}");
        drop((table, share));
        assert_eq!(tables.memory.bytes(MemoryUse::Writing), 0, "{name}");
    }
}

/// A table that ends because its share is used up has not exceeded it, for any share and any
/// entries.
#[test]
fn a_table_ends_within_its_share() {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_seed(2));
    let options = Options::new().fs(fs).worker_threads(0).memory_budget(8 * MIB);
    let db = options.open("db").expect("a new store");
    let tables = &db.store().tables;
    let filter = FilterChoice { kind: FilterKind::Ribbon, bits_per_key: 10.0 };
    let new = KeyspaceOptions::new;
    let with_ranges = || new().range_filter_bits_per_key(16.0);
    let cases = [
        ("short entries", 8, 2, new(), 5_000..12_000, false),
        ("entries of 116 bytes", 16, 100, new(), 5_000..12_000, false),
        ("long values", 16, 3_000, new(), 5_000..12_000, false),
        ("longer keys", 100, 20, new(), 5_000..12_000, false),
        ("long blocks", 16, 100, new().block_bytes(64 << 10), 3_000..9_000, false),
        ("a range filter", 16, 100, with_ranges(), 4_000..8_000, false),
        ("short entries in a crowd", 8, 2, new(), 170_000..200_000, true),
        ("longer keys in a crowd", 100, 20, new(), 100_000..200_000, true),
        ("a range filter in a crowd", 16, 100, with_ranges(), 4_000..8_000, true),
    ];
    for (name, key_bytes, value_bytes, keyspace, entries, is_crowded) in cases {
        let share = WorkerShare::new(Arc::clone(&tables.cache_room), MIB / 2, false);
        let reading = share.take(100 << 10);
        let of_all = if is_crowded { u64::MAX } else { 0 };
        let all = Some(NewEntries { of_table: u64::MAX, of_all });
        let created = tables.create(&keyspace, filter, &share, share.bytes(), all);
        let mut table = created.expect("a new file");
        let (mut number, mut key, mut most) = (0_u64, vec![b'.'; key_bytes], 0);
        while number == 0 || !table.has_its_share() {
            number += 1;
            key[key_bytes - 8..].copy_from_slice(&number.to_be_bytes());
            let value: Vec<u8> = (0..value_bytes).map(|at| (number * at) as u8).collect();
            let internal = InternalKey::new(&key, Trailer::new(number, Kind::Put));
            table.add(internal, &value).expect("room");
            most = most.max(share.bytes());
        }
        assert!(entries.contains(&number), "{name}: {number} entries");
        assert!(most <= share.bytes_max(), "{name}: {most} of {} bytes", share.bytes_max());
        drop((table, reading));
    }
}
