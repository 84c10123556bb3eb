//! The writes of the fixtures, and what a reader must find. Never changes after a release.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use sievedb::{
    ChangeRetention, Compression, Counter, Db, FilterPolicy, FilterPolicyKind, HistoryLength,
    KeyspaceOptions, Options, PrefixExtractor, clock::ManualClock,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

/// Entries of each keyspace, and the versions of the key `audited`, the newest first.
pub(super) type Contents = BTreeMap<(String, Vec<u8>), Vec<Option<Bytes>>>;

const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn options(fs: &Arc<MemoryFs>) -> Options {
    Options::new()
        .fs(fs.clone())
        .clock(Arc::new(ManualClock::new()))
        .worker_threads(0)
        .log_segment_bytes(4 << 10)
        .retain_changes(ChangeRetention::bytes(1 << 20))
}

fn keyspaces() -> [(&'static str, KeyspaceOptions); 5] {
    let small = || KeyspaceOptions::new().block_bytes(1 << 10).table_bytes(64 << 10);
    [
        ("default", small()),
        ("raw", small().compression(Compression::None).range_filter_bits_per_key(12.0)),
        ("counters", small().merge_operator(Arc::new(Counter))),
        ("sessions", small().default_ttl(HOUR).prefix_extractor(PrefixExtractor::FixedLength(4))),
        ("audit", small().keep_history(HistoryLength::Sequences(1 << 30))),
    ]
}

/// Writes each kind of entry into tables of two levels and into the log. Closes the store.
pub(super) fn write(fs: &Arc<MemoryFs>) -> Contents {
    let [(_, default), others @ ..] = keyspaces();
    let db = options(fs).keyspace(default.clone()).open(STORE_DIR).unwrap();
    for (name, options) in &others {
        db.keyspace_with(name, options).unwrap();
    }
    for round in 0..3_u64 {
        write_round(&db, round);
        for name in db.keyspaces().unwrap() {
            let keyspace = db.keyspace(&name).unwrap();
            match round {
                0 => keyspace.compact().unwrap(),
                1 => keyspace.flush().unwrap(),
                _ => {}
            }
        }
        if round == 1 {
            // Filters in files of their own.
            for kind in [FilterPolicyKind::None, FilterPolicyKind::Bloom] {
                db.default_keyspace().set_filter_policy(FilterPolicy::new(kind)).unwrap();
                db.wait_for_background().unwrap();
            }
        }
    }
    let expected = contents(&db);
    db.close().unwrap();
    expected
}

fn write_round(db: &Db, round: u64) {
    let keyspace = |name: &str| db.keyspace(name).unwrap();
    let (raw, counters) = (keyspace("raw"), keyspace("counters"));
    let (sessions, audit) = (keyspace("sessions"), keyspace("audit"));
    for number in (0..60_u64).filter(|number| !(number + round).is_multiple_of(3)) {
        let value = (number * 1_000 + round).to_be_bytes().repeat(1 + (number % 5) as usize);
        let key = format!("key {number:03}");
        let mut batch = db.batch();
        batch.insert(db.default_keyspace(), &key, &value).unwrap();
        batch.insert(&raw, number.to_be_bytes(), &value).unwrap();
        batch.commit(sievedb::Durability::Disk).unwrap();
        counters.merge(format!("page {}", number % 7), (number as i64).to_be_bytes()).unwrap();
        sessions
            .insert_with_ttl(format!("user{number}"), &value, HOUR * (1 + number as u32))
            .unwrap();
    }
    sessions.insert_without_ttl("root", round.to_be_bytes()).unwrap();
    db.remove(format!("key {:03}", 10 + round)).unwrap();
    raw.remove_range((20 + round).to_be_bytes()..(24 + round).to_be_bytes()).unwrap();
    audit.insert("audited", format!("value {round}")).unwrap();
    audit.insert("gone", "1").unwrap();
    audit.remove("gone").unwrap();
}

pub(super) fn contents(db: &Db) -> Contents {
    let mut contents = Contents::new();
    for name in db.keyspaces().unwrap() {
        for entry in db.keyspace(&name).unwrap().iter() {
            let (key, value) = entry.unwrap();
            contents.insert((name.clone(), key.to_vec()), vec![Some(value)]);
        }
    }
    for key in ["audited", "gone"] {
        let versions = db.keyspace("audit").unwrap().history(key).unwrap();
        let versions = versions.map(|version| version.unwrap().value).collect();
        contents.insert(("versions".to_owned(), key.into()), versions);
    }
    contents
}
