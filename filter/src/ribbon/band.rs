//! A layer's system of equations in echelon form, one row for each slot at most.
//!
//! Keys arrive bucket by bucket in rising order of their starts. Which slots end up with a row
//! depends on the equations alone, not on how they were eliminated, and a slot without a row is
//! zero: so every way to eliminate gives the same filter, bit for bit.

use alloc::{boxed::Box, vec::Vec};

#[cfg(target_arch = "x86_64")]
use super::path::Avx512;
use super::path::Path;
use super::row::Row;
use super::shape::BLOCK_SLOTS;
#[cfg(target_arch = "x86_64")]
use super::window::Window;

/// Rows of a layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Band {
    /// Bit `i` of entry `s` says whether slot `s + i` takes part; bit 0 is set, or all are clear
    /// when no row has slot `s` as its first.
    pub(crate) coefficients: Vec<u64>,
    pub(crate) fingerprints: Vec<u32>,
    /// Slots that got their row since the last call of [`insert_all`](Self::insert_all) began.
    fresh: Vec<usize>,
}

impl Band {
    pub(crate) fn new(slots: usize) -> Self {
        Self { coefficients: vec![0; slots], fingerprints: vec![0; slots], fresh: Vec::new() }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.coefficients.len() as u64 / BLOCK_SLOTS
    }

    /// Adds all of these equations, or none if one contradicts the others.
    ///
    /// An equation that follows from earlier ones is met without a row of its own. It is met only
    /// as long as those are: a bucket is undone and tried anew as a whole.
    pub(crate) fn insert_all(&mut self, rows: &[Row]) -> bool {
        self.fresh.clear();
        if rows.iter().all(|&row| self.insert(row)) {
            return true;
        }
        for slot in self.fresh.drain(..) {
            self.coefficients[slot] = 0;
            self.fingerprints[slot] = 0;
        }
        false
    }

    fn insert(&mut self, row: Row) -> bool {
        let Row { start, mut coefficients, mut fingerprint } = row;
        let mut slot = start as usize; // Below the number of slots, which are in memory.
        loop {
            let found = self.coefficients[slot];
            if found == 0 {
                self.coefficients[slot] = coefficients;
                self.fingerprints[slot] = fingerprint;
                self.fresh.push(slot);
                return true;
            }
            coefficients ^= found;
            fingerprint ^= self.fingerprints[slot];
            if coefficients == 0 {
                return fingerprint == 0;
            }
            let shift = coefficients.trailing_zeros();
            coefficients >>= shift;
            slot += shift as usize;
        }
    }
}

/// A [`Band`] in the making, by the fastest means of this CPU.
#[derive(Debug)]
pub(crate) enum Elimination {
    Portable(Band),
    #[cfg(target_arch = "x86_64")]
    Avx512 {
        avx512: Avx512,
        window: Box<Window>,
        band: Band,
        groups: usize,
    },
}

impl Elimination {
    /// Of `slots` slots, for fingerprints that fill `groups` column groups.
    pub(crate) fn new(path: Path, slots: usize, groups: usize) -> Self {
        let band = Band::new(slots);
        match path {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512(avx512) => {
                Self::Avx512 { avx512, window: Box::new(avx512.window()), band, groups }
            }
            _ => Self::Portable(band),
        }
    }

    /// See [`Band::insert_all`]. `rows` are in the order of their starts, and none starts before
    /// those of earlier calls.
    pub(crate) fn insert_all(&mut self, rows: &[Row]) -> bool {
        match self {
            Self::Portable(band) => band.insert_all(rows),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 { avx512, window, band, groups } => {
                avx512.insert_all(window, rows, band, *groups)
            }
        }
    }

    pub(crate) fn finish(self) -> Band {
        match self {
            Self::Portable(band) => band,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 { avx512, window, mut band, .. } => {
                avx512.finish(*window, &mut band);
                band
            }
        }
    }
}
