//! Giving up columns in memory, without a rebuild and without reading anything.
//!
//! Each column is a filter of its own over the same keys, of rate 1/2; any of them together are one
//! too. The first columns of every block stay, the others go.

use core::num::NonZeroU8;

#[cfg(not(feature = "std"))]
use crate::float::Float;

use super::Ribbon;
use super::group::{Group, Groups};
use super::shape::{GroupShape, Shape};

impl Ribbon {
    /// Gives up columns until `columns` are left, 1 at least, and their memory with them.
    ///
    /// The filter then answers "maybe" more often: see [`expected_fpr`](Self::expected_fpr). No key
    /// is denied. A fraction is honoured as in [`build`](Self::build). A filter of so many columns
    /// or fewer stays as it is, and so does any filter for NaN: columns cannot be had back but from
    /// the stored filter.
    ///
    /// Groups of eight columns that go altogether are freed at once, so 16 columns become 8 without
    /// a copy. The last group that stays is copied if it becomes smaller, some 0.1 ns a key and
    /// column; until that is done, it takes its old memory and its new.
    pub fn shrink_to(&mut self, columns: f64) {
        let Some(shape) = self.shape.shrunk(columns) else { return };
        self.groups.truncate(shape.group_count());
        let last = self.groups.last_mut();
        let last_shape = shape.group(shape.group_count() - 1);
        if last.shape != last_shape {
            *last = last.shrunk(last_shape);
        }
        self.set_shape(shape);
    }

    /// The filter that [`shrink_to`](Self::shrink_to) makes of this one, which stays as it is. In
    /// the same [arena](crate::FilterArena).
    #[must_use]
    pub fn shrunk_to(&self, columns: f64) -> Self {
        let Some(shape) = self.shape.shrunk(columns) else { return self.clone() };
        let shapes = (0..shape.group_count()).map(|index| shape.group(index));
        let groups = self.groups.iter().zip(shapes);
        let mut shrunk = Self {
            groups: Groups::new(groups.map(|(group, shape)| group.shrunk(shape))),
            shape: self.shape.clone(),
            thresholds: self.thresholds.clone(),
            ..*self
        };
        shrunk.set_shape(shape);
        shrunk
    }

    /// What [`memory_bytes`](Self::memory_bytes) says after [`shrink_to`](Self::shrink_to) with
    /// these columns. Costs nothing: a planner may ask for every number of columns.
    #[must_use]
    pub fn memory_bytes_at(&self, columns: f64) -> usize {
        self.shape
            .shrunk(columns)
            .map_or_else(|| self.memory_bytes(), |shape| self.bytes_of(&shape))
    }
}

impl Shape {
    /// The same layers with so many columns, or `None` if there are no more than that.
    pub(super) fn shrunk(&self, columns: f64) -> Option<Self> {
        if columns.is_nan() {
            return None;
        }
        let columns = columns.max(1.0);
        if columns >= self.average_columns() {
            return None;
        }
        let full = columns.ceil() as u8; // From 1 to the columns there are.
        let missing = f64::from(full) - columns;
        // A share, below 1, of the blocks.
        let upper = (self.blocks as f64 * missing).round() as u64;
        let (full, upper) = if upper == self.blocks { (full - 1, 0) } else { (full, upper) };
        // Rounding must not give back what is not there.
        let upper = if full == self.columns.get() { upper.max(self.upper) } else { upper };
        let columns = NonZeroU8::new(full)?;
        Some(Self { columns, upper, ..self.clone() })
    }
}

impl Group {
    /// The first columns of each block, as many as `shape` says, in the same arena.
    fn shrunk(&self, shape: GroupShape) -> Self {
        if shape == self.shape {
            return self.clone();
        }
        let mut shrunk = Self::zeroed(shape, self.lines.arena());
        for block in 0..shape.blocks {
            let first = self.shape.first_word(block) as usize; // It is in memory.
            let columns = core::array::from_fn(|i| self.word(first + i));
            shrunk.set_block(block, &columns);
        }
        shrunk
    }
}
