//! Properties round-trip, and malformed ones are refused.

use super::*;
use crate::BlobUse;

/// Two entries of 12 bytes that expire at 77 and 79.
fn expiry() -> TableExpiry {
    let mut encoded = vec![2, 12, 77];
    encoded.extend([0, 0, 0, 0, 0, 0, 0, 2]);
    TableExpiry::decode("expiry", &mut Decoder::new(&encoded)).expect("well formed")
}

fn properties() -> TableProperties {
    let mut properties = TableProperties {
        index_levels: 2,
        content_bytes_max: 5000,
        user_keys: 300,
        bounds: TableBounds {
            largest_excluded: true,
            ..TableBounds::inclusive(*b"ant", *b"zebra")
        },
        smallest_sequence: 4,
        largest_sequence: SEQUENCE_MAX,
        expiry: Some(expiry().into()),
        filter: Some(FilterProperties { kind: 1, expected_fpr: 0.01 }),
        prefix_filter: Some((FilterProperties { kind: 2, expected_fpr: 0.02 }, "fixed:8".into())),
        range_filter: Some(FilterProperties { kind: 4, expected_fpr: 0.5 }),
        key_bytes: 1,
        value_bytes: 2,
        data_blocks: 3,
        index_partitions: 4,
        origin: Some(Box::new(TableOrigin {
            keyspace: 300,
            name: "users".into(),
            options: (*b"opaque").into(),
            level: 3,
            completed: Some(Completed { flushed: 9, replaced: vec![4, 5, 700] }),
            blob_files: vec![BlobUse {
                file_id: 8,
                bytes: 900,
                checksum: 1,
                salt: 2,
                used_bytes: 7,
            }],
            is_ingested: true,
            ingests: vec![5, 300],
        })),
        ..TableProperties::new(&TableOptions::default())
    };
    *properties.count_mut(Kind::Put) = 300;
    *properties.count_mut(Kind::RangeTombstone) = 2;
    properties
}

fn encoded(properties: &TableProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    properties.encode(&mut bytes);
    bytes
}

#[test]
fn properties_round_trip() {
    let without = TableProperties {
        expiry: None,
        filter: None,
        prefix_filter: None,
        range_filter: None,
        bounds: TableBounds::inclusive(*b"ant", *b"zebra"),
        origin: None,
        ..properties()
    };
    for properties in [properties(), without] {
        assert_eq!(TableProperties::decode(&encoded(&properties)), Ok(properties));
    }
}

#[test]
fn truncation_is_refused() {
    let whole = TableProperties { origin: None, ..properties() };
    let bytes = encoded(&whole);
    // Truncated between fields, only optional fields may be missing.
    let bounds = TableBounds::inclusive(*b"ant", *b"zebra");
    let inclusive = TableProperties { bounds, ..whole.clone() };
    let no_range = TableProperties { range_filter: None, ..inclusive.clone() };
    let neither = TableProperties { prefix_filter: None, ..no_range.clone() };
    let complete = [&neither, &no_range, &inclusive].map(|properties| encoded(properties).len());
    for length in (0..bytes.len()).filter(|length| !complete.contains(length)) {
        assert!(TableProperties::decode(&bytes[..length]).is_err(), "truncated at {length}");
    }
}

#[test]
fn unknown_fields_are_skipped_unless_required() {
    let mut bytes = encoded(&properties());
    bytes.put_varint(99 << 1);
    bytes.put_prefixed(b"of a later release");
    assert_eq!(TableProperties::decode(&bytes), Ok(properties()));
    bytes.put_varint(100 << 1 | 1);
    bytes.put_prefixed(b"of a later release");
    let want = Corruption::Unsupported { what: "property", value: 100 };
    assert_eq!(TableProperties::decode(&bytes), Err(want));
}

#[test]
fn decode_refuses_malformed_fields() {
    use Corruption::{Missing, Order, OutOfRange, Trailing, Unsupported};
    type Damage = fn(&mut Vec<u8>);
    // The first three fields take 3, 3 and 4 bytes.
    let cases: [(&str, Damage, Corruption); 8] = [
        ("another comparator", |b| b[2] = 2, Unsupported { what: "comparator", value: 2 }),
        ("three levels", |b| b[5] = 3, OutOfRange { what: "index_levels", value: 3 }),
        ("a field twice", |b| b[3] = 3, Order { what: "properties" }),
        ("number 0", |b| b[0] = 1, Order { what: "properties" }),
        ("a field missing", |b| drop(b.drain(3..6)), Missing { what: "index_levels" }),
        (
            "a name that is no text",
            |b| {
                let name = b.windows(7).position(|bytes| bytes == b"fixed:8").unwrap();
                b[name + 6] = 0xff;
            },
            OutOfRange { what: "prefix_filter", value: 6 },
        ),
        ("all missing", Vec::clear, Missing { what: "comparator" }),
        (
            "a field that is too long",
            |b| {
                b[1] = 2;
                b.insert(2, 1);
            },
            Trailing { what: "comparator", bytes: 1 },
        ),
    ];
    for (name, damage, want) in cases {
        let mut bytes = encoded(&properties());
        damage(&mut bytes);
        assert_eq!(TableProperties::decode(&bytes), Err(want), "{name}");
    }
}
