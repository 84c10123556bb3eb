//! Handles of an open store.

use std::{ops::Deref, sync::Arc};

use crate::{handle_counts::HandleKind, store::open_store::OpenStore};

/// A counted handle. Keeps the store open.
#[derive(Debug)]
pub(crate) struct Handle {
    open: Arc<OpenStore>,
    kind: HandleKind,
}

impl Handle {
    pub(crate) fn new(open: Arc<OpenStore>, kind: HandleKind) -> Self {
        open.handles().add(kind);
        Self { open, kind }
    }

    pub(crate) fn of_kind(&self, kind: HandleKind) -> Self {
        Self::new(Arc::clone(&self.open), kind)
    }
}

impl Deref for Handle {
    type Target = Arc<OpenStore>;

    #[inline]
    fn deref(&self) -> &Arc<OpenStore> {
        &self.open
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.open.handles().remove(self.kind);
    }
}
