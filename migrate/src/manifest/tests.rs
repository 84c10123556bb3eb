//! Edits with any changed bytes: an error or an edit, never a panic.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

/// Edits of the fixtures.
static EDITS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut edits = Vec::new();
    for name in ["blobs", "families", "ingested", "tracked-logs", "version7"] {
        let manifest = Manifest::read(&root.join(name)).unwrap();
        let mut reader = LogReader::new(File::open(manifest.path.as_path()).unwrap(), 0);
        while let Some(record) = reader.next().unwrap() {
            edits.extend((!record.bytes.is_empty()).then_some(record.bytes));
        }
    }
    edits
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn edits(
        at in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in 0..16_usize,
    ) {
        let mut bytes = at.get(&EDITS[..]).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let mut manifest = Manifest::default();
        manifest.families.insert(0, Family::default());
        if let Ok(edit) = Edit::decode(&bytes, Path::new("MANIFEST"), 0) {
            let _ = manifest.apply(edit, 0);
        }
    }
}

#[test]
fn all_edits_of_the_fixtures_are_read() {
    let edits = EDITS.iter().map(|bytes| Edit::decode(bytes, Path::new("MANIFEST"), 0).unwrap());
    let edits: Vec<_> = edits.collect();
    assert!(edits.iter().any(|edit| edit.added_family.is_some()));
    assert!(edits.iter().any(|edit| edit.is_dropped));
    assert!(edits.iter().any(|edit| !edit.blob_files.is_empty()));
    assert!(edits.iter().any(|edit| !edit.logs.is_empty()));
    assert!(edits.iter().any(|edit| !edit.added.is_empty()));
    assert!(edits.iter().any(|edit| !edit.deleted.is_empty()));
}
