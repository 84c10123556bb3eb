//! The key that a scan last moved past.

/// State of the last key that the cursor moved past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastKey {
    /// There is no such key.
    None,
    /// All its versions so far are too new for the reader.
    TooNew,
    /// The key is resolved: its other versions do not matter.
    Resolved,
}
