//! Manifests: contents, errors, and the state after a crash.

mod damage;
mod dump;
mod fault;
mod property;
mod state;

use std::{path::PathBuf, sync::Arc};

use sievedb_format::{Decoder, TableBounds};
use sievedb_sstable::TableExpiry;

use super::{
    FilterReplaced, KeyspaceChanged, KeyspaceCreated, KeyspaceRenamed, ManifestFile, ManifestState,
    TableMoved, VersionEdit,
    current::Current,
    load::{Loaded, load},
    retained::{RetainedFloor, RetainedLog, RetentionChanged},
};
use crate::{
    ChangeRetention, Result,
    fs::{Fs, MemoryFs},
    history_length::HistoryStart,
    log::Position,
    table::{FilterPlace, NewPlace, PrefixFilterPlace, TableMeta},
};

const STORE: u128 = 0x5106_e5db << 64 | 1;
const SEED: u64 = 77;
const FOLDER: &str = "db";

fn new_fs() -> Arc<MemoryFs> {
    let fs = MemoryFs::new();
    fs.create_dir(FOLDER.as_ref()).unwrap();
    fs.settle();
    Arc::new(fs)
}

fn create(fs: &Arc<impl Fs + 'static>, id: u64) -> ManifestFile {
    let state = ManifestState::new(STORE, SEED);
    ManifestFile::create(fs.clone(), PathBuf::from(FOLDER), id, state).unwrap()
}

fn path(id: u64) -> String {
    format!("{FOLDER}/MANIFEST-{id:06}")
}

fn load_from(fs: &dyn Fs) -> Result<Option<Loaded>> {
    load(fs, FOLDER.as_ref())
}

fn no_id() -> u64 {
    panic!("no new manifest is needed")
}

/// A table with all fields set, `first` to `last` in level `level`.
fn table(id: u64, level: u8, first: &str, last: &str) -> Arc<TableMeta> {
    Arc::new(TableMeta {
        id,
        level,
        run: 0,
        bytes: 4096,
        checksum: 0x0123_4567_89ab_cdef,
        salt: 0xfedc_ba98_7654_3210,
        filter: Some(FilterPlace { file_id: id, offset: 3072, bytes: 128, checksum: 0xdead_beef }),
        prefix_filter: Some(PrefixFilterPlace {
            place: FilterPlace { file_id: id, offset: 3200, bytes: 79, checksum: 1 },
            extractor: "fixed:8".into(),
        }),
        range_filter: Some(FilterPlace { file_id: id, offset: 3328, bytes: 90, checksum: 2 }),
        global_sequence: None,
        bounds: TableBounds::inclusive(first.as_bytes(), last.as_bytes()),
        entries: 40,
        tombstones: 2,
        range_tombstones: 0,
        smallest_sequence: 3,
        largest_sequence: 42,
        expiry: None,
        blob_files: vec![],
        blob_depth: 0,
        written_ms: None,
    })
}

/// The same with entries that expire, and with range tombstones.
fn with_later_fields(table: &TableMeta) -> Arc<TableMeta> {
    // 20 entries of 10,000 bytes, which expire from 100 to 108 ms.
    let bytes = [20, 0x90, 0x4e, 100, 1, 1, 1, 1, 1, 1, 1, 1];
    let expiry = TableExpiry::decode("expiry", &mut Decoder::new(&bytes)).unwrap();
    Arc::new(TableMeta { range_tombstones: 1, expiry: Some(Box::new(expiry)), ..table.clone() })
}

/// The place of a filter in the file `id`, which holds nothing else.
fn own_place(id: u64) -> FilterPlace {
    FilterPlace { file_id: id, offset: 64, bytes: 192, checksum: 0xfeed_beef }
}

/// Memtables of 64 KiB, a merge operator, and a default TTL of 300 ms.
fn later_options() -> Vec<u8> {
    [&[2, 3, 0x80, 0x80, 4, 0x21, 13][..], b"sieve.counter", &[0x23, 2, 0xac, 2]].concat()
}

fn retained_log(last_sequence: u64) -> RetainedLog {
    RetainedLog { secret: 0x5ec1, last_sequence, bytes: 640, retired_ms: 900 }
}

