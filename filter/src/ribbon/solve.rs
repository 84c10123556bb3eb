//! Back-substitution: from the rows of all layers to the slots of one column group.

use super::band::Band;
use super::group::{Group, LINE_WORDS};
use super::path::Path;
use super::shape::{BLOCK_SLOTS, GROUP_COLUMNS};

const ROWS: usize = BLOCK_SLOTS as usize;

/// Solves column group `index` from the rows of all layers.
pub(crate) fn solve(path: Path, bands: &[Band], index: usize, group: &mut Group) {
    let shift = index as u32 * u32::from(GROUP_COLUMNS); // At most 24.
    debug_assert!(shift < u32::BITS, "a fingerprint has 32 bits");
    // Bit `i` of a column is the slot `i` after the one solved last.
    let mut columns = [0; LINE_WORDS];
    let mut block = group.shape.blocks;
    for band in bands.iter().rev() {
        let (coefficients, _) = band.coefficients.as_chunks::<ROWS>();
        let (fingerprints, _) = band.fingerprints.as_chunks::<ROWS>();
        for (coefficients, fingerprints) in coefficients.iter().zip(fingerprints).rev() {
            block -= 1;
            match path {
                #[cfg(target_arch = "x86_64")]
                Path::Avx512(avx512) => {
                    avx512.solve_block(coefficients, fingerprints, shift, &mut columns);
                }
                _ => portable(coefficients, fingerprints, shift, &mut columns),
            }
            group.set_block(block, &columns);
        }
    }
    debug_assert_eq!(block, 0, "the layers have all blocks of the group");
}

/// Solves a block, last slot first. A slot without a row is zero.
fn portable(
    coefficients: &[u64; ROWS],
    fingerprints: &[u32; ROWS],
    shift: u32,
    columns: &mut [u64; LINE_WORDS],
) {
    for (&coefficients, &fingerprint) in coefficients.iter().zip(fingerprints).rev() {
        let others = coefficients >> 1;
        let target = fingerprint >> shift;
        for (j, column) in (0..).zip(&mut *columns) {
            let sum = (*column & others).count_ones() ^ (target >> j);
            *column = *column << 1 | u64::from(sum & 1);
        }
    }
}
