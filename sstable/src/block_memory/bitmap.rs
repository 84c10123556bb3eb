//! Which pages of a chunk are free.

/// Pages of a chunk.
pub(super) const CHUNK_PAGES: usize = 512;

const WORD_BITS: usize = u64::BITS as usize;

/// One bit for each page of a chunk: whether it is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FreePages {
    words: [u64; CHUNK_PAGES / WORD_BITS],
    count: usize,
}

impl FreePages {
    /// All pages free.
    pub(super) fn all() -> Self {
        Self { words: [u64::MAX; CHUNK_PAGES / WORD_BITS], count: CHUNK_PAGES }
    }

    /// Returns how many pages are free.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the first page of `pages` free ones side by side, and takes them.
    pub(super) fn take(&mut self, pages: usize) -> Option<usize> {
        if self.count < pages {
            return None;
        }
        let mut start = self.next(0, true)?;
        loop {
            let end = self.next(start, false).unwrap_or(CHUNK_PAGES);
            if end - start >= pages {
                self.flip(start, pages);
                self.count -= pages;
                return Some(start);
            }
            start = self.next(end, true)?;
        }
    }

    /// Makes `pages` pages from `first` on free, which are taken.
    pub(super) fn put_back(&mut self, first: usize, pages: usize) {
        self.flip(first, pages);
        self.count += pages;
    }

    /// Returns the first page from `from` on that is free, or that is taken.
    fn next(&self, from: usize, is_free: bool) -> Option<usize> {
        let mut from = from;
        while from < CHUNK_PAGES {
            let word = self.words[from / WORD_BITS];
            let wanted = if is_free { word } else { !word } >> (from % WORD_BITS);
            if wanted != 0 {
                return Some(from + wanted.trailing_zeros() as usize);
            }
            from = (from / WORD_BITS + 1) * WORD_BITS;
        }
        None
    }

    fn flip(&mut self, first: usize, pages: usize) {
        for page in first..first + pages {
            self.words[page / WORD_BITS] ^= 1 << (page % WORD_BITS);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It takes the first run that is long enough, as a list of booleans does.
        #[test]
        fn takes_the_first_run_that_is_long_enough(
            steps in prop::collection::vec((1..70_usize, any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            let mut bitmap = FreePages::all();
            let mut model = [true; CHUNK_PAGES];
            let mut taken = Vec::new();
            for (pages, takes, which) in steps {
                if takes || taken.is_empty() {
                    let want = model.windows(pages).position(|run| run.iter().all(|free| *free));
                    let found = bitmap.take(pages);
                    prop_assert_eq!(found, want);
                    if let Some(first) = found {
                        model[first..first + pages].fill(false);
                        taken.push((first, pages));
                    }
                } else {
                    let (first, pages) = taken.swap_remove(which.index(taken.len()));
                    bitmap.put_back(first, pages);
                    model[first..first + pages].fill(true);
                }
                prop_assert_eq!(bitmap.count(), model.iter().filter(|free| **free).count());
            }
        }
    }
}
