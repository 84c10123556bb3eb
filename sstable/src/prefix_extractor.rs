//! Prefix extractors, for prefix filters.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use sievedb_filter::key_hash;
use sievedb_format::KEY_BYTES_MAX;

/// Maximum length of the name of a [`PrefixFunction`], in bytes.
pub const PREFIX_FUNCTION_NAME_BYTES_MAX: usize = 100;

const FIXED_LENGTH: RangeInclusive<usize> = 1..=KEY_BYTES_MAX;

/// Precedes the name of an extractor in the hash seed of its filters.
const SEED_DOMAIN: &str = "prefix filter of ";

/// A rule that finds the prefix of a key, so that a filter can be probed for all keys with one
/// prefix.
///
/// A key without a prefix is outside of the domain of the extractor. No prefix filter contains such
/// a key, and a scan that may match such a key probes no prefix filter.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PrefixExtractor {
    /// A prefix of fixed length, from 1 to 65,536 bytes. A shorter key has no prefix.
    FixedLength(usize),
    /// All bytes up to and including the first separator of this value. A key without a separator
    /// has no prefix.
    Separator(u8),
    /// The result of a custom function.
    Custom(Arc<dyn PrefixFunction>),
}

/// A custom function that extracts prefixes.
///
/// It must be deterministic: a filter built with other prefixes hides keys. **Rename a function
/// whose results change**; filters of the old name are then not probed.
pub trait PrefixFunction: fmt::Debug + Send + Sync {
    /// Returns the name stored with filters, from 1 to [`PREFIX_FUNCTION_NAME_BYTES_MAX`] bytes.
    fn name(&self) -> &str;

    /// Returns the length of the prefix of `key`, in bytes, or `None` if there is none. A length
    /// beyond that of the key also means none.
    fn prefix_length(&self, key: &[u8]) -> Option<usize>;

    /// Returns `true` if every key that starts with `start` has the same prefix as `start` itself.
    ///
    /// `false` is always safe: no filter is then probed.
    fn determines_prefix(&self, start: &[u8]) -> bool;
}

impl PrefixExtractor {
    /// Returns the stored name: for example `fixed:8`, `separator:0x3a`, or `custom:` and the name
    /// of the function.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::FixedLength(bytes) => format!("fixed:{bytes}"),
            Self::Separator(byte) => format!("separator:0x{byte:02x}"),
            Self::Custom(function) => format!("custom:{}", function.name()),
        }
    }

    /// Returns the extractor of this name; `None` for custom functions and unknown names.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let found = if let Some(bytes) = name.strip_prefix("fixed:") {
            Self::FixedLength(bytes.parse().ok()?)
        } else {
            let byte = name.strip_prefix("separator:0x")?;
            Self::Separator(u8::from_str_radix(byte, 16).ok()?)
        };
        // Only the canonical spelling of a number is valid.
        (found.name() == name && found.is_valid()).then_some(found)
    }

    /// Returns `true` if the length, or the length of the function's name, is in range.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        match self {
            Self::FixedLength(bytes) => FIXED_LENGTH.contains(bytes),
            Self::Separator(_) => true,
            Self::Custom(function) => {
                (1..=PREFIX_FUNCTION_NAME_BYTES_MAX).contains(&function.name().len())
            }
        }
    }

    /// Returns the prefix of `key`, if it has one.
    #[must_use]
    pub fn prefix<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let bytes = match self {
            Self::FixedLength(bytes) => *bytes,
            Self::Separator(separator) => 1 + key.iter().position(|byte| byte == separator)?,
            Self::Custom(function) => function.prefix_length(key)?,
        };
        key.get(..bytes)
    }

    /// Returns the prefix of all keys that start with `start`, if they share one.
    #[must_use]
    pub fn prefix_of_all<'a>(&self, start: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            // The prefix is within `start`, so further bytes do not matter.
            Self::FixedLength(_) | Self::Separator(_) => self.prefix(start),
            Self::Custom(function) => {
                function.determines_prefix(start).then(|| self.prefix(start)).flatten()
            }
        }
    }

    /// Returns the seed of prefix hashes in a store with the seed `store_hash_seed`. It differs per
    /// name and from the seed of keys. The checksum of a filter covers it, so a filter of another
    /// extractor is refused.
    #[must_use]
    pub fn hash_seed(&self, store_hash_seed: u64) -> u64 {
        prefix_hash_seed(&self.name(), store_hash_seed)
    }
}

/// Returns [`PrefixExtractor::hash_seed`] of the extractor of this name.
pub(crate) fn prefix_hash_seed(name: &str, store_hash_seed: u64) -> u64 {
    key_hash(format!("{SEED_DOMAIN}{name}").as_bytes(), store_hash_seed)
}

