//! Values, as a memtable takes and lends them.

use bytes::Bytes;

/// A value to insert.
#[derive(Debug)]
pub enum NewValue<'v> {
    /// The memtable keeps this handle, and so the whole buffer of which the value is a slice.
    Shared(Bytes),
    /// The memtable copies the value next to its key. At most `u32::MAX - 1` bytes.
    Copied(&'v [u8]),
}

impl From<Bytes> for NewValue<'_> {
    fn from(value: Bytes) -> Self {
        Self::Shared(value)
    }
}

/// A value in a memtable.
#[derive(Debug, Clone, Copy)]
pub enum ValueRef<'m> {
    /// The handle that the memtable keeps.
    Shared(&'m Bytes),
    /// The copy in the memtable.
    Copied(&'m [u8]),
}

impl<'m> ValueRef<'m> {
    /// Returns the bytes of the value.
    #[inline]
    #[must_use]
    pub fn as_slice(self) -> &'m [u8] {
        match self {
            Self::Shared(value) => value,
            Self::Copied(value) => value,
        }
    }

    /// Returns the value as an owner: another handle of a shared value, or a copy.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> Bytes {
        match self {
            Self::Shared(value) => value.clone(),
            Self::Copied(value) => Bytes::copy_from_slice(value),
        }
    }
}
