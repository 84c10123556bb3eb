//! Valid and invalid edits.

use sievedb_format::Corruption;

use super::*;

fn base() -> ManifestState {
    states(1).swap_remove(3)
}

#[test]
fn edits_add_up() {
    let states = states(1);
    let [_, _, flushed, compacted, dropped, replaced, of_scans, retained] = &states[..] else {
        panic!("seven edits")
    };
    let kept = retained.retained.as_ref().expect("changes are kept");
    assert_eq!((kept.from, kept.bytes(), retained.retains(12)), (40, 640, true));
    assert!(!retained.retains(9) && !retained.retains(13), "dropped, and part of the log");
    assert_eq!((flushed.last_sequence, flushed.log_floor), (50, 13));
    assert_eq!(flushed.logs.keys().copied().collect::<Vec<_>>(), [13], "2 is obsolete");
    assert_eq!(compacted.keyspaces[&1].tables[&11].level, 6);
    assert_eq!(flushed.keyspaces[&1].tables[&11].level, 0, "copies are apart");
    assert_eq!(compacted.keyspaces[&2].tables.keys().copied().collect::<Vec<_>>(), [14, 15]);
    assert_eq!(dropped.keyspaces[&1].options, later_options());
    assert_eq!(dropped.keyspaces.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(dropped.next_keyspace_id, 3, "ids are not used again");
    let place = |state: &ManifestState, id| state.keyspaces[&1].tables[&id].filter;
    assert_eq!(place(dropped, 11).map(|place| place.file_id), Some(11), "copies are apart");
    assert_eq!((place(replaced, 11), place(replaced, 16)), (Some(own_place(17)), None));
    let of_scans = |id| &of_scans.keyspaces[&1].tables[&id];
    let prefix = of_scans(11).prefix_filter.clone().unwrap();
    assert_eq!((prefix.place, &*prefix.extractor), (own_place(18), "custom:host"));
    assert_eq!(of_scans(11).range_filter, Some(own_place(19)));
    assert_eq!(of_scans(11).filter, Some(own_place(17)), "each is replaced alone");
    assert_eq!(of_scans(11).filter_files().collect::<Vec<_>>(), [17, 18, 19]);
    assert_eq!((&of_scans(16).prefix_filter, of_scans(16).range_filter), (&None, None));
}

#[test]
fn counters_do_not_fall() {
    let mut state = base();
    let before = state.clone();
    let edit = VersionEdit {
        next_file_id: Some(3),
        next_keyspace_id: Some(1),
        last_sequence: Some(7),
        store_clock_ms: Some(1),
        log_mark: Some(Position { file_id: 2, offset: 1 << 40 }),
        ..VersionEdit::default()
    };
    state.apply(&edit).unwrap();
    assert_eq!(state, before);
}

#[test]
fn a_table_raises_the_last_sequence_number() {
    let mut state = base();
    let mut newer = TableMeta::clone(&table(16, 0, "x", "y"));
    newer.largest_sequence = 99;
    let edit = VersionEdit { tables_added: vec![(1, Arc::new(newer))], ..VersionEdit::default() };
    state.apply(&edit).unwrap();
    assert_eq!(state.last_sequence, 99);
}

#[test]
fn edits_that_do_not_fit_are_refused() {
    use Corruption::{Mismatch, Missing, Order, OutOfRange};
    let edit = VersionEdit::default;
    let keyspace = |id, name: &str| KeyspaceCreated { id, name: name.into(), options: vec![] };
    let add = |keyspace, table| VersionEdit { tables_added: vec![(keyspace, table)], ..edit() };
    let moved = TableMoved { keyspace: 2, id: 14, level: 1, run: 0 };
    let there = "table that is there already";
    let run = Order { what: "tables of a run" };
    let keyspace_there = Order { what: "keyspace that is there already" };
    let log_there = Order { what: "log that is obsolete or there already" };
    let cases = [
        ("added twice", add(1, table(11, 6, "a", "b")), Order { what: there }),
        ("no keyspace", add(9, table(16, 6, "a", "b")), Missing { what: "keyspace" }),
        ("id", add(1, table(20, 6, "y", "z")), OutOfRange { what: "file id", value: 20 }),
        ("overlap at the start", add(1, table(16, 6, "m", "z")), run.clone()),
        ("overlap at the end", add(2, table(16, 1, "", "a")), run.clone()),
        ("overlap inside", add(2, table(16, 1, "aa", "ab")), run.clone()),
        (
            "overlap by a move",
            VersionEdit {
                tables_added: vec![(2, table(16, 2, "a", "z"))],
                tables_moved: vec![TableMoved { level: 2, ..moved }],
                ..edit()
            },
            run,
        ),
        (
            "removed, not there",
            VersionEdit { tables_removed: vec![(2, 11)], ..edit() },
            Missing { what: "removed table" },
        ),
        (
            "moved, not there",
            VersionEdit { tables_moved: vec![TableMoved { id: 99, ..moved }], ..edit() },
            Missing { what: "moved table" },
        ),
        (
            "filter of no table",
            VersionEdit {
                filters_replaced: vec![FilterReplaced {
                    keyspace: 2,
                    id: 11,
                    place: NewPlace::Point(None),
                }],
                ..edit()
            },
            Missing { what: "table of a replaced filter" },
        ),
        (
            "id of a filter",
            VersionEdit {
                filters_replaced: vec![FilterReplaced {
                    keyspace: 1,
                    id: 11,
                    place: NewPlace::Range(Some(own_place(20))),
                }],
                ..edit()
            },
            OutOfRange { what: "file id", value: 20 },
        ),
        (
            "keyspace id",
            VersionEdit { keyspaces_created: vec![keyspace(3, "new")], ..edit() },
            OutOfRange { what: "keyspace id", value: 3 },
        ),
        (
            "keyspace twice",
            VersionEdit { keyspaces_created: vec![keyspace(2, "new")], ..edit() },
            keyspace_there.clone(),
        ),
        (
            "name twice",
            VersionEdit {
                keyspaces_created: vec![keyspace(3, "users")],
                next_keyspace_id: Some(4),
                ..edit()
            },
            keyspace_there,
        ),
        (
            "changed, not there",
            VersionEdit {
                keyspaces_changed: vec![KeyspaceChanged { id: 7, options: vec![] }],
                ..edit()
            },
            Missing { what: "keyspace" },
        ),
        (
            "dropped, not there",
            VersionEdit { keyspaces_dropped: vec![7], ..edit() },
            Missing { what: "dropped keyspace" },
        ),
        (
            "flushed falls",
            VersionEdit { flushed: vec![(1, 41)], ..edit() },
            OutOfRange { what: "flushed sequence number", value: 41 },
        ),
        (
            "log floor falls",
            VersionEdit { log_floor: Some(12), ..edit() },
            OutOfRange { what: "log floor", value: 12 },
        ),
        ("log twice", VersionEdit { logs_created: vec![(13, 0)], ..edit() }, log_there.clone()),
        ("obsolete log", VersionEdit { logs_created: vec![(12, 0)], ..edit() }, log_there),
        (
            "log id",
            VersionEdit { logs_created: vec![(20, 0)], ..edit() },
            OutOfRange { what: "file id", value: 20 },
        ),
        (
            "last sequence",
            VersionEdit { last_sequence: Some(1 << 56), ..edit() },
            OutOfRange { what: "last sequence number", value: 1 << 56 },
        ),
        (
            "another store",
            VersionEdit { store_id: Some(2), ..edit() },
            Mismatch { what: "store id", expected: 1, found: 2 },
        ),
        (
            "another seed",
            VersionEdit { hash_seed: Some(78), ..edit() },
            Mismatch { what: "hash seed", expected: 77, found: 78 },
        ),
    ];
    for (name, edit, want) in cases {
        assert_eq!(base().apply(&edit), Err(want), "{name}");
    }
}

#[test]
fn tables_of_different_runs_may_overlap() {
    let mut state = base();
    let on_level_0 = |id, run| {
        let mut level_0 = TableMeta::clone(&table(id, 0, "a", "z"));
        level_0.run = run;
        Arc::new(level_0)
    };
    let tables_added =
        vec![(1, on_level_0(16, 1)), (1, on_level_0(17, 2)), (2, table(18, 6, "a", "z"))];
    state.apply(&VersionEdit { tables_added, ..VersionEdit::default() }).unwrap();
    let mut deeper = TableMeta::clone(&table(19, 5, "a", "z"));
    deeper.run = 1;
    let tables_added = vec![(1, Arc::new(deeper))];
    let refused = state.apply(&VersionEdit { tables_added, ..VersionEdit::default() });
    assert_eq!(refused, Err(Corruption::OutOfRange { what: "run of a table", value: 1 }));
}

#[test]
fn formats_a_range_tombstone_may_be_split_at_a_table_border() {
    let edit = |largest_excluded| {
        let mut left = TableMeta::clone(&table(16, 1, "p", "s"));
        left.bounds.largest_excluded = largest_excluded;
        let right = table(17, 1, "s", "t");
        let tables_added = vec![(1, Arc::new(left)), (1, right)];
        VersionEdit { next_file_id: Some(30), tables_added, ..VersionEdit::default() }
    };
    let order = Corruption::Order { what: "tables of a run" };
    assert_eq!(base().apply(&edit(false)), Err(order), "both tables hold s");
    let (edit, mut state) = (edit(true), base());
    state.apply(&edit).unwrap();
    assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit), "the end returns");
    let again = VersionEdit::decode(&state.to_edit().encode()).unwrap();
    assert!(again.tables_added.iter().any(|(_, table)| table.bounds.largest_excluded));
}

/// Only `verify` compares them with the table, and sums of larger ones would overflow.
#[test]
fn impossible_numbers_of_entries_are_refused() {
    let decode = |change: fn(&mut TableMeta)| {
        let mut table = TableMeta::clone(&table(16, 1, "p", "s"));
        change(&mut table);
        let tables_added = vec![(1, Arc::new(table))];
        let edit = VersionEdit { tables_added, ..VersionEdit::default() };
        VersionEdit::decode(&edit.encode()).map(drop)
    };
    let refused = |what, value| Err(Corruption::OutOfRange { what, value });
    assert_eq!(decode(|table| table.entries = 1 << 48), Ok(()));
    assert_eq!(decode(|table| table.entries = u64::MAX), refused("entries", u64::MAX));
    assert_eq!(decode(|table| table.tombstones = 41), refused("tombstones", 41));
    assert_eq!(decode(|table| table.range_tombstones = 41), refused("range tombstones", 41));
}
