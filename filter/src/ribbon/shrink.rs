//! Drops columns in memory, without a rebuild and without I/O.
//!
//! Each column is a filter over the same keys with rate 1/2, and so is any set of columns with the
//! product of their rates. The first columns of every block stay.

use core::num::NonZeroU8;

#[cfg(not(feature = "std"))]
use crate::float::Float;

use super::Ribbon;
use super::group::{Group, Groups};
use super::shape::{GroupShape, Shape};

impl Ribbon {
    /// Drops columns until `columns` are left, at least 1, and frees their memory.
    ///
    /// The false-positive rate rises: see [`expected_fpr`](Self::expected_fpr). There are still no
    /// false negatives. A fraction is handled as in [`build`](Self::build). A filter with at most
    /// `columns` columns is unchanged, and so is any filter for NaN. Dropped columns can only be
    /// reloaded from the stored filter.
    ///
    /// Whole groups of eight columns are freed at once, so 16 columns become 8 without a copy. The
    /// last remaining group is copied if it shrinks, at about 0.1 ns per key and column; both
    /// copies exist meanwhile.
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

    /// Returns a copy [shrunk](Self::shrink_to) to `columns`, in the same
    /// [arena](crate::FilterArena).
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

    /// Returns [`memory_bytes`](Self::memory_bytes) after [`shrink_to`](Self::shrink_to) with these
    /// columns. Constant time.
    #[must_use]
    pub fn memory_bytes_at(&self, columns: f64) -> usize {
        self.shape
            .shrunk(columns)
            .map_or_else(|| self.memory_bytes(), |shape| self.bytes_of(&shape))
    }
}

impl Shape {
    /// Returns the same layers with `columns` columns, or `None` if there are no more than that.
    pub(super) fn shrunk(&self, columns: f64) -> Option<Self> {
        if columns.is_nan() {
            return None;
        }
        let columns = columns.max(1.0);
        if columns >= self.average_columns() {
            return None;
        }
        let full = columns.ceil() as u8; // From 1 to the existing columns.
        let missing = f64::from(full) - columns;
        // A share below 1 of the blocks.
        let upper = (self.blocks as f64 * missing).round() as u64;
        let (full, upper) = if upper == self.blocks { (full - 1, 0) } else { (full, upper) };
        // Rounding must not add columns that are missing.
        let upper = if full == self.columns.get() { upper.max(self.upper) } else { upper };
        let columns = NonZeroU8::new(full)?;
        Some(Self { columns, upper, ..self.clone() })
    }
}

impl Group {
    /// Copies the first columns of each block, as many as `shape` has, in the same arena.
    fn shrunk(&self, shape: GroupShape) -> Self {
        if shape == self.shape {
            return self.clone();
        }
        let mut shrunk = Self::zeroed(shape, self.lines.arena());
        for block in 0..shape.blocks {
            let first = self.shape.first_word(block) as usize; // An index into memory.
            let columns = core::array::from_fn(|i| self.word(first + i));
            shrunk.set_block(block, &columns);
        }
        shrunk
    }
}