/// The edits of a small store, in order.
fn edits() -> Vec<VersionEdit> {
    // Blocks of 8 KiB.
    let options = [10, 2, 0x80, 0x40];
    let keyspace =
        |id, name: &str| KeyspaceCreated { id, name: name.into(), options: options.into() };
    vec![
        VersionEdit {
            next_file_id: Some(10),
            next_keyspace_id: Some(3),
            logs_created: vec![(2, 0x5ec2)],
            keyspaces_created: vec![keyspace(1, "default"), keyspace(2, "users")],
            ..VersionEdit::default()
        },
        VersionEdit {
            next_file_id: Some(20),
            last_sequence: Some(50),
            store_clock_ms: Some(1000),
            tables_added: vec![(1, table(11, 0, "a", "m")), (2, table(12, 1, "a", "c"))],
            flushed: vec![(1, 42), (2, 42)],
            logs_created: vec![(13, 0x5ec3)],
            log_floor: Some(13),
            log_mark: Some(Position { file_id: 13, offset: 640 }),
            ..VersionEdit::default()
        },
        VersionEdit {
            tables_moved: vec![TableMoved { keyspace: 1, id: 11, level: 6, run: 0 }],
            tables_removed: vec![(2, 12)],
            tables_added: vec![(2, table(14, 1, "a", "b")), (2, table(15, 1, "c", "d"))],
            ..VersionEdit::default()
        },
        VersionEdit {
            keyspaces_changed: vec![KeyspaceChanged { id: 1, options: later_options() }],
            keyspaces_renamed: vec![KeyspaceRenamed { id: 2, sequence: 51, name: "old".into() }],
            keyspaces_cleared: vec![(2, 52)],
            keyspaces_dropped: vec![2],
            ..VersionEdit::default()
        },
        VersionEdit {
            tables_added: vec![(1, with_later_fields(&table(16, 1, "a", "b")))],
            filters_replaced: vec![
                FilterReplaced { keyspace: 1, id: 11, place: NewPlace::Point(Some(own_place(17))) },
                FilterReplaced { keyspace: 1, id: 16, place: NewPlace::Point(None) },
            ],
            sequence_times: vec![(900, 40), (2000, 42)],
            history_from: vec![(1, HistoryStart { sequence: 41, clock_ms: 900 })],
            ..VersionEdit::default()
        },
        VersionEdit {
            filters_replaced: vec![
                FilterReplaced {
                    keyspace: 1,
                    id: 11,
                    place: NewPlace::Prefix(Some(PrefixFilterPlace {
                        place: own_place(18),
                        extractor: "custom:host".into(),
                    })),
                },
                FilterReplaced { keyspace: 1, id: 11, place: NewPlace::Range(Some(own_place(19))) },
                FilterReplaced { keyspace: 1, id: 16, place: NewPlace::Prefix(None) },
                FilterReplaced { keyspace: 1, id: 16, place: NewPlace::Range(None) },
            ],
            ..VersionEdit::default()
        },
        VersionEdit {
            retention_changed: Some(RetentionChanged {
                limits: ChangeRetention { bytes_max: 4096, age_ms_max: 300 },
                from: 30,
            }),
            logs_retained: vec![(9, retained_log(40)), (12, retained_log(50))],
            retained_floor: Some(RetainedFloor { id: 10, from: 40 }),
            ..VersionEdit::default()
        },
    ]
}

/// The states before the first and after each of the [`edits`].
fn states(id: u64) -> Vec<ManifestState> {
    let mut state = ManifestState::new(STORE, SEED);
    state.next_file_id = id + 1;
    let mut states = vec![state.clone()];
    for edit in edits() {
        state.apply(&edit).unwrap();
        states.push(state.clone());
    }
    states
}

/// A manifest with all [`edits`]. Returns where each record ends, the first edit's at index 0.
fn small_manifest(fs: &Arc<impl Fs + 'static>, id: u64) -> Vec<u64> {
    let mut manifest = create(fs, id);
    let mut ends = vec![manifest.position().offset];
    for edit in edits() {
        assert_eq!(manifest.append(&edit, no_id).unwrap().replaced, None);
        ends.push(manifest.position().offset);
    }
    ends
}
