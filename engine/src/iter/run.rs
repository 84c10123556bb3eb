//! Cursor over the tables of a sorted run.

use std::{fmt, ops::Range, path::PathBuf};

use bytes::Bytes;
use sievedb_format::{InternalKey, SEQUENCE_MAX, TableBounds};

use super::{
    bounds::KeyBounds,
    cursor::{Cursor, SEEK_STEPS},
    range_tombstone_sources::HiddenRange,
};
use crate::{Result, table::blobs::Blob};

/// The tables of a sorted run: in key order, no two with a user key in common.
pub(crate) trait SortedRun {
    /// A cursor over one table.
    type Cursor: Cursor;

    /// Returns the number of tables.
    fn tables(&self) -> usize;

    /// Returns the bounds of the user keys of the table at `index`.
    fn bounds(&self, index: usize) -> &TableBounds;

    /// Returns `true` if the range hides all its entries of the table at `index`.
    fn is_hidden(&self, index: usize, hidden: &HiddenRange) -> bool {
        let _ = (index, hidden);
        false
    }

    /// Returns an unpositioned cursor over the table at `index`.
    ///
    /// # Errors
    ///
    /// Errors of opening the table.
    fn cursor(&self, index: usize) -> Result<Self::Cursor>;
}

/// The entries of a sorted run, one table after another.
///
/// The cursor of a table is created when the scan reaches the table. At most one cursor exists.
pub(crate) struct RunCursor<R: SortedRun> {
    run: R,
    /// The tables to read; the others have no key within the bounds.
    window: Range<usize>,
    /// The current table, with its cursor. `None` after an error and before the first search.
    open: Option<(usize, R::Cursor)>,
}

impl<R: SortedRun> RunCursor<R> {
    /// Creates an unpositioned cursor over the tables of `run` that may have keys within `bounds`.
    ///
    /// Also returns keys of these tables outside the bounds; other tables are not opened.
    pub(crate) fn new(run: R, bounds: &KeyBounds) -> Self {
        let window = tables_within(&run, bounds);
        Self::over(run, window)
    }

    /// Creates an unpositioned cursor over the tables of `run` with an index in `window`.
    pub(crate) fn over(run: R, window: Range<usize>) -> Self {
        Self { run, window, open: None }
    }

    /// Searches the table at `index` with `search`. Without a result, moves to the first entry
    /// after it.
    fn search_up(
        &mut self,
        index: usize,
        search: impl FnOnce(&mut R::Cursor) -> Result<()>,
    ) -> Result<()> {
        if !self.window.contains(&index) {
            self.open = None;
            return Ok(());
        }
        self.search_table(index, search)?;
        self.continue_up(index)
    }

    /// Unless positioned, moves to the first entry of the tables after the one at `index`.
    fn continue_up(&mut self, index: usize) -> Result<()> {
        for behind in index + 1..self.window.end {
            if self.key().is_some() {
                break;
            }
            self.search_table(behind, R::Cursor::seek_to_first)?;
        }
        Ok(())
    }

    /// Searches the last table of `tables` with `search`. Without a result, moves to the last entry
    /// before it.
    fn search_down(
        &mut self,
        tables: Range<usize>,
        search: impl FnOnce(&mut R::Cursor) -> Result<()>,
    ) -> Result<()> {
        let Some(index) = tables.clone().next_back() else {
            self.open = None;
            return Ok(());
        };
        self.search_table(index, search)?;
        for before in (tables.start..index).rev() {
            if self.key().is_some() {
                break;
            }
            self.search_table(before, R::Cursor::seek_to_last)?;
        }
        Ok(())
    }

    /// Searches one table, with the open cursor if it is over this table.
    fn search_table(
        &mut self,
        index: usize,
        search: impl FnOnce(&mut R::Cursor) -> Result<()>,
    ) -> Result<()> {
        let mut cursor = match self.open.take() {
            Some((open, cursor)) if open == index => cursor,
            _ => self.run.cursor(index)?,
        };
        debug_assert!(self.window.contains(&index), "table {index} is not in {:?}", self.window);
        search(&mut cursor)?;
        self.open = Some((index, cursor));
        Ok(())
    }

    /// Returns the first table of the window that may hold `target` or a later key.
    fn table_from(&self, target: InternalKey<'_>) -> usize {
        let run = &self.run;
        partition_point(&self.window, |index| run.bounds(index).ends_below(target.user_key))
    }

    /// Returns the tables of the window that may hold keys before `target`.
    fn tables_before(&self, target: InternalKey<'_>) -> Range<usize> {
        let run = &self.run;
        let behind =
            partition_point(&self.window, |index| !run.bounds(index).starts_above(target.user_key));
        self.window.start..behind
    }

    /// Returns the current table if its current entry is hidden.
    fn hidden_table(&self, hidden: &HiddenRange) -> Option<usize> {
        let (index, cursor) = self.open.as_ref()?;
        let is_within = cursor.key().is_some_and(|key| hidden.contains(key.user_key));
        (is_within && self.run.is_hidden(*index, hidden)).then_some(*index)
    }

    /// Returns the current table. Only when positioned.
    fn current(&self) -> &(usize, R::Cursor) {
        self.open.as_ref().expect("only a positioned cursor is stepped and read")
    }
}

