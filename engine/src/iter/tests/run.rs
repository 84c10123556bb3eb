//! Compares a sorted run with the sorted list of its entries.

use std::{cell::RefCell, ops::Bound, rc::Rc};

use proptest::prelude::*;
use sievedb_format::{InternalKey, TableBounds, Trailer};

use super::{
    merge::{any_move, follow},
    model::{Entry, VecCursor, any_bounds, any_history, check, entries},
};
use crate::{
    Result,
    iter::{
        bounds::{KeyBounds, is_above, is_below},
        cursor::Cursor,
        run::{RunCursor, SortedRun},
    },
};

/// Tables of entries, each with the bounds in its metadata, and a record of the opened ones.
#[derive(Debug, Default)]
struct Run {
    tables: Vec<Table>,
    opened: RefCell<Vec<usize>>,
}

#[derive(Debug, Default)]
struct Table {
    entries: Rc<Vec<Entry>>,
    bounds: TableBounds,
}

impl Table {
    fn new(entries: Vec<Entry>) -> Self {
        let bound = |entry: Option<&Entry>| entry.expect("an entry").user_key.clone();
        let bounds = TableBounds::inclusive(bound(entries.first()), bound(entries.last()));
        Self { entries: Rc::new(entries), bounds }
    }
}

impl SortedRun for Rc<Run> {
    type Cursor = VecCursor;

    fn tables(&self) -> usize {
        self.tables.len()
    }

    fn bounds(&self, index: usize) -> &TableBounds {
        &self.tables[index].bounds
    }

    fn cursor(&self, index: usize) -> Result<VecCursor> {
        self.opened.borrow_mut().push(index);
        Ok(VecCursor::new(Rc::clone(&self.tables[index].entries), &Rc::default()))
    }
}

impl Run {
    /// One table per text.
    fn new(tables: &[&str]) -> Rc<Self> {
        let tables = tables.iter().map(|text| Table::new(entries(text))).collect();
        Rc::new(Self { tables, ..Self::default() })
    }

    /// Splits sorted `entries` at some of the positions where the user key changes.
    fn split(entries: &[Entry], cuts: &[bool]) -> Rc<Self> {
        let mut tables: Vec<Vec<Entry>> = Vec::new();
        let mut cuts = cuts.iter().cycle();
        for entry in entries {
            let same_key = |table: &Vec<Entry>| table[table.len() - 1].user_key == entry.user_key;
            match tables.last_mut() {
                Some(table) if same_key(table) || !cuts.next().unwrap_or(&false) => {
                    table.push(entry.clone());
                }
                _ => tables.push(vec![entry.clone()]),
            }
        }
        let tables = tables.into_iter().map(Table::new).collect();
        Rc::new(Self { tables, ..Self::default() })
    }
}

#[test]
fn run_cursor_yields_the_sorted_list() {
    let moves = prop::collection::vec(any_move(), 0..60);
    let cuts = prop::collection::vec(any::<bool>(), 0..12);
    check(2000, &(any_history(40, 1), cuts, moves), |(history, cuts, moves)| {
        let sorted = history.sorted();
        let run = Run::split(&sorted, &cuts);
        follow(&mut RunCursor::new(run, &KeyBounds::ALL), &sorted, &moves)
    });
}

#[test]
fn bounds_exclude_tables_without_a_key_inside() {
    let cuts = prop::collection::vec(any::<bool>(), 0..12);
    check(2000, &(any_history(40, 1), cuts, any_bounds()), |(history, cuts, bounds)| {
        let run = Run::split(&history.sorted(), &cuts);
        let (start, end) = bounds.as_slices();
        let mut cursor = RunCursor::new(Rc::clone(&run), &bounds);
        let mut met = Vec::new();
        cursor.seek_to_first().unwrap();
        while let Some(key) = cursor.key() {
            met.push(key.user_key.to_vec());
            cursor.next().unwrap();
        }
        let inside = |key: &[u8]| is_above(key, start) && is_below(key, end);
        let got: Vec<_> = met.iter().filter(|key| inside(key)).collect();
        let sorted = history.sorted();
        let want: Vec<_> =
            sorted.iter().map(|entry| &entry.user_key).filter(|key| inside(key)).collect();
        prop_assert_eq!(got, want);
        for &index in &*run.opened.borrow() {
            let TableBounds { smallest, largest, .. } = &run.tables[index].bounds;
            prop_assert!(is_above(largest, start) && is_below(smallest, end), "opened {}", index);
        }
        Ok(())
    });
}

