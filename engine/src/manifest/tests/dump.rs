//! The bytes of a manifest, pinned.

use super::*;
use crate::{
    manifest::dump::describe,
    tests::{check_golden, with_file},
};

fn described(fs: &MemoryFs) -> String {
    let file = fs.open(path(4).as_ref()).unwrap();
    describe(file, path(4).into(), 4).unwrap().to_string()
}

#[test]
fn the_bytes_of_a_manifest_are_pinned() {
    let fs = new_fs();
    let ends = small_manifest(&fs, 4);
    check_golden("manifest/manifest", &described(&fs));
    let torn = with_file(&fs, &path(4), |bytes| bytes.truncate(ends[5] as usize - 1));
    let text = described(&torn);
    assert!(text.lines().last().unwrap().contains("not a record"), "{text}");
}
