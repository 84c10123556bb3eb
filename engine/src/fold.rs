//! Applies the merge operator of a keyspace.
//!
//! An operator is code of the application: it may fail or panic. Reads then fail. Flushes and
//! compactions keep the operands, count the failure, and report the first failure of a keyspace.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use sievedb_format::VALUE_BYTES_MAX;

use crate::{
    Error, Result,
    merge_operator::{MergeError, MergeOperator, NamedOperator},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Operands of a key that a read applies without counting them.
///
/// More operands count like skipped tombstones: a flush or a compaction is due when reads have
/// applied as many as folding costs. A lookup then counts all, a scan only those beyond this
/// number. See [`tombstones`](crate::compaction::tombstones).
pub(crate) const OPERANDS_FREE: usize = 64;

/// The merge operator of a keyspace. Set at most once, before the first operand is written, and
/// shared by all views of the keyspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct OperatorCell(Arc<OnceLock<Box<Folder>>>);

impl OperatorCell {
    /// Sets the operator of the keyspace with this name, which may change. Does nothing if an
    /// operator is set.
    pub(crate) fn set(&self, keyspace: &Arc<ArcSwap<String>>, operator: &NamedOperator) {
        if let Some(operator) = operator.present() {
            self.0.get_or_init(|| Folder::new(Arc::clone(keyspace), Arc::clone(operator)).into());
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&Folder> {
        self.0.get().map(|folder| &**folder)
    }
}

impl NamedOperator {
    /// Returns an error if `other` would replace this operator of the keyspace with this name.
    ///
    /// # Errors
    ///
    /// [`Error::MergeOperatorFixed`].
    pub(crate) fn check_change(&self, keyspace: &str, other: &Self) -> Result<()> {
        match self.name().filter(|_| self != other) {
            None => Ok(()),
            Some(operator) => {
                let (keyspace, operator) = (keyspace.to_owned(), operator.to_owned());
                Err(Error::MergeOperatorFixed { keyspace, operator })
            }
        }
    }
}

/// A merge operator whose panics and oversized values are converted to errors.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Current name of the keyspace, for errors.
    keyspace: Arc<ArcSwap<String>>,
    operator: Arc<dyn MergeOperator>,
    /// Number of keys whose operands a flush or a compaction could not apply.
    failures: AtomicU64,
    /// The first failure, until it is reported.
    unreported: Mutex<Option<Error>>,
}

impl Folder {
    fn new(keyspace: Arc<ArcSwap<String>>, operator: Arc<dyn MergeOperator>) -> Self {
        Self { keyspace, operator, failures: AtomicU64::new(0), unreported: Mutex::default() }
    }

    /// Returns the value of `key` after `operands`, oldest first, were applied to `base`.
    ///
    /// # Errors
    ///
    /// [`Error::MergeFailed`].
    #[cold]
    pub(crate) fn fold(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Bytes> {
        debug_assert!(!operands.is_empty(), "without operands the base is the value");
        let merge = || self.operator.merge(key, base, operands);
        let merged = panic::catch_unwind(AssertUnwindSafe(merge));
        let merged = merged.unwrap_or_else(|_| Err(MergeError::new("the operator panicked")));
        match merged {
            Ok(value) if value.len() <= VALUE_BYTES_MAX => Ok(value.into()),
            Ok(_) => Err(self.error(key, MergeError::new("the result is longer than 256 MiB"))),
            Err(source) => Err(self.error(key, source)),
        }
    }

    /// Merges two operands into one, if the operator can do so.
    pub(crate) fn partial(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Bytes> {
        let merge = || self.operator.partial_merge(key, older, newer);
        let merged = panic::catch_unwind(AssertUnwindSafe(merge)).ok()??;
        (merged.len() <= VALUE_BYTES_MAX).then(|| merged.into())
    }

    fn error(&self, key: &[u8], source: MergeError) -> Error {
        let (keyspace, operator) =
            (self.keyspace.load().as_str().into(), self.operator.name().into());
        Error::MergeFailed { keyspace, operator, key: key.into(), source }
    }

    /// Counts a failure of a flush or a compaction, which keeps the operands.
    pub(crate) fn note_failure(&self, error: Error) {
        debug_assert!(matches!(error, Error::MergeFailed { .. }), "{error:?}");
        if self.failures.fetch_add(1, Relaxed) == 0 {
            *self.unreported.lock() = Some(error);
        }
    }

    /// Returns the first failure of a flush or a compaction, once.
    pub(crate) fn take_unreported(&self) -> Option<Error> {
        if self.failures.load(Relaxed) == 0 {
            return None;
        }
        self.unreported.lock().take()
    }

    /// Returns the number of keys whose operands were kept because the operator failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fails;

    impl MergeOperator for Fails {
        fn name(&self) -> &str {
            "fails"
        }

        fn merge(&self, _: &[u8], base: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
            assert!(base.is_some(), "no base");
            Err(MergeError::new("refused"))
        }

        fn partial_merge(&self, _: &[u8], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
            panic!("never");
        }
    }

    fn users() -> Arc<ArcSwap<String>> {
        Arc::new(ArcSwap::from_pointee("users".to_owned()))
    }

    #[test]
    fn errors_and_panics_name_key_and_operator() {
        let cell = OperatorCell::default();
        cell.set(&users(), &NamedOperator::None);
        assert!(cell.get().is_none());
        cell.set(&users(), &NamedOperator::Present(Arc::new(Fails)));
        let folder = cell.get().expect("it was set");
        for (base, want) in [(None, "the operator panicked"), (Some(&b""[..]), "refused")] {
            match folder.fold(b"anna", base, &[b"1"]) {
                Err(Error::MergeFailed { keyspace, operator, key, source }) => {
                    assert_eq!((&*keyspace, &*operator, &*key), ("users", "fails", &b"anna"[..]));
                    assert_eq!(source, MergeError::new(want));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(folder.partial(b"", b"", b""), None);
    }

    #[test]
    fn the_first_failure_is_reported_once() {
        let folder = Folder::new(users(), Arc::new(Fails));
        assert!(folder.take_unreported().is_none());
        folder.note_failure(folder.error(b"first", MergeError::new("")));
        folder.note_failure(folder.error(b"second", MergeError::new("")));
        let Some(Error::MergeFailed { key, .. }) = folder.take_unreported() else { panic!() };
        assert_eq!((&*key, folder.failures()), (&b"first"[..], 2));
        assert!(folder.take_unreported().is_none());
    }
}