/// Returns the position after every version of `key`.
fn oldest(key: &str) -> InternalKey<'_> {
    InternalKey::new(key.as_bytes(), Trailer::OLDEST)
}

#[test]
fn a_table_is_opened_when_it_is_reached() {
    let run = Run::new(&["a@1 b@1", "d@1 e@1", "g@1", "k@1"]);
    let mut cursor = RunCursor::new(Rc::clone(&run), &KeyBounds::ALL);
    assert!(run.opened.borrow().is_empty());
    type Step = fn(&mut RunCursor<Rc<Run>>) -> Result<()>;
    let steps: [(&str, Step, &str, &[usize]); 7] = [
        ("seek inside", |c| c.seek(oldest("a")), "b", &[0]),
        ("seek again", |c| c.seek(InternalKey::seek(b"a", 9)), "a", &[0]),
        ("seek into a gap", |c| c.seek(oldest("c")), "d", &[0, 1]),
        ("next within", |c| c.next(), "e", &[0, 1]),
        ("next table", |c| c.next(), "g", &[0, 1, 2]),
        ("seek behind the versions of the largest", |c| c.seek(oldest("g")), "k", &[0, 1, 2, 3]),
        ("back into a gap", |c| c.seek_before(oldest("c")), "b", &[0, 1, 2, 3, 0]),
    ];
    for (name, step, key, opened) in steps {
        step(&mut cursor).unwrap();
        assert_eq!(cursor.key().map(|key| key.user_key), Some(key.as_bytes()), "{name}");
        assert_eq!(*run.opened.borrow(), opened, "{name}");
    }
}

#[test]
fn table_without_entries_is_skipped() {
    // The bounds of the table come from a range tombstone.
    let mut run = Run::new(&["a@1", "d@1", "k@1"]);
    let tables = &mut Rc::get_mut(&mut run).expect("no other owner").tables;
    tables[1] = Table { bounds: TableBounds::inclusive(*b"c", *b"e"), ..Table::default() };
    let mut cursor = RunCursor::new(run, &KeyBounds::copy(Bound::Unbounded, Bound::Included(b"z")));
    cursor.seek(InternalKey::seek(b"d", 9)).unwrap();
    assert_eq!(cursor.key().map(|key| key.user_key), Some(&b"k"[..]));
    cursor.prev().unwrap();
    assert_eq!(cursor.key().map(|key| key.user_key), Some(&b"a"[..]));
}

#[test]
fn formats_a_run_cursor_passes_an_exclusive_end() {
    // The first table ends before d, where the second one starts.
    let mut run = Run::new(&["a@1 b@1", "d@1 e@1"]);
    let tables = &mut Rc::get_mut(&mut run).expect("no other owner").tables;
    tables[0].bounds.largest = (*b"d").into();
    tables[0].bounds.largest_excluded = true;
    let bounds = KeyBounds::copy(Bound::Included(b"d"), Bound::Unbounded);
    let mut cursor = RunCursor::new(Rc::clone(&run), &bounds);
    cursor.seek(InternalKey::seek(b"d", 9)).unwrap();
    assert_eq!(cursor.key().map(|key| key.user_key), Some(&b"d"[..]));
    assert_eq!(*run.opened.borrow(), [1], "the first table has nothing from d on");
}
