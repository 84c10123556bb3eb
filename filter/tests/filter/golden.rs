//! The stored form of filters equals the golden files.
//!
//! A file holds cases: a kind with its arguments above `----`, the bytes and their meaning below.
//! `REWRITE=1` writes the output of this release.
#![expect(clippy::disallowed_methods, reason = "golden files lie outside any database")]

use std::fmt::Write;
use std::{env, fs, ops::Bound, path::Path};

use sievedb_filter::filter_block::{self, Field};
use sievedb_filter::range_filter::PointCollector;
use sievedb_filter::{Expected, FilterKind, RangeFilter, TableFilter, key_hash};

#[test]
fn filter_blocks_are_pinned() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/filter_block");
    let golden = fs::read_to_string(&path).expect("the golden file exists");
    let found: Vec<String> = golden
        .split("\n\n")
        .map(|case| {
            let (input, _) = case.split_once("----").expect("`----` follows the command");
            format!("{input}----\n{}", run(input).trim_end())
        })
        .collect();
    let found = found.join("\n\n") + "\n";
    if env::var_os("REWRITE").is_some() {
        fs::write(&path, &found).expect("the golden file can be written");
        return;
    }
    assert_eq!(found, golden, "rerun with REWRITE=1 if the change is intended");
}

/// Runs `KIND millibits=N seed=N salt=N KEY...` and describes the bytes. `FIRST..END` stands for
/// the numbers from `FIRST` to below `END`.
fn run(input: &str) -> String {
    let command = input.lines().find(|line| !line.starts_with('#')).expect("a command");
    let mut words = command.split(' ');
    let kind = words.next().expect("a command");
    let mut argument = |name: &str| -> u64 {
        let word = words.next().and_then(|word| word.strip_prefix(name)).expect("an argument");
        word.trim_start_matches('=').parse().expect("a number")
    };
    let (millibits, hash_seed, salt) = (argument("millibits"), argument("seed"), argument("salt"));
    let keys: Vec<String> = words
        .flat_map(|word| match word.split_once("..") {
            Some((first, end)) => {
                let number = |text: &str| -> u32 { text.parse().expect("a number") };
                (number(first)..number(end)).map(|number| number.to_string()).collect()
            }
            None => vec![word.to_owned()],
        })
        .collect();

    let (bits_per_key, expected) = (millibits as f64 / 1e3, Expected { hash_seed, salt });
    let bytes = match kind {
        "blocked_bloom" => point_filter(FilterKind::BlockedBloom, &keys, bits_per_key, expected),
        "ribbon" => point_filter(FilterKind::Ribbon, &keys, bits_per_key, expected),
        "binary_fuse" => point_filter(FilterKind::BinaryFuse, &keys, bits_per_key, expected),
        "range" => range_filter(&keys, bits_per_key, expected),
        _ => panic!("{command}: not a command"),
    };

    let mut text = String::new();
    for Field { place, name, meaning } in filter_block::describe(&bytes, Some(expected)) {
        let start = usize::try_from(place.start).expect("the block is in memory");
        let end = usize::try_from(place.end).expect("the block is in memory");
        for (i, row) in bytes[start..end].chunks(16).enumerate() {
            let hex = row.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            let at = start + i * 16;
            let shown = if i == 0 { format!("  {name:13}  {meaning}") } else { String::new() };
            writeln!(text, "{}", format!("{at:03x}  {hex:32}{shown}").trim_end()).expect("memory");
        }
    }
    text
}

fn point_filter(
    kind: FilterKind,
    keys: &[String],
    bits_per_key: f64,
    expected: Expected,
) -> Vec<u8> {
    let hash = |key: &String| key_hash(key.as_bytes(), expected.hash_seed);
    let hashes: Vec<u64> = keys.iter().map(hash).collect();
    let built = TableFilter::build(kind, &hashes, bits_per_key).expect("a known kind");
    let bytes = filter_block::encode(&built, expected);
    let read = TableFilter::decode(&bytes, expected).expect("a written block can be read");
    assert!(hashes.iter().all(|&hash| read.may_contain_hash(hash)));
    bytes.to_vec()
}

/// The salt is the seed of its hash.
fn range_filter(keys: &[String], bits_per_key: f64, expected: Expected) -> Vec<u8> {
    let mut points = PointCollector::new();
    keys.iter().for_each(|key| points.push(key.as_bytes()));
    let [smallest, largest] =
        [keys.first(), keys.last()].map(|key| key.map_or(&b""[..], |key| key.as_bytes()));
    let built = RangeFilter::build(points.finish(smallest, largest), bits_per_key, expected.salt);
    let bytes = filter_block::encode_range(&built, expected);
    let read = filter_block::decode_range(&bytes, expected).expect("what was just written");
    for key in keys.iter().map(|key| key.as_bytes()) {
        assert!(read.may_contain_keys(key, Bound::Included(key), Bound::Included(key)));
    }
    bytes.to_vec()
}
