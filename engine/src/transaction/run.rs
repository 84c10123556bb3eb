//! Begins transactions, and retries them after conflicts.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    time::Duration,
};

use super::{Transaction, TransactionOptions};
use crate::{Error, Keyspace, Result};

/// Maximum wait before the second retry. Doubles with each further retry.
const WAIT_MIN: Duration = Duration::from_micros(20);

const WAIT_MAX: Duration = Duration::from_millis(10);

/// Runs `body` in transactions over the store of `default`, until one commits. An error of `body`
/// for which `is_conflict` returns `true` counts as a conflict.
///
/// # Errors
///
/// The error of `body`, or of the commit; [`Error::Conflict`] after the last retry.
pub(crate) fn run<T, E: From<Error>>(
    default: &Keyspace,
    options: TransactionOptions,
    mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
    is_conflict: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let store = default.open_store().accept()?;
    let mut retries = 0;
    loop {
        let mut transaction = Transaction::new(default, options);
        let (error, is_conflict) = match body(&mut transaction) {
            Ok(result) => match transaction.commit(None) {
                Ok(_) => return Ok(result),
                Err(error) => {
                    let is_conflict = matches!(error, Error::Conflict { .. });
                    (error.into(), is_conflict)
                }
            },
            Err(error) => {
                drop(transaction);
                let is_conflict = is_conflict(&error);
                (error, is_conflict)
            }
        };
        if !is_conflict || retries >= options.retries_max {
            return Err(error);
        }
        store.options.clock.sleep(wait(retries));
        retries += 1;
    }
}

/// Returns the wait before a retry: random, so that two transactions do not conflict repeatedly.
fn wait(retries: u32) -> Duration {
    let Some(doublings) = retries.checked_sub(1) else { return Duration::ZERO };
    let full = WAIT_MIN.saturating_mul(1 << doublings.min(16)).min(WAIT_MAX);
    let random = RandomState::new().build_hasher().finish();
    full / 2 + full.mul_f64((random >> 32) as f64 / 2_f64.powi(33))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_limit() {
        assert_eq!(wait(0), Duration::ZERO);
        for (retries, full_us) in
            [(1, 20), (2, 40), (5, 320), (9, 5120), (10, 10_000), (100, 10_000)]
        {
            let (wait, full) = (wait(retries), Duration::from_micros(full_us));
            assert!((full / 2..=full).contains(&wait), "{retries}: {wait:?}");
        }
    }
}
