//! Snapshots of typed keyspaces.

use std::{fmt, marker::PhantomData, sync::Arc};

use sievedb::KeyspaceSnapshot;

use crate::{
    codec::Postcard,
    reads::{Types, read_methods},
};

/// A view of a [`TypedKeyspace`](crate::TypedKeyspace) at one point in time.
pub struct TypedSnapshot<K, V, C = Postcard> {
    entries: KeyspaceSnapshot,
    name: Arc<str>,
    types: Types<K, V, C>,
}

impl<K, V, C> TypedSnapshot<K, V, C> {
    pub(crate) fn new(entries: KeyspaceSnapshot, name: Arc<str>) -> Self {
        Self { entries, name, types: PhantomData }
    }
}

read_methods!(TypedSnapshot);

impl<K, V, C> Clone for TypedSnapshot<K, V, C> {
    fn clone(&self) -> Self {
        Self::new(self.entries.clone(), Arc::clone(&self.name))
    }
}

impl<K, V, C> fmt::Debug for TypedSnapshot<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedSnapshot").field("name", &self.name).finish_non_exhaustive()
    }
}
