//! The compaction filter of a keyspace, by its stored name.

use std::sync::Arc;

use super::CompactionFilter;

const NAME_BYTES_MAX: usize = 255;

/// The compaction filter that a keyspace names.
#[derive(Debug, Clone, Default)]
pub(crate) enum NamedFilter {
    #[default]
    None,
    Present(Arc<dyn CompactionFilter>),
    /// The filter is not registered, so compactions keep all values.
    Missing(String),
}

/// Compares the names.
impl PartialEq for NamedFilter {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl NamedFilter {
    /// Returns the first filter of `registered` with this name.
    pub(crate) fn from_name(name: &str, registered: &[Arc<dyn CompactionFilter>]) -> Self {
        let found = registered.iter().find(|filter| filter.name() == name).cloned();
        found.map_or_else(|| Self::Missing(name.to_owned()), Self::Present)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Present(filter) => Some(filter.name()),
            Self::Missing(name) => Some(name),
        }
    }

    /// Returns the filter, if it can be called.
    pub(crate) fn present(&self) -> Option<&Arc<dyn CompactionFilter>> {
        match self {
            Self::Present(filter) => Some(filter),
            Self::None | Self::Missing(_) => None,
        }
    }

    /// Returns `false` if the name cannot be stored.
    pub(crate) fn is_valid(&self) -> bool {
        self.name().is_none_or(|name| (1..=NAME_BYTES_MAX).contains(&name.len()))
    }
}
