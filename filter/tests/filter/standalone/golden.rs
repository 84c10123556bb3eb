//! The saved form equals the golden files. `REWRITE=1` writes the output of this release.
#![expect(clippy::disallowed_methods, reason = "golden files lie outside any database")]

use std::fmt::Write;
use std::{env, fs, path::Path};

use sievedb_filter::Xxh3;

use super::{SavedStructure, found};

const KEYS: [&str; 3] = ["ant", "bee", "cow"];

/// A small filter with the seed 7, as rows of 16 bytes in hexadecimal.
pub(super) fn is_pinned<F: SavedStructure>() {
    let mut filter = F::with_rate(8, 0.1, Xxh3::with_seed(7));
    for key in KEYS {
        filter.try_insert(key.as_bytes()).expect("8 keys have room");
    }
    let mut text = format!("# with_rate(8, 0.1), Xxh3 with the seed 7, keys {KEYS:?}\n");
    for row in filter.to_bytes().chunks(16) {
        row.iter().for_each(|byte| write!(text, "{byte:02x}").expect("memory"));
        text.push('\n');
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/saved").join(F::NAME);
    if env::var_os("REWRITE").is_some() {
        fs::write(&path, &text).expect("the golden file can be written");
    }
    let golden = fs::read_to_string(&path).expect("the golden file exists");
    assert_eq!(text, golden, "rerun with REWRITE=1 if the change is intended");

    let digits: String = golden.lines().skip(1).collect();
    let bytes: Vec<u8> = (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("two digits"))
        .collect();
    let read = F::from_bytes_with_hasher(&bytes, Xxh3::with_seed(7)).expect("golden bytes");
    assert!(KEYS.iter().all(|key| found(&read, key.as_bytes())));
}
