//! Memory for as many entries as a caller asks for, which may be more than the system has.

use alloc::{vec, vec::Vec};

use crate::huge_pages;

/// So many copies of `value`, in large pages where that pays and the system grants them: zeros,
/// that is, which are not written yet.
///
/// # Panics
///
/// If the system does not grant the memory. `vec!` alone would end the process then.
pub(crate) fn filled<T: Clone>(value: T, count: usize) -> Vec<T> {
    // Asked for twice: only `vec!` gets memory that is zero without being written. The first answer
    // must be seen, or the compiler takes it to be yes.
    let mut asked = Vec::<T>::new();
    let granted = asked.try_reserve_exact(count);
    core::hint::black_box(asked.as_ptr());
    drop(asked);
    granted.expect("the filter fits the memory");
    let mut values = vec![value; count];
    huge_pages::ask(&mut values);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_filled() {
        for count in [0, 1, 100_000] {
            assert_eq!(filled(7_u32, count).len(), count);
            assert!(filled(7_u32, count).iter().all(|&value| value == 7), "{count}");
        }
    }

    #[test]
    fn more_than_there_is_panics() {
        for count in [1_usize << 58, usize::MAX] {
            let found = std::panic::catch_unwind(|| filled(0_u64, count).len());
            assert!(found.is_err(), "{count} words");
        }
    }
}