impl<R: SortedRun> Cursor for RunCursor<R> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.search_up(self.window.start, R::Cursor::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.search_down(self.window.clone(), R::Cursor::seek_to_last)
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        (0..SEEK_STEPS).try_for_each(|step| self.seek_step(step, target))
    }

    fn seek_step(&mut self, step: usize, target: InternalKey<'_>) -> Result<()> {
        if step == 0 {
            let index = self.table_from(target);
            if self.open.as_ref().is_none_or(|(open, _)| *open != index) {
                self.open = None;
                if self.window.contains(&index) {
                    self.open = Some((index, self.run.cursor(index)?));
                }
            }
        }
        let Some((index, cursor)) = &mut self.open else { return Ok(()) };
        match cursor.seek_step(step, target) {
            Ok(()) if step + 1 < SEEK_STEPS => Ok(()),
            Ok(()) => {
                let index = *index;
                self.continue_up(index)
            }
            Err(error) => {
                self.open = None;
                Err(error)
            }
        }
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.search_down(self.tables_before(target), |cursor| cursor.seek_before(target))
    }

    fn advise_seek_step(&mut self, step: usize) {
        if let Some((_, cursor)) = &mut self.open {
            cursor.advise_seek_step(step);
        }
    }

    fn advise_seek_before(&mut self, target: InternalKey<'_>) {
        let Some(index) = self.tables_before(target).next_back() else { return };
        if self.open.as_ref().is_none_or(|(open, _)| *open != index) {
            // The next search returns the error.
            self.open = self.run.cursor(index).ok().map(|cursor| (index, cursor));
        }
        if let Some((_, cursor)) = &mut self.open {
            cursor.advise_seek_before(target);
        }
    }

    /// Opens no table whose keys are all hidden.
    fn skip_up(&mut self, hidden: &HiddenRange) -> Result<()> {
        let Some(first) = self.hidden_table(hidden) else { return Ok(()) };
        let is_passed = |&index: &usize| {
            self.run.is_hidden(index, hidden)
                && self.run.bounds(index).stays_below(hidden.end_bound())
        };
        let passed = (first..self.window.end).take_while(is_passed).count();
        let index = first + passed;
        if index < self.window.end && self.run.is_hidden(index, hidden) {
            let target = InternalKey::seek(&hidden.end, SEQUENCE_MAX);
            return self.search_up(index, |cursor| cursor.seek(target));
        }
        debug_assert!(index > first, "the current table is hidden");
        self.search_up(index, R::Cursor::seek_to_first)
    }

    fn skip_down(&mut self, hidden: &HiddenRange) -> Result<()> {
        let Some(last) = self.hidden_table(hidden) else { return Ok(()) };
        let is_passed = |&index: &usize| {
            self.run.is_hidden(index, hidden) && *self.run.bounds(index).smallest >= *hidden.start
        };
        let tables = self.window.start..last + 1;
        let passed = tables.clone().rev().take_while(is_passed).count();
        let left = tables.start..tables.end - passed;
        let is_cut =
            left.clone().next_back().is_some_and(|index| self.run.is_hidden(index, hidden));
        if is_cut {
            let target = InternalKey::seek(&hidden.start, SEQUENCE_MAX);
            return self.search_down(left, |cursor| cursor.seek_before(target));
        }
        debug_assert!(passed > 0, "the current table is hidden");
        self.search_down(left, R::Cursor::seek_to_last)
    }

    #[inline]
    fn has_missed_cache(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, cursor)| cursor.has_missed_cache())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let (index, cursor) = self.open.as_mut().expect("only a positioned cursor is stepped");
        match cursor.next() {
            Ok(()) if cursor.is_positioned() => Ok(()),
            Ok(()) => {
                let index = *index;
                self.search_up(index + 1, R::Cursor::seek_to_first)
            }
            Err(error) => {
                self.open = None;
                Err(error)
            }
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let (index, cursor) = self.open.as_mut().expect("only a positioned cursor is stepped");
        match cursor.prev() {
            Ok(()) if cursor.is_positioned() => Ok(()),
            Ok(()) => {
                let index = *index;
                self.search_down(self.window.start..index, R::Cursor::seek_to_last)
            }
            Err(error) => {
                self.open = None;
                Err(error)
            }
        }
    }

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.open.as_ref()?.1.key()
    }

    #[inline]
    fn is_positioned(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, cursor)| cursor.is_positioned())
    }

    /// No two tables have a user key in common.
    #[inline]
    fn is_older_version(&self) -> bool {
        self.current().1.is_older_version()
    }

    #[inline]
    fn is_newest_version(&mut self) -> bool {
        self.open.as_mut().is_some_and(|(_, cursor)| cursor.is_newest_version())
    }

    #[inline]
    fn value_ref(&self) -> &[u8] {
        self.current().1.value_ref()
    }

    fn value(&self) -> Bytes {
        self.current().1.value()
    }

    fn note_tombstone(&mut self) {
        if let Some((_, cursor)) = &mut self.open {
            cursor.note_tombstone();
        }
    }

    fn blob(&self) -> Result<Blob> {
        self.current().1.blob()
    }

    fn path(&self) -> PathBuf {
        self.current().1.path()
    }
}

impl<R: SortedRun> fmt::Debug for RunCursor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.open.as_ref().map(|(index, _)| index);
        f.debug_struct("RunCursor").field("window", &self.window).field("open", &open).finish()
    }
}

/// Returns the indexes of the tables of `run` that overlap `bounds`.
pub(crate) fn tables_within(run: &impl SortedRun, bounds: &KeyBounds) -> Range<usize> {
    let (start, end) = bounds.as_slices();
    let tables = 0..run.tables();
    let first = partition_point(&tables, |index| !run.bounds(index).reaches_above(start));
    let behind = partition_point(&tables, |index| run.bounds(index).reaches_below(end));
    first..behind.max(first)
}

/// As [`partition_point`](slice::partition_point), over indexes.
fn partition_point(range: &Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
