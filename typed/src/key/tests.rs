//! Encodings keep the order, round trip, and reject malformed bytes.

use std::{
    cmp::Ordering,
    fmt::Debug,
    ops::Bound,
    time::{Duration, SystemTime},
};

use proptest::{prelude::*, sample::select};

use super::*;

/// Checks that the encodings of `a` and `b` compare as `order`, last and before another element,
/// and that both round trip.
fn check<K: Key + Debug>(a: &K, b: &K, order: Ordering, is_same: impl Fn(&K, &K) -> bool) {
    assert_eq!(to_bytes::<K>(a).cmp(&to_bytes::<K>(b)), order, "{a:?}, {b:?}");
    let inner = |key: &K| {
        let mut bytes = Vec::new();
        key.encode(&mut bytes, Place::Inner);
        bytes
    };
    // The following elements would reverse the order.
    let follow = |key: &K, next: u8| [inner(key), vec![next; 3]].concat();
    if order == Ordering::Less {
        assert!(follow(a, 0xff) < follow(b, 0), "{a:?}, {b:?}");
    }
    for key in [a, b] {
        let last: K = from_bytes(&to_bytes::<K>(key)).unwrap();
        assert!(is_same(&last, key), "{last:?}, {key:?}");
        let bytes = follow(key, 7);
        let mut input = &bytes[..];
        let inner = K::decode(&mut input, Place::Inner).unwrap();
        assert!(is_same(&inner, key), "{inner:?}, {key:?}");
        assert_eq!(input, [7; 3], "{key:?}");
    }
}

fn check_ord<K: Key + Debug + Ord>(a: &K, b: &K) {
    check(a, b, a.cmp(b), |decoded, key| decoded == key);
}

/// Checks that `bytes` are rejected, or are the encoding of the decoded value.
fn check_decode<K: Key + Debug>(bytes: &[u8]) {
    if let Ok(key) = from_bytes::<K>(bytes) {
        assert_eq!(to_bytes::<K>(&key), bytes, "{key:?}");
    }
    let mut input = bytes;
    if let Ok(key) = K::decode(&mut input, Place::Inner) {
        let mut encoded = Vec::new();
        key.encode(&mut encoded, Place::Inner);
        assert_eq!(encoded, bytes[..bytes.len() - input.len()], "{key:?}");
    }
}

/// Short strings of few distinct bytes, so that pairs share prefixes.
fn byte_string() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(select(&[0, 1, b'a', 0xfe, 0xff][..]), 0..5)
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(select(&['\0', '\u{1}', 'a', 'ä', '\u{10ffff}'][..]), 0..5)
        .prop_map(String::from_iter)
}

fn duration() -> impl Strategy<Value = Duration> {
    let seconds = select(&[0, 1, 255, 256, u64::MAX][..]);
    (seconds, 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn time() -> impl Strategy<Value = SystemTime> {
    (any::<bool>(), 0..3_u64, select(&[0, 1, 999_999_999_u32][..])).prop_map(
        |(before, seconds, nanos)| {
            let offset = Duration::new(seconds, nanos);
            let epoch = SystemTime::UNIX_EPOCH;
            if before { epoch - offset } else { epoch + offset }
        },
    )
}

fn float() -> impl Strategy<Value = f64> {
    let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, 1.5, -1.5];
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        Just(special).prop_flat_map(|s| select(s.to_vec()))
    ]
}

