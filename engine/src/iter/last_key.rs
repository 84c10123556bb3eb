//! The key that a scan last moved past.

/// State of the key that the cursor last moved past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastKey {
    /// There is no such key.
    None,
    /// All its versions so far are too new for the reader.
    TooNew,
    /// Resolved: its other versions do not matter.
    Resolved,
}
