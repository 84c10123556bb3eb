//! Which keys a range holds.

use std::ops::Bound::{self, Excluded, Included, Unbounded};

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
fn inverted_bounds_hold_no_key() {
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
