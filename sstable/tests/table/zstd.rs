//! Tables compressed by zstd, with and without a dictionary.

use std::sync::Arc;

use bytes::Bytes;
use sievedb_format::SEQUENCE_MAX;
use sievedb_sstable::{BlockCounts, Compression, ReadError, TableOptions, TableSource};

use crate::support::{Built, Entry, build, describe, model_get};

/// Returns records that need a dictionary: a single block is too short to learn the field names.
fn entries(count: u64) -> Vec<Entry> {
    let record = |n: u64| {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(
            r#"{{"customer_number":{n},"display_name":"customer {}","balance_in_cents":{},"currency":"EUR","is_active":{}}}"#,
            mixed % 10_007,
            mixed >> 40,
            mixed.is_multiple_of(3)
        )
    };
    (0..count)
        .map(|n| Entry::put(format!("customer/{n:08}").as_bytes(), n + 1, record(n).as_bytes()))
        .collect()
}

fn options(compression: Compression) -> TableOptions {
    TableOptions::new().block_bytes(1 << 10).compression(compression)
}

const WITH_DICTIONARY: Compression = Compression::Zstd { level: 3, dictionary_bytes: 4 << 10 };
const WITHOUT: Compression = Compression::Zstd { level: 3, dictionary_bytes: 0 };

fn text(built: &Built) -> String {
    let source: Arc<dyn TableSource> = Arc::new(Bytes::from(built.bytes.clone()));
    describe(&source).to_string()
}

/// Returns the range of the dictionary, from the description.
fn dictionary_range(built: &Built) -> Option<std::ops::Range<usize>> {
    let text = text(built);
    let line = text.lines().find(|line| line.contains("compression_dictionary"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let parse = |text| usize::from_str_radix(text, 16).unwrap();
    Some(parse(start)..parse(end))
}

fn check(built: &Built, entries: &[Entry]) {
    let table = built.open();
    let mut counts = BlockCounts::default();
    for entry in entries.iter().step_by(7) {
        let found = table.get(&entry.user_key, SEQUENCE_MAX, &mut counts).unwrap();
        let want = model_get(entries, &entry.user_key, SEQUENCE_MAX).unwrap();
        assert_eq!(found, Some((want.trailer, Bytes::from(want.value.clone()))));
    }
}

#[test]
fn a_dictionary_makes_tables_smaller_and_is_counted() {
    let entries = entries(8_000);
    let built = [Compression::Lz4, WITHOUT, WITH_DICTIONARY].map(|by| build(&entries, options(by)));
    for built in &built {
        check(built, &entries);
    }
    let [lz4, without, with] = built;
    let data_bytes = |built: &Built| built.bytes.len();
    assert!(data_bytes(&without) < data_bytes(&lz4));
    assert!(data_bytes(&with) < data_bytes(&without) * 9 / 10, "a dictionary saves a tenth");
    let range = dictionary_range(&with).unwrap();
    assert!((1 << 10..=4 << 10).contains(&range.len()), "{range:?}");
    assert!(text(&with).contains("zstd with the dictionary"));
    assert_eq!(dictionary_range(&without), None);
    assert!(with.open().memory_bytes() >= without.open().memory_bytes() + range.len());
}

/// A few compressed bytes expand to very long values.
#[test]
fn highly_compressible_values_round_trip() {
    let lengths = [127 << 10, 128 << 10, 129 << 10, 1 << 20, (16 << 20) + 5];
    for byte in [0, b'x'] {
        let value = |(n, length)| Entry::put(format!("{n}").as_bytes(), 1, &vec![byte; length]);
        let long: Vec<_> = (0..).zip(lengths).map(value).collect();
        // Behind records that train the dictionary.
        let all: Vec<_> =
            [&long[..], &entries(8_000), &[Entry::put(b"z", 1, &vec![byte; 1 << 20])]].concat();
        for (name, entries, by) in [
            ("alone", &long, WITHOUT),
            ("alone, too few for a dictionary", &long, WITH_DICTIONARY),
            ("with records", &all, WITHOUT),
            ("with records and a dictionary", &all, WITH_DICTIONARY),
        ] {
            let built = build(entries, options(by));
            let table = built.open();
            for entry in entries.iter().filter(|entry| entry.value.len() > 1 << 10) {
                let mut counts = BlockCounts::default();
                let found = table.get(&entry.user_key, SEQUENCE_MAX, &mut counts);
                let is_right = found.unwrap().is_some_and(|(_, value)| value == entry.value);
                assert!(is_right, "{name}: a value of {} bytes", entry.value.len());
            }
        }
    }
}

#[test]
fn a_short_table_has_no_dictionary() {
    let entries = entries(100);
    let built = build(&entries, options(WITH_DICTIONARY));
    assert_eq!(dictionary_range(&built), None);
    check(&built, &entries);
}

#[test]
fn every_flipped_byte_of_a_dictionary_is_detected() {
    let built = build(&entries(8_000), options(WITH_DICTIONARY));
    for at in dictionary_range(&built).unwrap() {
        let mut bytes = built.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let found = built.open_bytes(bytes, 0);
        assert!(matches!(found, Err(ReadError::Corrupt { .. })), "byte {at}");
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let zstd = |level, dictionary_bytes| Compression::Zstd { level, dictionary_bytes };
    let cases = [
        (zstd(0, 0), false),
        (zstd(1, 0), true),
        (zstd(19, 1 << 20), true),
        (zstd(20, 0), false),
        (zstd(3, 1), false),
        (zstd(3, 1 << 10), true),
        (zstd(3, (1 << 20) + 1), false),
        (Compression::ZSTD, true),
    ];
    for (compression, is_valid) in cases {
        assert_eq!(options(compression).validate().is_ok(), is_valid, "{compression:?}");
    }
}
