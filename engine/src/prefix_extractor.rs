//! The prefix extractor of a keyspace.

use std::sync::Arc;

use sievedb_sstable::{PrefixExtractor, PrefixFunction};

/// The prefix extractor that a keyspace names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum NamedExtractor {
    #[default]
    None,
    Present(PrefixExtractor),
    /// The function of the extractor is missing, or the extractor is of another release. Prefix
    /// filters are neither probed nor built.
    Missing(String),
}

impl NamedExtractor {
    /// Returns the extractor of this name, with its function if it is in `functions`.
    pub(crate) fn from_name(name: &str, functions: &[Arc<dyn PrefixFunction>]) -> Self {
        let custom = || functions.iter().map(|function| PrefixExtractor::Custom(function.clone()));
        let found = PrefixExtractor::from_name(name)
            .or_else(|| custom().find(|extractor| extractor.name() == name));
        found.map_or_else(|| Self::Missing(name.to_owned()), Self::Present)
    }

    pub(crate) fn name(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Present(extractor) => Some(extractor.name()),
            Self::Missing(name) => Some(name.clone()),
        }
    }

    /// Returns the extractor, if it can be used.
    pub(crate) fn present(&self) -> Option<&PrefixExtractor> {
        match self {
            Self::Present(extractor) => Some(extractor),
            Self::None | Self::Missing(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Named(&'static str);

    impl PrefixFunction for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn prefix_length(&self, _: &[u8]) -> Option<usize> {
            None
        }

        fn determines_prefix(&self, _: &[u8]) -> bool {
            false
        }
    }

    #[test]
    fn names_find_their_extractor() {
        let functions: [Arc<dyn PrefixFunction>; 2] =
            [Arc::new(Named("host")), Arc::new(Named("fixed:4"))];
        let cases = [
            ("fixed:4", true),
            ("separator:0x2f", true),
            ("custom:host", true),
            ("custom:fixed:4", true),
            ("custom:other", false),
            ("host", false),
            ("fixed:0", false),
        ];
        for (name, is_present) in cases {
            let found = NamedExtractor::from_name(name, &functions);
            assert_eq!(found.name().as_deref(), Some(name));
            assert_eq!(found.present().is_some(), is_present, "{name}");
            let without = NamedExtractor::from_name(name, &[]);
            assert_eq!(without.name().as_deref(), Some(name));
            let needs_function = name.starts_with("custom:");
            assert_eq!(without.present().is_some(), is_present && !needs_function, "{name}");
        }
    }
}
