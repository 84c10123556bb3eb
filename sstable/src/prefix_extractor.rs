//! Which part of a key is its prefix, for filters over prefixes.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use sievedb_filter::key_hash;
use sievedb_format::KEY_BYTES_MAX;

/// Longest name of a [`PrefixFunction`], in bytes.
pub const PREFIX_FUNCTION_NAME_BYTES_MAX: usize = 100;

const FIXED_LENGTH: RangeInclusive<usize> = 1..=KEY_BYTES_MAX;

/// Goes before the name of an extractor where the hash seed of its filters is made.
const SEED_DOMAIN: &str = "prefix filter of ";

/// Which part of a key is its prefix, so that a filter can answer for all keys with the same
/// prefix.
///
/// A key without a prefix is out of the extractor's domain: it is in no prefix filter, and no
/// question that such a key could be an answer to is put to one.
#[derive(Debug, Clone)]
pub enum PrefixExtractor {
    /// The first so many bytes, from 1 to 65,536. A shorter key has no prefix.
    FixedLength(usize),
    /// All bytes up to the first one with this value, which belongs to the prefix. A key in which
    /// it does not occur has no prefix.
    Separator(u8),
    /// What a function of the user says.
    Custom(Arc<dyn PrefixFunction>),
}

/// Tells the prefixes of keys. Must answer the same at all times: filters that were built with
/// other answers hide keys. **Give a function whose answers change another name**; then filters of
/// the old one are not asked any more.
pub trait PrefixFunction: fmt::Debug + Send + Sync {
    /// The name that is stored with filters, from 1 to [`PREFIX_FUNCTION_NAME_BYTES_MAX`] bytes.
    fn name(&self) -> &str;

    /// Length of the prefix of `key` in bytes, or `None` if it has none. Neither has it one if the
    /// answer is more than the length of the key.
    fn prefix_length(&self, key: &[u8]) -> Option<usize>;

    /// Whether every key that begins with `start` has a prefix, the same as `start` itself.
    ///
    /// `false` is always safe: no filter is asked then.
    fn determines_prefix(&self, start: &[u8]) -> bool;
}

impl PrefixExtractor {
    /// What it is called where it is stored: `fixed:8`, `separator:0x3a`, `custom:` and the name of
    /// the function.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::FixedLength(bytes) => format!("fixed:{bytes}"),
            Self::Separator(byte) => format!("separator:0x{byte:02x}"),
            Self::Custom(function) => format!("custom:{}", function.name()),
        }
    }

    /// The extractor of this name, unless it needs a function or is not known.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let found = if let Some(bytes) = name.strip_prefix("fixed:") {
            Self::FixedLength(bytes.parse().ok()?)
        } else {
            let byte = name.strip_prefix("separator:0x")?;
            Self::Separator(u8::from_str_radix(byte, 16).ok()?)
        };
        // Other spellings of a number are none of ours.
        (found.name() == name && found.is_valid()).then_some(found)
    }

    /// Whether the length, or the name of the function, is in range.
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

    /// The prefix of `key`, if it has one.
    #[must_use]
    pub fn prefix<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let bytes = match self {
            Self::FixedLength(bytes) => *bytes,
            Self::Separator(separator) => 1 + key.iter().position(|byte| byte == separator)?,
            Self::Custom(function) => function.prefix_length(key)?,
        };
        key.get(..bytes)
    }

    /// The prefix that all keys have that begin with `start`, if they all have the same one.
    #[must_use]
    pub fn prefix_of_all<'a>(&self, start: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            // Within `start`, so that nothing behind it matters.
            Self::FixedLength(_) | Self::Separator(_) => self.prefix(start),
            Self::Custom(function) => {
                function.determines_prefix(start).then(|| self.prefix(start)).flatten()
            }
        }
    }

    /// Seed of the hashes of prefixes in a store with this seed: no other than that of keys, and
    /// another one for each name. It goes into the checksum of a filter, so that one that was built
    /// with another extractor is refused.
    #[must_use]
    pub fn hash_seed(&self, store_hash_seed: u64) -> u64 {
        prefix_hash_seed(&self.name(), store_hash_seed)
    }
}

/// [`PrefixExtractor::hash_seed`] of the extractor of this name.
pub(crate) fn prefix_hash_seed(name: &str, store_hash_seed: u64) -> u64 {
    key_hash(format!("{SEED_DOMAIN}{name}").as_bytes(), store_hash_seed)
}

/// By name, as filters go by.
impl PartialEq for PrefixExtractor {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for PrefixExtractor {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes before the last two, of keys that have at least four.
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
    fn prefixes() {
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
    fn a_function_that_names_too_long_a_prefix_names_none() {
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
    fn names_return_unless_they_need_a_function() {
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
    fn ranges_of_lengths_and_names() {
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
    fn every_extractor_has_a_seed_of_its_own() {
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
