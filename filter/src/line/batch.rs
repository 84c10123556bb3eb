//! Many questions or insertions, with their lines on the way from memory.

use super::{Line, line_index, line_of, prefetch};

/// So many lines are on their way from memory at once.
///
/// Far more than the processor loads at a time: a filter of a hundred million keys took 8.0 ns a
/// question with 16, 5.9 with 32, 3.8 with 128 and 4.2 with 256, and 13 ns a key to build with 16,
/// 5.8 with 128. To partition the hashes of a build by ranges of lines first was no faster at any
/// size.
const AHEAD: usize = 128;

/// Lines of fewer bytes are in the caches next to the core if they are asked often. Their questions
/// are not helped by prefetches: they took 1.1 ns with, 0.8 ns without.
pub(super) const FAR_BYTES: usize = 256 << 10;

/// Sets each of `answers` to what `test` says of the hash at its place and its line.
#[inline(always)]
pub(super) fn test_all(
    lines: &[Line],
    hashes: &[u64],
    answers: &mut [bool],
    test: impl Fn(&Line, u64) -> bool,
) {
    let ask = |(&hash, answer): (&u64, &mut bool)| {
        *answer = test(line_of(lines, hash), hash);
    };
    if size_of_val(lines) < FAR_BYTES {
        hashes.iter().zip(answers).for_each(ask);
        return;
    }
    let (first, rest) = hashes.split_at(hashes.len().min(AHEAD));
    for &hash in first {
        prefetch(line_of(lines, hash));
    }
    let (front, back) = answers.split_at_mut(rest.len());
    let (asked, tail) = hashes.split_at(rest.len());
    for (question, &ahead) in asked.iter().zip(front).zip(rest) {
        prefetch(line_of(lines, ahead));
        ask(question);
    }
    tail.iter().zip(back).for_each(ask);
}

/// Calls `insert` with each of `hashes` and its line.
#[inline(always)]
pub(super) fn insert_all(lines: &mut [Line], hashes: &[u64], insert: impl Fn(&mut Line, u64)) {
    let rest = hashes.get(AHEAD..).unwrap_or_default();
    let (now, tail) = hashes.split_at(rest.len());
    let count = lines.len();
    for (&hash, &ahead) in now.iter().zip(rest) {
        prefetch(line_of(lines, ahead));
        insert(&mut lines[line_index(hash, count)], hash);
    }
    for &hash in tail {
        insert(&mut lines[line_index(hash, count)], hash);
    }
}
