//! Power cuts after each operation of a disk, of whatever it holds.

use std::sync::Arc;

use sievedb_doubles::{Loss, MemoryFs};

use crate::{check::guarded, enumerate::on_two_threads, rng::mix};

/// Cuts the power after each operation from number `began` on, in four ways. `check` gets what the
/// cut left and the number of operations before it, and returns the number of checked states.
/// Returns their sum.
///
/// # Errors
///
/// The first violation, with the operations of the disk.
pub fn cut_power(
    disk: &MemoryFs,
    began: usize,
    seed: u64,
    check: impl Fn(&Arc<MemoryFs>, usize) -> Result<usize, String> + Sync,
) -> Result<usize, String> {
    let cuts: Vec<_> = (began..=disk.operations()).collect();
    let checked = on_two_threads(&cuts, |&at| {
        let lot = mix(seed ^ mix(at as u64));
        let random = [true, false].map(|torn| Loss::Random { seed: mix(lot), torn });
        let mut states = 0;
        for loss in [Loss::Nothing, Loss::Everything].into_iter().chain(random) {
            let left = Arc::new(disk.crash(at, &loss));
            states += guarded(|| check(&left, at))
                .map_err(|text| format!("cut at {at}: {text}\n{}", disk.trace(at, &loss)))?;
        }
        Ok(states)
    });
    checked.into_iter().sum()
}
