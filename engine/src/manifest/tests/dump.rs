//! The bytes of a manifest, pinned.

use sievedb_format::{Annotation, annotation::NextPart};

use super::*;
use crate::{
    manifest::dump::describe,
    tests::{check_golden, with_file},
};

fn described(fs: &MemoryFs) -> String {
    let file = fs.open(path(4).as_ref()).unwrap();
    let describe = |next: &mut NextPart<'_>| describe(file, path(4).into(), 4, next);
    let (described, all) = Annotation::of_parts(describe);
    described.unwrap();
    all.to_string()
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
