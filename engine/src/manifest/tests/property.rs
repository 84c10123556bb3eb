//! Random edits and states are decoded from their bytes.

use proptest::{
    collection::vec,
    option,
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use sievedb_format::{Corruption, Decoder, Encode, SEQUENCE_MAX, TableBounds};
use sievedb_sstable::{BlobUse, TableExpiry};

use super::*;
use crate::{manifest::retained::RetainedChanges, tests::seeds};

/// Runs `test` on 256 values, drawn from each seed.
fn check<S: Strategy>(strategy: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    for seed in seeds(1) {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let config = Config { failure_persistence: None, ..Config::default() };
        TestRunner::new_with_rng(config, rng).run(&strategy, &test).unwrap();
    }
}

fn any_place() -> impl Strategy<Value = FilterPlace> {
    let filter = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>());
    filter.prop_map(|(file_id, offset, bytes, checksum)| FilterPlace {
        file_id,
        offset,
        bytes,
        checksum,
    })
}

fn any_blob_use() -> impl Strategy<Value = BlobUse> {
    let sizes = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    sizes.prop_map(|(file_id, bytes, used_bytes, checksum, salt)| BlobUse {
        file_id,
        bytes,
        checksum,
        salt,
        used_bytes: used_bytes.min(bytes),
    })
}

fn any_table() -> impl Strategy<Value = Arc<TableMeta>> {
    let ids = (any::<u64>(), any::<u8>(), any::<u64>(), any::<u64>());
    let sums = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let keys = [vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..9)];
    let sequences = [0..=SEQUENCE_MAX, 0..=SEQUENCE_MAX];
    let filters =
        (option::of(any_place()), option::of(any_prefix_place()), option::of(any_place()));
    let more = (filters, option::of(1..=SEQUENCE_MAX), option::of(any_expiry()));
    let all = (ids, sums, keys, sequences, more, vec(any_blob_use(), 0..3), 0..4_u64);
    all.prop_map(|(ids, sums, mut keys, mut sequences, more, mut blob_files, exclusions)| {
        keys.sort_unstable();
        blob_files.sort_by_key(|file| file.file_id);
        sequences.sort_unstable();
        if let Some(global) = more.1 {
            sequences = [global; 2];
        }
        let entries = sums.2 >> 16;
        let tombstones = sums.3.min(entries);
        let [smallest, largest] = keys;
        let mut bounds = TableBounds::inclusive(smallest, largest);
        if bounds.smallest != bounds.largest {
            bounds.set_exclusions("bounds", exclusions).unwrap();
        }
        let (filter, prefix_filter, range_filter) = more.0;
        Arc::new(TableMeta {
            id: ids.0,
            level: ids.1 % 7,
            run: ids.2,
            bytes: ids.3,
            checksum: sums.0,
            salt: sums.1,
            filter,
            prefix_filter,
            range_filter,
            global_sequence: more.1,
            bounds,
            entries,
            tombstones,
            range_tombstones: if more.1.is_some() { 0 } else { tombstones / 2 },
            smallest_sequence: sequences[0],
            largest_sequence: sequences[1],
            expiry: more.2.map(Box::new),
            blob_depth: (sums.1 % 3).min(blob_files.len() as u64),
            blob_files,
            written_ms: Some(sums.0).filter(|ms| ms % 3 > 0),
        })
    })
}

fn any_expiry() -> impl Strategy<Value = TableExpiry> {
    let numbers = (1..=u64::MAX, any::<u64>(), any::<u64>(), vec(0..1_u64 << 60, 8));
    numbers.prop_map(|(entries, bytes, oldest, differences)| {
        let mut encoded = Vec::new();
        [entries, bytes, oldest >> 1].into_iter().for_each(|number| encoded.put_varint(number));
        differences.into_iter().for_each(|number| encoded.put_varint(number));
        TableExpiry::decode("expiry", &mut Decoder::new(&encoded)).expect("well formed")
    })
}

fn any_prefix_place() -> impl Strategy<Value = PrefixFilterPlace> {
    (any_place(), ".{0,40}")
        .prop_map(|(place, name)| PrefixFilterPlace { place, extractor: name.into() })
}

fn start(number: u64) -> HistoryStart {
    HistoryStart { sequence: number, clock_ms: number.rotate_left(7) }
}