/// Compares names, which identify filters.
impl PartialEq for PrefixExtractor {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for PrefixExtractor {}

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes but the last two, of keys with at least four.
    #[derive(Debug)]
    struct AllButTwo(&'static str);

    impl PrefixFunction for AllButTwo {
        fn name(&self) -> &str {
            self.0
        }

        fn prefix_length(&self, key: &[u8]) -> Option<usize> {
            (key.len() >= 4).then(|| key.len() - 2)
        }

        fn determines_prefix(&self, _: &[u8]) -> bool {
            false
        }
    }

    fn custom(name: &'static str) -> PrefixExtractor {
        PrefixExtractor::Custom(Arc::new(AllButTwo(name)))
    }

    #[test]
    fn extractors_return_prefixes() {
        use PrefixExtractor::{FixedLength, Separator};
        let cases = [
            ("longer than fixed", FixedLength(3), "abcd", Some("abc"), Some("abc")),
            ("as long as fixed", FixedLength(3), "abc", Some("abc"), Some("abc")),
            ("shorter than fixed", FixedLength(3), "ab", None, None),
            ("empty, fixed", FixedLength(1), "", None, None),
            ("separator first", Separator(b':'), ":a:b", Some(":"), Some(":")),
            ("separator twice", Separator(b':'), "a:b:c", Some("a:"), Some("a:")),
            ("separator last", Separator(b':'), "ab:", Some("ab:"), Some("ab:")),
            ("no separator", Separator(b':'), "ab", None, None),
            ("empty, separator", Separator(b':'), "", None, None),
            ("custom", custom("two"), "abcd", Some("ab"), None),
            ("custom, out of domain", custom("two"), "abc", None, None),
        ];
        for (name, extractor, key, prefix, of_all) in cases {
            let (prefix, of_all) = (prefix.map(str::as_bytes), of_all.map(str::as_bytes));
            assert_eq!(extractor.prefix(key.as_bytes()), prefix, "{name}");
            assert_eq!(extractor.prefix_of_all(key.as_bytes()), of_all, "{name}");
        }
    }

    #[test]
    fn a_prefix_longer_than_the_key_is_none() {
        #[derive(Debug)]
        struct TooLong;
        impl PrefixFunction for TooLong {
            fn name(&self) -> &str {
                "too long"
            }
            fn prefix_length(&self, _: &[u8]) -> Option<usize> {
                Some(usize::MAX)
            }
            fn determines_prefix(&self, _: &[u8]) -> bool {
                true
            }
        }
        let extractor = PrefixExtractor::Custom(Arc::new(TooLong));
        assert_eq!(extractor.prefix(b"key"), None);
        assert_eq!(extractor.prefix_of_all(b"key"), None);
    }

    #[test]
    fn names_round_trip_except_custom() {
        for extractor in [
            PrefixExtractor::FixedLength(1),
            PrefixExtractor::FixedLength(KEY_BYTES_MAX),
            PrefixExtractor::Separator(0),
            PrefixExtractor::Separator(0x3a),
            PrefixExtractor::Separator(0xff),
        ] {
            assert_eq!(PrefixExtractor::from_name(&extractor.name()), Some(extractor));
        }
        let others = [
            "",
            "fixed:",
            "fixed:0",
            "fixed:08",
            "fixed:+8",
            "fixed:65537",
            "fixed:8 ",
            "separator:0x3",
            "separator:0x3A",
            "separator:0x003a",
            "separator::",
            "custom:fixed:8",
        ];
        for name in others {
            assert_eq!(PrefixExtractor::from_name(name), None, "{name:?}");
        }
    }

    #[test]
    fn is_valid_checks_lengths() {
        let (long, longest) = ("n".repeat(101), "n".repeat(100));
        let cases = [
            (PrefixExtractor::FixedLength(0), false),
            (PrefixExtractor::FixedLength(1), true),
            (PrefixExtractor::FixedLength(KEY_BYTES_MAX + 1), false),
            (PrefixExtractor::Separator(0), true),
            (custom(""), false),
            (custom(longest.leak()), true),
            (custom(long.leak()), false),
        ];
        for (extractor, want) in cases {
            assert_eq!(extractor.is_valid(), want, "{}", extractor.name());
        }
    }

    #[test]
    fn every_extractor_has_a_distinct_seed() {
        let extractors = [
            PrefixExtractor::FixedLength(4),
            PrefixExtractor::FixedLength(5),
            PrefixExtractor::Separator(4),
            custom("fixed:4"),
        ];
        let mut seeds: Vec<_> = extractors.iter().map(|it| it.hash_seed(7)).collect();
        seeds.extend([7, extractors[0].hash_seed(8)]);
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 6);
    }
}
