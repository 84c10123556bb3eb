//! The array that a filter owns, in an arena or on the heap.

use alloc::{boxed::Box, vec::Vec};
use core::{
    fmt,
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    slice,
};

use super::{FilterArena, PIECE_BYTES};
use crate::huge_pages;

/// As a `Box<[T]>`, with its elements in an arena. A question finds them as fast: by pointer and length.
///
/// Whoever makes one has a `T` that is `Copy`: nothing in it is ever dropped.
pub(crate) struct Slice<T> {
    first: NonNull<T>,
    len: usize,
    arena: FilterArena,
}

// SAFETY: it owns its elements, as a box does; the arena behind it has a lock.
unsafe impl<T: Send> Send for Slice<T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Slice<T> {}

impl<T: Copy> Slice<T> {
    /// So many copies of `value`, in `arena`.
    ///
    /// # Panics
    ///
    /// If the system has no more memory on the heap, or no array can be as long.
    pub(crate) fn filled(value: T, len: usize, arena: &FilterArena) -> Self {
        Self::collected(core::iter::repeat_n(value, len), arena)
    }

    /// These values, in `arena`.
    ///
    /// # Panics
    ///
    /// As [`filled`](Self::filled), and if there are fewer values than they said.
    pub(crate) fn collected(values: impl ExactSizeIterator<Item = T>, arena: &FilterArena) -> Self {
        Self::placed(values, arena)
    }
}

impl<T> Slice<T> {
    fn placed(values: impl ExactSizeIterator<Item = T>, arena: &FilterArena) -> Self {
        let mut filling = Filling::new(values.len(), arena);
        filling.extend(values);
        filling.finish()
    }

    fn of_heap(values: Vec<T>, arena: FilterArena) -> Self {
        let values = Box::leak(values.into_boxed_slice());
        Self { len: values.len(), first: NonNull::from(values).cast(), arena }
    }

    /// Where it lies.
    pub(crate) fn arena(&self) -> &FilterArena {
        &self.arena
    }
}

/// A [`Slice`] that is being filled, from its begin on.
pub(crate) enum Filling<T> {
    /// Nobody looks at it before all of it is written.
    Piece { piece: Slice<T>, written: usize },
    /// No more than the first `len` elements.
    Heap { values: Vec<T>, len: usize, arena: FilterArena },
}

impl<T> Filling<T> {
    /// Room for `len` elements, in `arena`.
    ///
    /// # Panics
    ///
    /// As [`Slice::filled`].
    pub(crate) fn new(len: usize, arena: &FilterArena) -> Self {
        const { assert!(align_of::<T>() <= PIECE_BYTES) }
        let arena = arena.clone();
        let bytes = len.checked_mul(size_of::<T>()).expect("an array is shorter than the memory");
        match arena.take(bytes) {
            Some(first) => {
                Self::Piece { piece: Slice { first: first.cast(), len, arena }, written: 0 }
            }
            None => {
                let mut values = Vec::with_capacity(len);
                huge_pages::ask(values.spare_capacity_mut());
                Self::Heap { values, len, arena }
            }
        }
    }

    /// Writes the next elements.
    ///
    /// # Panics
    ///
    /// If there is no room for as many.
    pub(crate) fn extend(&mut self, new: impl ExactSizeIterator<Item = T>) {
        match self {
            Self::Heap { values, len, .. } => {
                assert!(new.len() <= *len - values.len(), "no more than there is room for");
                values.extend(new);
            }
            Self::Piece { piece, written } => {
                assert!(new.len() <= piece.len - *written, "no more than there is room for");
                let mut count = 0;
                for (index, value) in (*written..piece.len).zip(new) {
                    // SAFETY: the piece has room for `len` elements.
                    let element = unsafe { piece.first.add(index) };
                    // SAFETY: it is ours, aligned, and holds nothing to be dropped.
                    unsafe { element.write(value) }
                    count += 1;
                }
                *written += count;
            }
        }
    }

    /// The slice.
    ///
    /// # Panics
    ///
    /// Unless all of it is written.
    pub(crate) fn finish(self) -> Slice<T> {
        match self {
            Self::Heap { values, len, arena } => {
                assert_eq!(values.len(), len, "all elements are written");
                Slice::of_heap(values, arena)
            }
            Self::Piece { piece, written } => {
                assert_eq!(written, piece.len, "all elements are written");
                piece
            }
        }
    }
}

impl<T> Drop for Slice<T> {
    fn drop(&mut self) {
        if self.arena.give_back(self.first.cast(), self.len * size_of::<T>()) {
            return;
        }
        let values = ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len);
        // SAFETY: what is in no chunk was a box: `of_heap` has leaked it.
        drop(unsafe { Box::from_raw(values) });
    }
}

impl<T> Deref for Slice<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements, written by `collected` or once in a box, and owned.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Slice<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the same, and nobody else has it.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

/// In the same arena.
impl<T: Clone> Clone for Slice<T> {
    fn clone(&self) -> Self {
        Self::placed(self.iter().cloned(), &self.arena)
    }
}

impl<T: PartialEq> PartialEq for Slice<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Slice<T> {}

impl<T: fmt::Debug> fmt::Debug for Slice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
