//! Keys of the skiplist, and how one is looked up without being built.

use std::{borrow::Borrow, cmp::Ordering};

use sievedb_format::{InternalKey, Trailer};

/// The key of a node.
#[derive(Debug)]
pub(crate) struct OwnedKey {
    pub(crate) user_key: Box<[u8]>,
    pub(crate) trailer: Trailer,
}

/// What compares as an internal key: one in a node, or one that a caller only borrows.
///
/// A map finds a key by anything that its keys can be borrowed as. Borrowed as this trait object, a
/// node's key compares with a caller's slice; no key is allocated for a lookup.
pub(crate) trait AsInternalKey {
    fn internal_key(&self) -> InternalKey<'_>;
}

impl AsInternalKey for OwnedKey {
    #[inline]
    fn internal_key(&self) -> InternalKey<'_> {
        InternalKey::new(&self.user_key, self.trailer)
    }
}

impl AsInternalKey for InternalKey<'_> {
    #[inline]
    fn internal_key(&self) -> InternalKey<'_> {
        *self
    }
}

impl<'a> Borrow<dyn AsInternalKey + 'a> for OwnedKey {
    #[inline]
    fn borrow(&self) -> &(dyn AsInternalKey + 'a) {
        self
    }
}

impl Ord for dyn AsInternalKey + '_ {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.internal_key().cmp(&other.internal_key())
    }
}

impl PartialOrd for dyn AsInternalKey + '_ {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn AsInternalKey + '_ {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.internal_key() == other.internal_key()
    }
}

impl Eq for dyn AsInternalKey + '_ {}

// `Borrow` asks that the owned form compares as the borrowed one does: so it goes through it.

impl Ord for OwnedKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.internal_key().cmp(&other.internal_key())
    }
}

impl PartialOrd for OwnedKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OwnedKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.internal_key() == other.internal_key()
    }
}

impl Eq for OwnedKey {}
