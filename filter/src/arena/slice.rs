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
    fn placed(mut values: impl ExactSizeIterator<Item = T>, arena: &FilterArena) -> Self {
        const { assert!(align_of::<T>() <= PIECE_BYTES) }
        let (len, arena) = (values.len(), arena.clone());
        let bytes = len.checked_mul(size_of::<T>()).expect("an array is shorter than the memory");
        let Some(first) = arena.take(bytes) else {
            return Self::of_heap(huge_pages::collected(values), arena);
        };
        let first = first.cast::<T>();
        // From here on a panic of `values` must not lose the piece.
        let piece = Self { first, len, arena };
        for index in 0..len {
            let value = values.next().expect("as many values as they said");
            // SAFETY: the piece has room for `len` elements.
            let element = unsafe { first.add(index) };
            // SAFETY: it is ours, aligned, and holds nothing to be dropped.
            unsafe { element.write(value) }
        }
        piece
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
