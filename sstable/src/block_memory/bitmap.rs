//! Bitmap of the free pages of a chunk.

use std::ops::Range;

/// Pages of a chunk.
pub(super) const CHUNK_PAGES: usize = 512;

const WORD_BITS: usize = u64::BITS as usize;

/// One bit per page of a chunk, set if the page is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FreePages {
    words: [u64; CHUNK_PAGES / WORD_BITS],
    count: usize,
    /// Upper bound of the longest run.
    longest_max: usize,
}

impl FreePages {
    /// Creates a bitmap with all pages free.
    pub(super) fn all() -> Self {
        let words = [u64::MAX; CHUNK_PAGES / WORD_BITS];
        Self { words, count: CHUNK_PAGES, longest_max: CHUNK_PAGES }
    }

    /// Returns the number of free pages.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns an upper bound of the longest run of free pages.
    pub(super) fn longest_max(&self) -> usize {
        self.longest_max
    }

    /// Takes the first `pages` adjacent free pages, and returns the first page. If there are none,
    /// [`longest_max`](Self::longest_max) is exact afterwards.
    pub(super) fn take(&mut self, pages: usize) -> Option<usize> {
        let (mut from, mut longest) = (0, 0);
        while let Some(run) = self.next_run(from) {
            if run.len() >= pages {
                self.flip(run.start, pages);
                self.count -= pages;
                self.longest_max = self.longest_max.min(self.count);
                return Some(run.start);
            }
            longest = longest.max(run.len());
            from = run.end;
        }
        self.longest_max = longest;
        None
    }

    /// Returns the first run of free pages from page `from` on.
    pub(super) fn next_run(&self, from: usize) -> Option<Range<usize>> {
        let start = self.next(from, true)?;
        Some(start..self.next(start, false).unwrap_or(CHUNK_PAGES))
    }

    /// Frees `pages` taken pages from `first` on.
    pub(super) fn put_back(&mut self, first: usize, pages: usize) {
        self.flip(first, pages);
        self.count += pages;
        // May join a run on each side.
        self.longest_max = (2 * self.longest_max + pages).min(self.count);
    }

    /// Returns the first page from `from` on that is free, or taken if `is_free` is false.
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
        /// Compares with a list of booleans as the model.
        #[test]
        fn takes_the_first_run_that_is_long_enough(
            steps in prop::collection::vec((1..70_usize, any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            let mut bitmap = FreePages::all();
            let mut model = [true; CHUNK_PAGES];
            let mut taken = Vec::new();
            for (pages, takes, which) in steps {
                let mut failed = false;
                if takes || taken.is_empty() {
                    let want = model.windows(pages).position(|run| run.iter().all(|free| *free));
                    let found = bitmap.take(pages);
                    prop_assert_eq!(found, want);
                    failed = found.is_none();
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
                let longest = model.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len);
                let longest = longest.max().unwrap_or(0);
                prop_assert!(bitmap.longest_max() >= longest);
                if failed {
                    prop_assert_eq!(bitmap.longest_max(), longest, "known after a failed search");
                }
            }
        }
    }
}
