//! Allocation of arrays whose length a caller chooses and that may exceed the memory.

use alloc::{vec, vec::Vec};

use crate::huge_pages;

/// Returns `count` copies of `value`, in huge pages if the array is large and the system has them.
/// Zeros are not written, so their pages are not resident yet.
///
/// # Panics
///
/// If the system does not grant the memory. `vec!` alone would abort the process.
pub(crate) fn filled<T: Clone>(value: T, count: usize) -> Vec<T> {
    // Allocated twice, because only `vec!` gets zeroed memory without writing it. `black_box` keeps
    // the compiler from removing the first allocation.
    let mut trial = Vec::<T>::new();
    let granted = trial.try_reserve_exact(count);
    core::hint::black_box(trial.as_ptr());
    drop(trial);
    granted.expect("the system has memory for the filter");
    let mut values = vec![value; count];
    huge_pages::advise(&mut values);
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
    fn an_array_larger_than_memory_panics() {
        for count in [1_usize << 58, usize::MAX] {
            let found = std::panic::catch_unwind(|| filled(0_u64, count).len());
            assert!(found.is_err(), "{count} words");
        }
    }
}
