//! Back-substitution: from the rows of a layer to the slots of one column group.

use super::band::Band;
use super::group::{Group, LINE_WORDS};
use super::path::Path;
use super::shape::{BLOCK_SLOTS, GROUP_COLUMNS, Layer};

/// Rows of a block.
const ROWS: usize = BLOCK_SLOTS as usize;

/// Fills the blocks of `layer` in column group `index`.
pub(crate) fn solve(path: Path, layer: &Layer, band: &Band, index: usize, group: &mut Group) {
    let (coefficients, _) = band.coefficients.as_chunks::<ROWS>();
    let (fingerprints, _) = band.fingerprints.as_chunks::<ROWS>();
    let shift = index as u32 * u32::from(GROUP_COLUMNS); // At most 24.
    // Bit `i` of a column is the slot `i` behind the last one that was solved.
    let mut columns = [0; LINE_WORDS];
    let end = layer.first_block + coefficients.len() as u64;
    let blocks = (layer.first_block..end).rev();
    let rows = coefficients.iter().zip(fingerprints).rev();
    for (block, (coefficients, fingerprints)) in blocks.zip(rows) {
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

/// Solves a block, last slot first. A slot without a row becomes zero.
fn portable(
    coefficients: &[u64; ROWS],
    fingerprints: &[u32; ROWS],
    shift: u32,
    columns: &mut [u64; LINE_WORDS],
) {
    for (&coefficients, &fingerprint) in coefficients.iter().zip(fingerprints).rev() {
        let others = coefficients >> 1;
        let wanted = fingerprint >> shift;
        for (j, column) in (0..).zip(&mut *columns) {
            let sum = (*column & others).count_ones() ^ (wanted >> j);
            *column = *column << 1 | u64::from(sum & 1);
        }
    }
}