proptest! {
    #[test]
    fn integers_keep_their_order(a: (u8, u16, u32, u64), b: (u8, u16, u32, u64)) {
        check_ord(&a.0, &b.0);
        check_ord(&a.1, &b.1);
        check_ord(&a.2, &b.2);
        check_ord(&a.3, &b.3);
    }

    #[test]
    fn signed_integers_keep_their_order(a: (i8, i16, i32, i64), b: (i8, i16, i32, i64)) {
        check_ord(&a.0, &b.0);
        check_ord(&a.1, &b.1);
        check_ord(&a.2, &b.2);
        check_ord(&a.3, &b.3);
    }

    #[test]
    fn wide_integers_keep_their_order(a: (u128, i128, bool, char), b: (u128, i128, bool, char)) {
        check_ord(&a.0, &b.0);
        check_ord(&a.1, &b.1);
        check_ord(&a.2, &b.2);
        check_ord(&a.3, &b.3);
    }

    #[test]
    fn floats_keep_their_total_order(a in float(), b in float()) {
        check(&a, &b, a.total_cmp(&b), |a, b| a.to_bits() == b.to_bits());
        #[expect(clippy::cast_possible_truncation, reason = "any float will do")]
        let (a, b) = (a as f32, b as f32);
        check(&a, &b, a.total_cmp(&b), |a, b| a.to_bits() == b.to_bits());
    }

    #[test]
    fn strings_keep_their_order(a in text(), b in text(), c in byte_string(), d in byte_string()) {
        check_ord(&a, &b);
        check_ord(&c, &d);
    }

    #[test]
    fn tuples_keep_their_order(
        a in (text(), byte_string(), any::<i8>()),
        b in (text(), byte_string(), any::<i8>()),
    ) {
        check_ord(&a, &b);
        check_ord(&(a.0, (a.1, a.2)), &(b.0, (b.1, b.2)));
    }

    #[test]
    fn nested_tuples_and_options_keep_their_order(
        a in (prop::option::of(text()), prop::option::of(prop::option::of(byte_string()))),
        b in (prop::option::of(text()), prop::option::of(prop::option::of(byte_string()))),
        rest in (0..2_u8, 0..2_u8, text(), text()),
    ) {
        check_ord(&a, &b);
        let (a, b) = ((a.clone(), rest.0, [a.0]), (b.clone(), rest.1, [b.0]));
        check_ord(&a.2, &b.2);
        check_ord(&(a.0, a.1, a.2, rest.2), &(b.0, b.1, b.2, rest.3));
    }

    #[test]
    fn arrays_keep_their_order(
        a in prop::array::uniform3(text()), b in prop::array::uniform3(text()),
        c: [i16; 4], d: [i16; 4],
    ) {
        check_ord(&a, &b);
        check_ord(&c, &d);
    }

    #[test]
    fn times_keep_their_order(
        a in (time(), duration()), b in (time(), duration()), c in time(), d in time(),
    ) {
        check_ord(&a, &b);
        check_ord(&c, &d);
        check_ord(&a.1, &b.1);
    }

    #[test]
    fn malformed_bytes_never_panic(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..24),
        prop::collection::vec(select(&[0, 1, b'a', 0xff][..]), 0..24),
    ]) {
        check_decode::<bool>(&bytes);
        check_decode::<u64>(&bytes);
        check_decode::<i128>(&bytes);
        check_decode::<f32>(&bytes);
        check_decode::<f64>(&bytes);
        check_decode::<char>(&bytes);
        check_decode::<String>(&bytes);
        check_decode::<Vec<u8>>(&bytes);
        check_decode::<Option<Option<u16>>>(&bytes);
        check_decode::<[Option<String>; 2]>(&bytes);
        check_decode::<(String, Vec<u8>, u8, bool, Option<char>, String)>(&bytes);
        check_decode::<Duration>(&bytes);
        check_decode::<SystemTime>(&bytes);
        #[cfg(feature = "uuid")]
        check_decode::<::uuid::Uuid>(&bytes);
    }

    #[test]
    fn prefixes_select_their_keys(
        keys in prop::collection::vec((text(), 0..3_u8, text()), 0..20),
        (first, second) in (text(), 0..3_u8),
    ) {
        type Triple = (String, u8, String);
        for key in &keys {
            let bytes = to_bytes::<Triple>(key);
            let is_in = |bounds: &KeyBounds| std::ops::RangeBounds::contains(bounds, &bytes);
            let of_one = (first.as_str(),);
            let one = prefix_bounds::<Triple, _>(&(of_one..=of_one));
            assert_eq!(is_in(&one), key.0 == first);
            let of_two = (first.as_str(), second);
            let two = prefix_bounds::<Triple, _>(&(of_two..=of_two));
            assert_eq!(is_in(&two), key.0 == first && key.1 == second);
            let pair = (key.0.as_str(), key.1);
            assert_eq!(is_in(&prefix_bounds::<Triple, _>(&(of_two..))), pair >= of_two);
            assert_eq!(is_in(&prefix_bounds::<Triple, _>(&(..of_two))), pair < of_two);
            assert_eq!(is_in(&prefix_bounds::<Triple, _>(&(..=of_two))), pair <= of_two);
            let after = (Bound::Excluded(of_two), Bound::Unbounded);
            assert_eq!(is_in(&prefix_bounds::<Triple, _>(&after)), pair > of_two);
            let begin = prefix_bounds::<String, _>(&(first.as_str()..=first.as_str()));
            let bytes = to_bytes::<String>(&key.0);
            assert_eq!(
                std::ops::RangeBounds::contains(&begin, &bytes),
                key.0.starts_with(&first)
            );
        }
    }
}

