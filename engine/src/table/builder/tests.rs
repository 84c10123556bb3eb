//! What a table takes while it is written.

use sievedb_filter::FilterKind;
use sievedb_format::{Kind, Trailer};

use super::*;
use crate::{
    Options,
    filter_policy::FilterChoice,
    fs::{Fs, MemoryFs},
    keyspace_options::KeyspaceOptions,
    memory::MemoryUse,
};

const MIB: u64 = 1 << 20;

/// Values are three times in memory: among the entries, in the content of their block, and compressed.
#[test]
fn each_long_value_is_charged_its_copies() {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_seed(1));
    let db = Options::new().fs(fs).worker_threads(0).open("db").expect("a new store");
    let tables = &db.open_store().store().tables;
    let filter = FilterChoice { kind: FilterKind::Ribbon, bits_per_key: 10.0 };
    let long = vec![7; 8 * MIB as usize];
    for (name, entries_before) in [("the first", 0), ("another", 5), ("the 1024th", 1024)] {
        let share = tables.worker_share();
        let created = tables.create(&KeyspaceOptions::new(), filter, &share, 0);
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