fn any_edit() -> impl Strategy<Value = VersionEdit> {
    let pair = || (any::<u64>(), any::<u64>());
    let number = || option::of(any::<u64>());
    let numbers = (number(), number(), number(), number(), number(), number());
    let keyspace = (any::<u64>(), ".{1,60}", vec(any::<u8>(), 0..40))
        .prop_map(|(id, name, options)| KeyspaceCreated { id, name, options });
    let changed = (any::<u64>(), vec(any::<u8>(), 0..40))
        .prop_map(|(id, options)| KeyspaceChanged { id, options });
    let moved = (any::<u64>(), any::<u64>(), any::<u8>(), any::<u64>())
        .prop_map(|(keyspace, id, level, run)| TableMoved { keyspace, id, level, run });
    let new_place = prop_oneof![
        option::of(any_place()).prop_map(NewPlace::Point),
        option::of(any_prefix_place()).prop_map(NewPlace::Prefix),
        option::of(any_place()).prop_map(NewPlace::Range),
    ];
    let replaced = (any::<u64>(), any::<u64>(), new_place)
        .prop_map(|(keyspace, id, place)| FilterReplaced { keyspace, id, place });
    let ids = (vec(any::<u64>(), 0..4), vec(any::<u64>(), 0..4));
    let tables = (vec((any::<u64>(), any_table()), 0..4), vec(pair(), 0..4), vec(moved, 0..4));
    let rest = (
        option::of(any::<u128>()),
        vec(pair(), 0..4),
        option::of(pair()),
        vec(replaced, 0..4),
        vec(pair(), 0..4),
        vec(pair(), 0..4),
        (
            option::of(any_retention()),
            vec((any::<u64>(), any_log()), 0..4),
            option::of(any_floor()),
        ),
    );
    let renamed = (any::<u64>(), any::<u64>(), ".{1,60}")
        .prop_map(|(id, sequence, name)| KeyspaceRenamed { id, sequence, name });
    let keyspaces =
        (vec(keyspace, 0..4), vec(changed, 0..4), vec(renamed, 0..4), vec(pair(), 0..4));
    (numbers, ids, keyspaces, tables, rest).prop_map(|(numbers, ids, keyspaces, tables, rest)| {
        VersionEdit {
            store_id: rest.0,
            hash_seed: numbers.0,
            next_file_id: numbers.1,
            next_keyspace_id: numbers.2,
            last_sequence: numbers.3,
            store_clock_ms: numbers.4,
            logs_created: ids.0.into_iter().map(|id| (id, !id)).collect(),
            log_floor: numbers.5,
            keyspaces_created: keyspaces.0,
            keyspaces_changed: keyspaces.1,
            keyspaces_renamed: keyspaces.2,
            keyspaces_cleared: keyspaces.3,
            keyspaces_dropped: ids.1,
            tables_added: tables.0,
            tables_removed: tables.1,
            tables_moved: tables.2,
            filters_replaced: rest.3,
            flushed: rest.1,
            log_mark: rest.2.map(|(file_id, offset)| Position { file_id, offset }),
            sequence_times: rest.4,
            history_from: rest.5.into_iter().map(|(id, number)| (id, start(number))).collect(),
            retention_changed: rest.6.0,
            logs_retained: rest.6.1,
            retained_floor: rest.6.2,
        }
    })
}

fn any_retention() -> impl Strategy<Value = RetentionChanged> {
    (any::<u64>(), any::<u64>(), 0..=SEQUENCE_MAX).prop_map(|(bytes_max, age_ms_max, from)| {
        RetentionChanged { limits: ChangeRetention { bytes_max, age_ms_max }, from }
    })
}

fn any_log() -> impl Strategy<Value = RetainedLog> {
    (any::<u64>(), 0..=SEQUENCE_MAX, any::<u64>(), any::<u64>()).prop_map(
        |(secret, last_sequence, bytes, retired_ms)| RetainedLog {
            secret,
            last_sequence,
            bytes,
            retired_ms,
        },
    )
}

fn any_floor() -> impl Strategy<Value = RetainedFloor> {
    (any::<u64>(), 0..=SEQUENCE_MAX).prop_map(|(id, from)| RetainedFloor { id, from })
}

