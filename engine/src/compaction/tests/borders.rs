//! Ends of the tables of a merge.

use super::picker::table;
use crate::compaction::{borders::Borders, levels::Levels};

#[test]
fn a_table_ends_at_a_border_from_half_of_its_size_on() {
    let below = [table(1, 3, 1, b"a", b"f"), table(2, 3, 1, b"m", b"p")];
    let levels = Levels::new(below.iter(), &[]);
    let all = table(3, 2, 1, b"a", b"z").bounds;
    let mut borders = Borders::of_merge(&levels, 2, &all, 1000);
    // Up to the last key of the table below, and just after it.
    assert!(!borders.is_end(900, b"f"));
    assert!(borders.is_end(500, b"g"));
    // A border that is passed too early no longer counts.
    assert!(!borders.is_end(499, b"q"));
    assert!(!borders.is_end(1499, b"r"));
    assert!(borders.is_end(1500, b"s"));
}

#[test]
fn a_table_without_a_level_below_has_its_size() {
    let mut borders = Borders::none(1000);
    assert!(!borders.is_end(999, b"a"));
    assert!(borders.is_end(1000, b"b"));
}
