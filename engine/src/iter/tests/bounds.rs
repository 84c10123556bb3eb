//! Tests of the bounds of a range.

use std::ops::Bound::{self, Excluded, Included, Unbounded};

use proptest::prelude::*;

use super::model::check;
use crate::iter::bounds::{KeyBounds, is_above, is_below};

type KeyBound = Bound<&'static [u8]>;

#[test]
fn a_prefix_ends_before_the_first_key_without_it() {
    let cases: [(&str, &[u8], KeyBound); 5] = [
        ("plain", b"ab", Excluded(b"ac")),
        ("last byte cannot be raised", b"a\xff\xff", Excluded(b"b")),
        ("no byte can be raised", b"\xff\xff", Unbounded),
        ("empty", b"", Unbounded),
        ("zero", b"\0", Excluded(b"\x01")),
    ];
    for (name, prefix, end) in cases {
        let bounds = KeyBounds::prefix(prefix);
        assert_eq!(bounds.as_slices(), (Included(prefix), end), "{name}");
        let inside = |key: &[u8]| {
            let (start, end) = bounds.as_slices();
            is_above(key, start) && is_below(key, end)
        };
        let keys: [&[u8]; 8] =
            [b"", b"\0", b"\0\xff", b"ab", b"ab\xff\xff", b"a\xff\xff\0", b"b", b"\xff\xff\xff"];
        for key in keys {
            assert_eq!(inside(key), key.starts_with(prefix), "{name}: {key:?}");
        }
    }
}

#[test]
fn inverted_bounds_are_empty() {
    let cases: [(&str, KeyBound, KeyBound, bool); 10] = [
        ("all", Unbounded, Unbounded, false),
        ("one key", Included(b"a"), Included(b"a"), false),
        ("half open", Included(b"a"), Excluded(b"b"), false),
        ("from the empty key", Unbounded, Included(b""), false),
        ("before the empty key", Unbounded, Excluded(b""), true),
        ("half open, none", Included(b"a"), Excluded(b"a"), true),
        ("other half open, none", Excluded(b"a"), Included(b"a"), true),
        ("open, none", Excluded(b"a"), Excluded(b"a"), true),
        ("inverted", Included(b"b"), Included(b"a"), true),
        ("inverted and open", Excluded(b"b"), Excluded(b"a"), true),
    ];
    for (name, start, end, empty) in cases {
        assert_eq!(KeyBounds::copy(start, end).is_empty(), empty, "{name}");
    }
    assert_eq!(KeyBounds::new::<&str>(&(..)), KeyBounds::ALL);
    assert_eq!(KeyBounds::new(&("a"..="b")), KeyBounds::copy(Included(b"a"), Included(b"b")));
}

#[test]
fn all_keys_within_bounds_have_the_common_prefix() {
    let cases: [(&str, KeyBound, KeyBound, &[u8]); 18] = [
        ("all", Unbounded, Unbounded, b""),
        ("no start", Unbounded, Included(b"a"), b""),
        ("no end", Included(b"abc"), Unbounded, b""),
        ("no end behind the highest bytes", Included(b"\xff\xff\x01"), Unbounded, b"\xff\xff"),
        ("nothing in common", Included(b"a"), Included(b"b"), b""),
        ("common", Included(b"abc"), Included(b"abx"), b"ab"),
        ("one key", Included(b"abc"), Included(b"abc"), b"abc"),
        ("the start begins the end", Included(b"ab"), Excluded(b"abz"), b"ab"),
        ("excluded start", Excluded(b"abc"), Included(b"abx"), b"ab"),
        ("up to the next byte", Included(b"ab"), Excluded(b"ac"), b"ab"),
        ("up to the next byte, from within", Included(b"abc"), Excluded(b"ac"), b"ab"),
        ("up to the next byte and with it", Included(b"ab"), Included(b"ac"), b"a"),
        ("up to more than the next byte", Included(b"ab"), Excluded(b"ac\0"), b"a"),
        ("up to the byte after", Included(b"ab"), Excluded(b"ad"), b"a"),
        ("the highest bytes behind", Included(b"a\xff\xff\x01"), Excluded(b"b"), b"a\xff\xff"),
        ("no next byte", Included(b"a\xff"), Excluded(b"a\xff\0"), b"a\xff"),
        ("highest byte to a longer one", Included(b"\xff"), Excluded(b"\xff\xff"), b"\xff"),
        ("empty start", Included(b""), Excluded(b"\0"), b""),
    ];
    for (name, start, end, want) in cases {
        assert_eq!(KeyBounds::copy(start, end).common_prefix(), want, "{name}");
    }
    for prefix in [&b""[..], b"a", b"a\xff", b"\xff\xff", b"a\0", b"\xfe\xff\xff"] {
        assert_eq!(KeyBounds::prefix(prefix).common_prefix(), prefix);
    }
}

#[test]
fn no_key_within_bounds_is_without_the_common_prefix() {
    let key = || prop::collection::vec(prop::sample::select(vec![0, 1, 0xfe, 0xff]), 0..4);
    let keys = prop::collection::vec(key(), 30);
    let bound = || (0..3, key());
    check(20_000, &(bound(), bound(), keys), |(start, end, keys)| {
        let bound = |(kind, key): (i32, Vec<u8>)| match kind {
            0 => Unbounded,
            1 => Included(key),
            _ => Excluded(key),
        };
        let (start, end) = (bound(start), bound(end));
        let bounds = KeyBounds::copy(borrowed(&start), borrowed(&end));
        if bounds.is_empty() {
            return Ok(());
        }
        let prefix = bounds.common_prefix();
        for key in keys {
            let is_inside = is_above(&key, borrowed(&start)) && is_below(&key, borrowed(&end));
            prop_assert!(!is_inside || key.starts_with(prefix), "{:?}", key);
        }
        Ok(())
    });
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}