#[test]
fn encodings_are_pinned() {
    let epoch = SystemTime::UNIX_EPOCH;
    let cases: [(&str, Vec<u8>, &[u8]); 16] = [
        ("bool", to_bytes::<bool>(&true), &[1]),
        ("u16", to_bytes::<u16>(&0x0102), &[1, 2]),
        ("i16", to_bytes::<i16>(&-2), &[0x7f, 0xfe]),
        ("f32", to_bytes::<f32>(&1.0), &[0xbf, 0x80, 0, 0]),
        ("negative f32", to_bytes::<f32>(&-1.0), &[0x40, 0x7f, 0xff, 0xff]),
        ("char", to_bytes::<char>(&'a'), &[0, 0, 0, b'a']),
        ("string", to_bytes::<String>("a\0"), b"a\0"),
        ("bytes", to_bytes::<Vec<u8>>(b"a\0"), b"a\0"),
        ("string in a tuple", to_bytes::<(String, u8)>(&("a\0", 7)), b"a\0\xff\0\0\x07"),
        ("string at the end", to_bytes::<(u8, String)>(&(7, "a\0")), b"\x07a\0"),
        ("nested", to_bytes::<((u8, String), u8)>(&((7, "a"), 8)), b"\x07a\0\0\x08"),
        ("none", to_bytes::<Option<u8>>(&None::<u8>), &[0]),
        ("some", to_bytes::<Option<String>>(&Some("a")), b"\x01a"),
        ("array", to_bytes::<[String; 2]>(&["a", "b"]), b"a\0\0b"),
        (
            "duration",
            to_bytes::<Duration>(&Duration::new(1, 2)),
            &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2],
        ),
        (
            "time before 1970",
            to_bytes::<SystemTime>(&(epoch - Duration::from_nanos(1))),
            &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3b, 0x9a, 0xc9, 0xff],
        ),
    ];
    for (name, bytes, want) in cases {
        assert_eq!(bytes, want, "{name}");
    }
}

#[test]
fn malformed_keys_are_errors() {
    use KeyError::{Invalid, TrailingBytes, Truncated};
    let cases: [(&str, Option<KeyError>, KeyError); 9] = [
        ("short", from_bytes::<u32>(&[0; 3]).err(), Truncated { what: "u32" }),
        ("long", from_bytes::<u32>(&[0; 6]).err(), TrailingBytes { bytes: 2 }),
        ("bool", from_bytes::<bool>(&[2]).err(), Invalid { what: "bool" }),
        ("surrogate", from_bytes::<char>(&[0, 0, 0xd8, 0]).err(), Invalid { what: "char" }),
        ("no UTF-8", from_bytes::<String>(&[0xff]).err(), Invalid { what: "string" }),
        ("option", from_bytes::<Option<u8>>(&[2, 0]).err(), Invalid { what: "option" }),
        ("no terminator", from_bytes::<(String, u8)>(b"ab").err(), Truncated { what: "string" }),
        ("escape", from_bytes::<(Vec<u8>, u8)>(&[0, 1, 0]).err(), Invalid { what: "byte string" }),
        ("nanoseconds", from_bytes::<Duration>(&[0xff; 12]).err(), Invalid { what: "duration" }),
    ];
    for (name, error, want) in cases {
        assert_eq!(error, Some(want), "{name}");
    }
}

#[test]
fn system_times_at_the_ends_round_trip() {
    let farthest = Duration::from_secs(i64::MAX.unsigned_abs());
    let times = [
        SystemTime::UNIX_EPOCH.checked_add(farthest),
        SystemTime::UNIX_EPOCH.checked_sub(farthest),
        SystemTime::UNIX_EPOCH.checked_sub(Duration::from_secs(1 << 63)),
    ];
    for time in times.into_iter().flatten() {
        assert_eq!(from_bytes::<SystemTime>(&to_bytes::<SystemTime>(&time)), Ok(time));
    }
}

#[cfg(feature = "uuid")]
#[test]
fn uuids_keep_their_order() {
    let [a, b] = [1_u128, 256].map(::uuid::Uuid::from_u128);
    check_ord(&a, &b);
    check_ord(&(a, b), &(a, a));
}

#[test]
fn buffer_is_reentrant() {
    let outer = with_bytes::<u8, _>(&1, |outer| {
        let inner = with_bytes::<u8, _>(&2, <[u8]>::to_vec);
        assert_eq!(inner, [2]);
        outer.to_vec()
    });
    assert_eq!(outer, [1]);
}

#[test]
fn buffer_is_usable_in_destructors_of_a_thread() {
    struct Encodes;

    impl Drop for Encodes {
        fn drop(&mut self) {
            with_bytes::<u32, _>(&7, |bytes| assert_eq!(bytes, [0, 0, 0, 7]));
        }
    }

    thread_local!(static DROPPED_LAST: Encodes = const { Encodes });
    let thread = std::thread::spawn(|| {
        DROPPED_LAST.with(|_| ());
        with_bytes::<u32, _>(&7, |_| ());
    });
    thread.join().unwrap();
}
