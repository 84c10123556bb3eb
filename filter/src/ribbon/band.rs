//! A layer's system of equations in echelon form, one row for each slot at most.
//!
//! Keys arrive bucket by bucket in rising order of their starts. Which slots end up with a row
//! depends on the equations alone, not on how they were eliminated, and a slot without a row is
//! zero: so every way to eliminate gives the same filter, bit for bit.

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

/// Slots behind a layer that its rows can reach, and one: in whole blocks.
const OVERHANG: usize = WIDTH as usize;

/// Rows of a layer.
#[derive(Debug, Clone)]
pub(crate) struct Band {
    /// Bit `i` of entry `s` says whether slot `s + i` takes part; bit 0 is set, or all are clear
    /// when no row has slot `s` as its first.
    pub(crate) coefficients: PageVec<u64>,
    pub(crate) fingerprints: PageVec<u32>,
    /// Slots that got their row since the last call of [`insert_all`](Self::insert_all) began.
    fresh: Vec<usize>,
}

/// Of no slots.
impl Default for Band {
    fn default() -> Self {
        let (coefficients, fingerprints) = (page_vec::zeros(0), page_vec::zeros(0));
        Self { coefficients, fingerprints, fresh: Vec::new() }
    }
}

impl Band {
    /// Of `blocks` blocks and as many slots behind them as a row can reach.
    fn new(blocks: u64) -> Self {
        let slots = (blocks * BLOCK_SLOTS) as usize + OVERHANG; // Not many more than keys.
        let (coefficients, fingerprints) = (page_vec::zeros(slots), page_vec::zeros(slots));
        Self { coefficients, fingerprints, fresh: Vec::new() }
    }

    /// Blocks of a finished layer.
    pub(crate) fn blocks(&self) -> u64 {
        self.coefficients.len() as u64 / BLOCK_SLOTS
    }

    /// Slots of a layer that is not finished.
    pub(crate) fn slots(&self) -> usize {
        self.coefficients.len() - OVERHANG
    }

    /// Takes away the slots behind the blocks.
    fn split_overhang(&mut self) -> Self {
        let slots = self.slots();
        let coefficients = self.coefficients.split_off(slots);
        let fingerprints = self.fingerprints.split_off(slots);
        Self { coefficients, fingerprints, fresh: Vec::new() }
    }

    fn taken_from(&self, slot: usize) -> u32 {
        let end = self.coefficients.len().min(slot + WIDTH as usize);
        let rows = self.coefficients[slot..end].iter().filter(|&&row| row != 0);
        rows.count() as u32 // At most `WIDTH`.
    }

    /// See [`Elimination::insert_all`].
    fn insert_all(&mut self, rows: Rows<'_>) -> bool {
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

/// The layers' [`Band`]s in the making, by the fastest means of this CPU.
///
/// The equations of a layer may end in the next one, whose elimination goes on with what they left.
#[derive(Debug, Clone)]
pub(crate) struct Elimination {
    /// That of the layer. Between layers: rows that reach into the next one, if not in the window.
    band: Band,
    means: Means,
}

/// A reduced matrix in AVX2 registers, a key at a time, took as long as the chains of the portable
/// form: without the products of matrices, to change 64 rows costs what it saves.
#[derive(Debug, Clone)]
enum Means {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx512 {
        avx512: Avx512,
        window: Box<Window>,
        groups: usize,
    },
}

impl Elimination {
    /// For fingerprints that fill `groups` column groups.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "the portable means takes all columns alike")
    )]
    pub(crate) fn new(path: Path, groups: usize) -> Self {
        let means = match path {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512(avx512) => {
                Means::Avx512 { avx512, window: Box::new(Window::new()), groups }
            }
            _ => Means::Portable,
        };
        Self { band: Band::new(0), means }
    }

    /// Begins a layer of `blocks` blocks, or restarts it if nothing was inserted.
    pub(crate) fn start(&mut self, blocks: u64) {
        let before = core::mem::replace(&mut self.band, Band::new(blocks));
        self.band.coefficients[..OVERHANG].copy_from_slice(&before.coefficients[..OVERHANG]);
        self.band.fingerprints[..OVERHANG].copy_from_slice(&before.fingerprints[..OVERHANG]);
    }

    /// Adds all of these equations, or none if one contradicts the others.
    ///
    /// `rows` are in the order of their starts, and none starts before those of earlier calls. An
    /// equation that follows from earlier ones is met without a row of its own. It is met only
    /// as long as those are: a bucket is undone and tried anew as a whole.
    pub(crate) fn insert_all(&mut self, rows: Rows<'_>) -> bool {
        match &mut self.means {
            Means::Portable => self.band.insert_all(rows),
            #[cfg(target_arch = "x86_64")]
            Means::Avx512 { avx512, window, groups } => {
                avx512.insert_all(window, rows, &mut self.band, *groups)
            }
        }
    }

    /// How many slots from `slot` on have a row. No key started behind `slot`.
    pub(crate) fn taken_from(&self, slot: usize) -> u32 {
        match &self.means {
            Means::Portable => self.band.taken_from(slot),
            #[cfg(target_arch = "x86_64")]
            Means::Avx512 { window, .. } => window.taken_from(slot),
        }
    }

    /// Ends the layer.
    pub(crate) fn finish(&mut self) -> Band {
        #[cfg(target_arch = "x86_64")]
        if let Means::Avx512 { avx512, window, .. } = &mut self.means {
            avx512.finish(window, &mut self.band);
        }
        let overhang = self.band.split_overhang();
        core::mem::replace(&mut self.band, overhang)
    }
}
