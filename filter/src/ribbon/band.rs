//! A layer's system of equations in echelon form, with at most one row per slot.
//!
//! Keys arrive bucket by bucket, sorted by start. Which slots get a row depends only on the
//! equations, not on the order of elimination, and a slot without a row is zero. So every method of
//! elimination gives the same filter, bit for bit.

#[cfg(target_arch = "x86_64")]
use alloc::boxed::Box;
use alloc::vec::Vec;

#[cfg(target_arch = "x86_64")]
use super::path::Avx512;
use super::path::Path;
use super::row::{Row, WIDTH};
use super::rows::Rows;
use super::shape::BLOCK_SLOTS;
#[cfg(target_arch = "x86_64")]
use super::window::Window;
use crate::page_vec::{self, PageVec};

/// Slots after a layer that its rows can reach, in whole blocks.
const OVERHANG: usize = WIDTH as usize;

/// Rows of a layer.
#[derive(Debug, Clone)]
pub(crate) struct Band {
    /// Bit `i` of entry `s` is the coefficient of slot `s + i`. Bit 0 is set, or all bits are clear
    /// if slot `s` has no row.
    pub(crate) coefficients: PageVec<u64>,
    pub(crate) fingerprints: PageVec<u32>,
    /// Slots that got their row during the current [`insert_all`](Self::insert_all).
    fresh: Vec<usize>,
}

impl Default for Band {
    fn default() -> Self {
        let (coefficients, fingerprints) = (page_vec::zeros(0), page_vec::zeros(0));
        Self { coefficients, fingerprints, fresh: Vec::new() }
    }
}

impl Band {
    /// Allocates `blocks` blocks and the slots after them that a row can reach.
    fn new(blocks: u64) -> Self {
        let slots = (blocks * BLOCK_SLOTS) as usize + OVERHANG; // Not many more than keys.
        let (coefficients, fingerprints) = (page_vec::zeros(slots), page_vec::zeros(slots));
        Self { coefficients, fingerprints, fresh: Vec::new() }
    }

    /// Returns the blocks of a finished layer.
    pub(crate) fn blocks(&self) -> u64 {
        self.coefficients.len() as u64 / BLOCK_SLOTS
    }

    /// Returns the slots of an unfinished layer.
    pub(crate) fn slots(&self) -> usize {
        self.coefficients.len() - OVERHANG
    }

    /// Splits off the slots after the blocks.
    fn split_overhang(&mut self) -> Self {
        let slots = self.slots();
        let coefficients = self.coefficients.split_off(slots);
        let fingerprints = self.fingerprints.split_off(slots);
        Self { coefficients, fingerprints, fresh: Vec::new() }
    }

    fn rows_from(&self, slot: usize) -> u32 {
        let end = self.coefficients.len().min(slot + WIDTH as usize);
        let rows = self.coefficients[slot..end].iter().filter(|&&row| row != 0);
        rows.count() as u32 // At most `WIDTH`.
    }

    /// Implements [`Elimination::insert_all`].
    fn insert_all(&mut self, rows: Rows<'_>) -> bool {
        debug_assert!(rows.starts.is_sorted(), "rows are sorted by start");
        self.fresh.clear();
        if rows.iter().all(|row| self.insert(row)) {
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
        debug_assert!(slot < self.slots(), "start {slot} is outside of the layer");
        debug_assert_eq!(coefficients & 1, 1, "the start has coefficient 1");
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

/// Elimination of the current layer, by the fastest method of this CPU.
///
/// Equations of a layer may end in the next one, whose elimination starts with their rows.
#[derive(Debug, Clone)]
pub(crate) struct Elimination {
    /// Rows of the layer. Between layers: rows that reach into the next one, unless they are in the
    /// window.
    band: Band,
    method: Method,
}

/// Alternative tried: a reduced matrix in AVX2 registers, one key at a time. It was as slow as the
/// portable method: without matrix products, updating 64 rows costs what it saves.
#[derive(Debug, Clone)]
enum Method {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx512 {
        avx512: Avx512,
        window: Box<Window>,
        groups: usize,
    },
}

impl Elimination {
    /// Creates an empty state for fingerprints of `groups` column groups.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "the portable method handles all columns alike")
    )]
    pub(crate) fn new(path: Path, groups: usize) -> Self {
        let method = match path {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512(avx512) => {
                Method::Avx512 { avx512, window: Box::new(Window::new()), groups }
            }
            _ => Method::Portable,
        };
        Self { band: Band::new(0), method }
    }

    /// Starts a layer of `blocks` blocks, or restarts it if nothing was inserted.
    pub(crate) fn start(&mut self, blocks: u64) {
        let before = core::mem::replace(&mut self.band, Band::new(blocks));
        self.band.coefficients[..OVERHANG].copy_from_slice(&before.coefficients[..OVERHANG]);
        self.band.fingerprints[..OVERHANG].copy_from_slice(&before.fingerprints[..OVERHANG]);
    }

    /// Adds all of these equations, or none if one is inconsistent.
    ///
    /// `rows` are sorted by start, and none starts before those of earlier calls. A redundant
    /// equation needs no row. It holds only as long as the equations it follows from: a failed
    /// bucket is undone and retried as a whole.
    pub(crate) fn insert_all(&mut self, rows: Rows<'_>) -> bool {
        match &mut self.method {
            Method::Portable => self.band.insert_all(rows),
            #[cfg(target_arch = "x86_64")]
            Method::Avx512 { avx512, window, groups } => {
                avx512.insert_all(window, rows, &mut self.band, *groups)
            }
        }
    }

    /// Returns the number of slots from `slot` on that have a row. No key so far starts after
    /// `slot`.
    pub(crate) fn rows_from(&self, slot: usize) -> u32 {
        match &self.method {
            Method::Portable => self.band.rows_from(slot),
            #[cfg(target_arch = "x86_64")]
            Method::Avx512 { window, .. } => window.rows_from(slot),
        }
    }

    /// Finishes the layer.
    pub(crate) fn finish(&mut self) -> Band {
        #[cfg(target_arch = "x86_64")]
        if let Method::Avx512 { avx512, window, .. } = &mut self.method {
            avx512.finish(window, &mut self.band);
        }
        debug_assert!(self.band.coefficients.len() >= OVERHANG, "a layer was started");
        let overhang = self.band.split_overhang();
        debug_assert_eq!(overhang.coefficients.len(), OVERHANG);
        core::mem::replace(&mut self.band, overhang)
    }
}
