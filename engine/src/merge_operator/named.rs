//! The merge operator of a keyspace, by its stored name.

use std::sync::Arc;

use super::{
    Append, Counter, Max, MergeOperator, Min, SetUnion,
    counter::NAME as COUNTER_NAME,
    extreme::{MAX_NAME, MIN_NAME},
    set_union::NAME as SET_UNION_NAME,
};

/// Prefix of the names of the operators of this crate.
const RESERVED: &str = "sieve.";
const NAME_BYTES_MAX: usize = 255;

/// The merge operator that a keyspace names.
#[derive(Debug, Clone, Default)]
pub(crate) enum NamedOperator {
    #[default]
    None,
    Present(Arc<dyn MergeOperator>),
    /// The operator is not registered, or belongs to a later release.
    Missing(String),
    /// An operator of the application has a name that is reserved for this crate. Never stored.
    Reserved(String),
}

/// Operators with the same name are equal: their results must be the same.
impl PartialEq for NamedOperator {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl NamedOperator {
    /// Returns the operator of this name: one of this crate, or the first of `registered`.
    pub(crate) fn from_name(name: &str, registered: &[Arc<dyn MergeOperator>]) -> Self {
        let built_in: Option<Arc<dyn MergeOperator>> = match name {
            COUNTER_NAME => Some(Arc::new(Counter)),
            MAX_NAME => Some(Arc::new(Max)),
            MIN_NAME => Some(Arc::new(Min)),
            SET_UNION_NAME => Some(Arc::new(SetUnion)),
            _ => Append::from_name(name).map(|append| Arc::new(append) as _),
        };
        let named = |operator: &&Arc<dyn MergeOperator>| {
            operator.name() == name && !name.starts_with(RESERVED)
        };
        let found = built_in.or_else(|| registered.iter().find(named).cloned());
        found.map_or_else(|| Self::Missing(name.to_owned()), Self::Present)
    }

    /// Returns `operator`, or the one of this crate if the name is reserved.
    pub(crate) fn new(operator: Arc<dyn MergeOperator>) -> Self {
        match operator.name() {
            name if name.starts_with(RESERVED) => match Self::from_name(name, &[]) {
                Self::Missing(name) => Self::Reserved(name),
                built_in => built_in,
            },
            _ => Self::Present(operator),
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Present(operator) => Some(operator.name()),
            Self::Missing(name) | Self::Reserved(name) => Some(name),
        }
    }

    /// Returns the operator, if it can be used.
    pub(crate) fn present(&self) -> Option<&Arc<dyn MergeOperator>> {
        match self {
            Self::Present(operator) => Some(operator),
            Self::None | Self::Missing(_) | Self::Reserved(_) => None,
        }
    }

    /// Returns `false` if the name cannot be stored.
    pub(crate) fn is_valid(&self) -> bool {
        !matches!(self, Self::Reserved(_))
            && self.name().is_none_or(|name| (1..=NAME_BYTES_MAX).contains(&name.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MergeError;

    #[derive(Debug)]
    struct Named(&'static str);

    impl MergeOperator for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
            Ok(vec![b'!'])
        }
    }

    #[test]
    fn names_find_their_operator() {
        let registered: [Arc<dyn MergeOperator>; 2] =
            [Arc::new(Named("own")), Arc::new(Named("sieve.later"))];
        let cases = [
            ("sieve.counter", true),
            ("sieve.max", true),
            ("sieve.min", true),
            ("sieve.append", true),
            ("sieve.append:2c", true),
            ("sieve.set-union", true),
            ("own", true),
            ("other", false),
            ("sieve.later", false),
        ];
        for (name, is_present) in cases {
            let found = NamedOperator::from_name(name, &registered);
            assert_eq!(found.name(), Some(name));
            assert_eq!(found.present().is_some(), is_present, "{name}");
        }
    }

    #[test]
    fn a_reserved_name_means_the_operator_of_this_crate() {
        let found = NamedOperator::new(Arc::new(Named("sieve.max")));
        let merged = found.present().expect("built in").merge(b"", None, &[b"a"]);
        assert_eq!(merged, Ok(vec![b'a']));
        // The operator would be missing at the next open.
        let reserved = NamedOperator::new(Arc::new(Named("sieve.other")));
        assert!(reserved.present().is_none() && !reserved.is_valid());
        assert!(NamedOperator::new(Arc::new(Named("own"))).present().is_some());
        assert!(!NamedOperator::new(Arc::new(Named(""))).is_valid());
    }
}