/// States that edits can lead to: tables in runs of their own.
fn any_state() -> impl Strategy<Value = ManifestState> {
    let keyspace = (vec(any::<u8>(), 0..20), 0..=SEQUENCE_MAX, vec(any_table(), 0..5));
    let logs = proptest::collection::btree_map(50..100_u64, any::<u64>(), 0..5);
    let mark = (any::<u64>(), any::<u64>());
    let numbers = (any::<u64>(), any::<u64>(), 0..=SEQUENCE_MAX, 0..50_u64);
    let retained = option::of((any_retention(), vec(any_log(), 0..4)));
    let all = (numbers, mark, logs, vec(keyspace, 0..4), retained);
    all.prop_map(|(numbers, mark, logs, keyspaces, retained)| {
        let mut state = ManifestState::new(STORE, numbers.0);
        state.next_file_id = 1000;
        state.next_keyspace_id = 10;
        state.store_clock_ms = numbers.1;
        state.last_sequence = numbers.2;
        state.log_floor = numbers.3;
        state.log_mark = Position { file_id: mark.0, offset: mark.1 };
        state.logs = logs;
        let retained = retained.filter(|(changed, _)| !changed.limits.is_none());
        state.retained = retained.map(|(RetentionChanged { limits, from }, mut logs)| {
            logs.sort_unstable_by_key(|log| log.last_sequence);
            logs.truncate(state.log_floor as usize);
            let logs = (0..).zip(logs).collect();
            RetainedChanges { limits, from, logs }
        });
        for (index, (options, flushed, tables)) in keyspaces.into_iter().enumerate() {
            let mut keyspace = super::super::KeyspaceState {
                name: format!("k{index}"),
                options,
                flushed,
                renamed: flushed / 2,
                history_from: start(flushed / 3),
                ..Default::default()
            };
            for (number, table) in tables.into_iter().enumerate() {
                let id = (100 * (index + 1) + number) as u64;
                // All tables are on level 0: other levels have one run each, and these tables
                // overlap.
                let table = TableMeta { id, level: 0, run: id, ..TableMeta::clone(&table) };
                state.last_sequence = state.last_sequence.max(table.largest_sequence);
                keyspace.tables.insert(id, Arc::new(table));
            }
            state.last_sequence = state.last_sequence.max(flushed);
            state.keyspaces.insert(index as u64 + 1, Arc::new(keyspace));
        }
        let of_number = |number: u64| (1 + (number << 20), number.min(state.last_sequence));
        let times: Vec<_> = (0..numbers.1 % 5).map(of_number).collect();
        times.into_iter().for_each(|(ms, sequence)| state.sequence_times.note(ms, sequence));
        state
    })
}

#[test]
fn an_edit_returns_from_its_bytes() {
    check(any_edit(), |edit| {
        prop_assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit));
        Ok(())
    });
}

#[test]
fn an_edit_recreates_its_state() {
    check(any_state(), |state| {
        let bytes = state.to_edit().encode();
        let mut again = ManifestState::new(STORE, state.hash_seed);
        again.apply(&VersionEdit::decode(&bytes).unwrap()).unwrap();
        prop_assert_eq!(again, state);
        Ok(())
    });
}

#[test]
fn damaged_edits_do_not_panic() {
    check((any_edit(), any::<proptest::sample::Index>(), any::<u8>()), |(edit, at, byte)| {
        let mut bytes = edit.encode();
        if bytes.is_empty() {
            return Ok(());
        }
        let at = at.index(bytes.len());
        let cut = VersionEdit::decode(&bytes[..at]);
        bytes[at] = byte;
        let changed = VersionEdit::decode(&bytes);
        let mut state = ManifestState::new(STORE, SEED);
        for edit in [cut, changed].into_iter().flatten() {
            let _ = state.apply(&edit);
        }
        Ok(())
    });
}

#[test]
fn fields_that_a_later_release_adds_are_skipped_or_refused() {
    let edit = edits().swap_remove(1);
    // Field 30 of an edit, first as optional, then as required.
    let with = |tag: u8| [&edit.encode()[..], &[tag, 2, 7, 7]].concat();
    assert_eq!(VersionEdit::decode(&with(60)), Ok(edit.clone()));
    let what = "field of a version edit";
    assert_eq!(VersionEdit::decode(&with(61)), Err(Corruption::Unsupported { what, value: 30 }));
    let twice = [&edit.encode()[..], &[11, 1, 60]].concat();
    assert_eq!(
        VersionEdit::decode(&twice),
        Err(Corruption::Order { what: "last sequence number" })
    );
}
