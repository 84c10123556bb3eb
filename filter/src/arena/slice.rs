//! The array that a filter owns, in an arena or on the heap.

use core::{
    fmt,
    mem::{self, MaybeUninit},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
};

use super::{FilterArena, PIECE_BYTES};
use crate::{
    huge_pages,
    page_vec::{PageVec, SystemPages},
};

/// As a `Box<[T]>`, with its elements in an arena. A question finds them as fast: by pointer and
/// length.
///
/// Nothing in it is ever dropped: a `T` needs no drop.
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

    /// Where it lies.
    pub(crate) fn arena(&self) -> &FilterArena {
        &self.arena
    }

    /// Its bytes, if the arena counts them.
    pub(crate) fn arena_bytes(&self) -> usize {
        if self.arena.counts() { size_of_val(&**self) } else { 0 }
    }
}

/// A [`Slice`] that is being filled, from its begin on. Nobody looks at it before all of it is
/// written.
pub(crate) struct Filling<T> {
    piece: Slice<T>,
    written: usize,
}

impl<T> Filling<T> {
    /// Room for `len` elements, in `arena`.
    ///
    /// # Panics
    ///
    /// As [`Slice::filled`].
    pub(crate) fn new(len: usize, arena: &FilterArena) -> Self {
        const { assert!(align_of::<T>() <= PIECE_BYTES && !mem::needs_drop::<T>()) }
        let arena = arena.clone();
        let bytes = len.checked_mul(size_of::<T>()).expect("an array is shorter than the memory");
        let first = arena.take(bytes).map(NonNull::cast).unwrap_or_else(|| {
            let mut room = PageVec::<MaybeUninit<T>>::with_capacity_in(len, SystemPages);
            huge_pages::ask(room.spare_capacity_mut());
            let (first, ..) = room.into_raw_parts_with_alloc();
            NonNull::new(first).expect("not null").cast()
        });
        Self { piece: Slice { first, len, arena }, written: 0 }
    }

    /// Writes the next elements.
    ///
    /// # Panics
    ///
    /// If there is no room for as many.
    pub(crate) fn extend(&mut self, new: impl ExactSizeIterator<Item = T>) {
        let Self { piece, written } = self;
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

    /// The slice.
    ///
    /// # Panics
    ///
    /// Unless all of it is written.
    pub(crate) fn finish(self) -> Slice<T> {
        assert_eq!(self.written, self.piece.len, "all elements are written");
        self.piece
    }
}

impl<T> Drop for Slice<T> {
    fn drop(&mut self) {
        if self.arena.give_back(self.first.cast(), self.len * size_of::<T>()) {
            return;
        }
        let first = self.first.cast::<MaybeUninit<T>>().as_ptr();
        // SAFETY: what is in no chunk was a vector: `Filling::new` has taken it apart.
        drop(unsafe { PageVec::from_raw_parts_in(first, 0, self.len, SystemPages) });
    }
}

impl<T> Deref for Slice<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements, owned, and all written: `Filling::finish` gives out no others.
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
