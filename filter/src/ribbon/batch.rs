//! Probes of many hashes at once: prefetches the lines of all, then tests.

use super::Ribbon;
use super::group::View;
use super::query::{Place, row_of_bumped, test_all};
use super::row::{Mixed, TurnedRow};

/// Probes in flight at once: twice the loads that a core keeps in flight. With 32 a probe is a
/// third slower at 10^8 keys, with 16 twice as slow.
const BATCH: usize = 64;

/// Tests a batch with `test`.
#[inline(always)]
pub(crate) fn test_batch(
    ribbon: &Ribbon,
    hashes: &[u64],
    results: &mut [bool],
    test: impl Fn(View<'_>, &Place, u8) -> bool,
) {
    let group = ribbon.groups.first.view();
    if !ribbon.groups.others.is_empty() || group.shape.upper > 0 {
        test_places(ribbon, group, hashes, results, |place| test_all(ribbon, place, &test));
    } else {
        // A separate instance: 30 % faster in the caches.
        let group = group.unmixed();
        let test = |place: &Place| test(group, place, place.fingerprint as u8);
        test_places(ribbon, group, hashes, results, test);
    }
}

/// Tests the place of each hash, of which `group` is read first. Each test runs [`BATCH`] probes
/// after its prefetch. Smaller batches prefetch all places first.
#[inline(always)]
fn test_places(
    ribbon: &Ribbon,
    group: View<'_>,
    hashes: &[u64],
    results: &mut [bool],
    test: impl Fn(&Place) -> bool,
) {
    if hashes.len() <= BATCH / 2 {
        // Most batches are small, and each element of the array costs an initialization.
        let mut rows = [TurnedRow::ZERO; BATCH / 2];
        for (row, &hash) in rows.iter_mut().zip(hashes) {
            find(row, ribbon, group, hash);
        }
        for (result, row) in results.iter_mut().zip(&rows) {
            *result = test(&Place::new(*row));
        }
        return;
    }
    let mut rows = [TurnedRow::ZERO; BATCH];
    let (ahead, hashes) = hashes.split_at(hashes.len().min(BATCH));
    for (row, &hash) in rows.iter_mut().zip(ahead) {
        find(row, ribbon, group, hash);
    }
    let (results, last_results) = results.split_at_mut(hashes.len());
    for (hashes, results) in hashes.chunks(BATCH).zip(results.chunks_mut(BATCH)) {
        for ((&hash, result), row) in hashes.iter().zip(results).zip(&mut rows) {
            *result = test(&Place::new(*row));
            find(row, ribbon, group, hash);
        }
    }
    // The oldest remaining row is where the loop ended.
    rows[..ahead.len()].rotate_left(hashes.len() % BATCH);
    for (result, row) in last_results.iter_mut().zip(&rows) {
        *result = test(&Place::new(*row));
    }
}

/// Sets `row` to the equation of this hash and prefetches its lines. Rows are kept instead of
/// places because they are smaller.
///
/// Writes in place: a copy would wait for its parts. Not a closure: closures are not inlined, and
/// so compiled for any CPU.
#[inline(always)]
fn find(row: &mut TurnedRow, ribbon: &Ribbon, group: View<'_>, hash: u64) {
    match ribbon.front.row(ribbon, Mixed::new(hash, ribbon.front.seed)) {
        Some(found) => *row = found,
        None => find_bumped(row, ribbon, hash),
    }
    Place::new(*row).prefetch(group);
}

/// Sets `row` to the equation of a `hash` that the first two layers bump. Not inlined: see
/// [`test_one`](super::query::test_one).
#[inline(never)]
fn find_bumped(row: &mut TurnedRow, ribbon: &Ribbon, hash: u64) {
    *row = row_of_bumped(ribbon, hash);
}
