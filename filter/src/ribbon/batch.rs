//! Asking a filter for many hashes at once: their places first, and the answers when the lines are
//! there.

use super::Ribbon;
use super::group::View;
use super::query::{Place, row_of_bumped, test_all};
use super::row::{Mixed, TurnedRow};

/// So many questions of a batch are on their way from memory at once: twice as many loads as a core
/// keeps in flight. With 32 a question takes a third longer at 10^8 keys, with 16 twice as long.
const BATCH: usize = 64;

/// Tests a batch with `test`.
#[inline(always)]
pub(crate) fn test_batch(
    ribbon: &Ribbon,
    hashes: &[u64],
    answers: &mut [bool],
    test: impl Fn(View<'_>, &Place, u8) -> bool,
) {
    let group = ribbon.groups.first.view();
    if !ribbon.groups.others.is_empty() || group.shape.upper > 0 {
        test_places(ribbon, group, hashes, answers, |place| test_all(ribbon, place, &test));
    } else {
        // Compiled apart: 30 % faster in the caches.
        let group = group.unmixed();
        let test = |place: &Place| test(group, place, place.fingerprint as u8);
        test_places(ribbon, group, hashes, answers, test);
    }
}

/// Answers each hash by a `test` of its place, of which `group` is read first. Each answer is found
/// [`BATCH`] questions after its place, when the lines are there; a batch of fewer finds all places
/// first.
#[inline(always)]
fn test_places(
    ribbon: &Ribbon,
    group: View<'_>,
    hashes: &[u64],
    answers: &mut [bool],
    test: impl Fn(&Place) -> bool,
) {
    if hashes.len() <= BATCH / 2 {
        // Most batches are small, and each place has to be set up.
        let mut rows = [TurnedRow::ZERO; BATCH / 2];
        for (row, &hash) in rows.iter_mut().zip(hashes) {
            find(row, ribbon, group, hash);
        }
        for (answer, row) in answers.iter_mut().zip(&rows) {
            *answer = test(&Place::new(*row));
        }
        return;
    }
    let mut rows = [TurnedRow::ZERO; BATCH];
    let (ahead, hashes) = hashes.split_at(hashes.len().min(BATCH));
    for (row, &hash) in rows.iter_mut().zip(ahead) {
        find(row, ribbon, group, hash);
    }
    let (answers, last_answers) = answers.split_at_mut(hashes.len());
    for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
        for ((&hash, answer), row) in hashes.iter().zip(answers).zip(&mut rows) {
            *answer = test(&Place::new(*row));
            find(row, ribbon, group, hash);
        }
    }
    // The oldest row left is where the loop ended.
    rows[..ahead.len()].rotate_left(hashes.len() % BATCH);
    for (answer, row) in last_answers.iter_mut().zip(&rows) {
        *answer = test(&Place::new(*row));
    }
}

/// Makes `row` the equation of this hash, and asks for its lines. Rows are kept, and not places,
/// because they are smaller.
///
/// A copy made afterwards would wait for its parts. A closure would not be inlined, and so be
/// compiled for any processor.
#[inline(always)]
fn find(row: &mut TurnedRow, ribbon: &Ribbon, group: View<'_>, hash: u64) {
    match ribbon.front.row(ribbon, Mixed::new(hash, ribbon.front.seed)) {
        Some(found) => *row = found,
        None => find_bumped(row, ribbon, hash),
    }
    Place::new(*row).prefetch(group);
}

/// Makes `row` the equation of a `hash` that is bumped from the first two layers. Not inlined: see
/// [`test_one`](super::query::test_one).
#[inline(never)]
fn find_bumped(row: &mut TurnedRow, ribbon: &Ribbon, hash: u64) {
    *row = row_of_bumped(ribbon, hash);
}
