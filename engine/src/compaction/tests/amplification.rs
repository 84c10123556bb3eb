//! Bounds of the simulated amplification, and its figures in the documentation.

use crate::{
    compaction::simulation::{Writes, simulate, styles},
    keyspace_options::KeyspaceOptions,
};

const MILLION: u64 = 1_000_000;

#[test]
#[expect(clippy::print_stdout, reason = "a report for those who change the picker")]
fn amplification_stays_within_bounds() {
    // Memtable in MiB, writes and keys in millions, most writes and space.
    for (memtable, writes, keys, writes_max, space_max) in [
        (32, 10, None, 4.2, 1.01),
        (64, 10, None, 3.3, 1.01),
        (32, 30, Some(10), 4.0, 1.5),
        (64, 30, Some(10), 3.6, 1.5),
        // A hundred times as many keys as a memtable holds.
        (32, 60, Some(19), 5.2, 1.4),
    ] {
        let options = KeyspaceOptions::new().memtable_bytes(memtable << 20);
        let keys_of = keys.map(|keys| keys * MILLION);
        let cost = simulate(&options, Writes { count: writes * MILLION, keys: keys_of });
        let keys = keys.map_or_else(|| "new".to_owned(), |keys| format!("{keys} million"));
        println!(
            "{writes} million writes of {keys} keys, memtables of {memtable} MiB: \
             writes {:.2}, runs {:.1}, space {:.2}; idle: writes {:.2}, space {:.2}",
            cost.writes, cost.runs, cost.space, cost.writes_until_idle, cost.space_idle
        );
        assert!(cost.writes_until_idle < cost.writes + 1.3, "{cost:?}");
        assert!(cost.space_idle < 1.12, "{cost:?}");
        assert!(cost.writes < writes_max, "{} bytes written for each", cost.writes);
        assert!(cost.space < space_max, "{} of the space", cost.space);
        assert!(cost.runs < 4.0, "{} runs", cost.runs);
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the rows for the documentation")]
fn the_documented_amplification_of_each_style_is_that_of_the_picker() {
    let tuning = include_str!("../../../../docs/tuning.md");
    let mut missing = Vec::new();
    for (name, style) in styles() {
        let options = KeyspaceOptions::new().compaction_style(style);
        let cost = simulate(&options, Writes { count: 30 * MILLION, keys: Some(10 * MILLION) });
        let row = format!("| {name} | {cost}");
        println!("{row}");
        if !tuning.contains(&row) {
            missing.push(row);
        }
    }
    assert!(missing.is_empty(), "docs/tuning.md lacks\n{}", missing.join("\n"));
}
