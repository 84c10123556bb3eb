//! Blocks with changed bytes lead to an error or to entries, never to a panic.

use std::{path::PathBuf, sync::LazyLock};

use proptest::prelude::*;

use super::*;
use crate::{entries::Place, manifest::Manifest};

/// Directories with all kinds of compression and blocks.
const FIXTURES: [&str; 8] = [
    "contents-dictionary",
    "dictionary",
    "families",
    "lz4-dictionary",
    "partitioned",
    "version3",
    "version6",
    "version7",
];

/// A block of a fixture, with its compressed and its decompressed bytes.
struct Sample {
    path: Arc<Path>,
    compression: Compression,
    dictionary: Vec<u8>,
    compressed: Vec<u8>,
    block: Vec<u8>,
    coding: IndexCoding,
}

static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
    let mut samples = Vec::new();
    for name in FIXTURES {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let directory = root.join(name);
        let manifest = Manifest::read(&directory).unwrap();
        for family in manifest.families.values() {
            let place =
                Place { directory: directory.clone(), comparator: family.comparator_name.clone() };
            for known in family.tables.values() {
                let mut table = place.open(known).unwrap();
                let mut handles = vec![(table.index, false)];
                let depth = if table.is_partitioned { 2 } else { 1 };
                let mut level = vec![table.index];
                for step in 1..=depth {
                    let mut below = Vec::new();
                    for handle in level {
                        let mut block = table.index_block(handle).unwrap();
                        let mut previous = None;
                        while let Some(handle) =
                            block.advance_index(table.coding, previous).unwrap()
                        {
                            previous = Some(handle);
                            below.push(handle);
                        }
                    }
                    handles.extend(below.iter().map(|handle| (*handle, step == depth)));
                    level = below;
                }
                samples.extend(handles.into_iter().map(|(handle, is_data)| {
                    let mut compressed = read_raw(&table.file, handle).unwrap();
                    let kind = compressed[handle.size as usize];
                    compressed.truncate(handle.size as usize);
                    let decompressor = if is_data { &mut table.data } else { &mut table.plain };
                    Sample {
                        path: Arc::clone(table.file.path()),
                        compression: Compression::from_number(kind, table.file.path()).unwrap(),
                        dictionary: decompressor.dictionary().to_vec(),
                        block: read_block(&table.file, &table.footer, handle, decompressor)
                            .unwrap(),
                        compressed,
                        coding: table.coding,
                    }
                }));
            }
        }
    }
    samples
});

/// Overwrites bytes at positions, then truncates the end.
fn changed(bytes: &[u8], changes: &[(usize, u8)], cut: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, byte) in changes {
        let at = at % bytes.len().max(1);
        if let Some(place) = bytes.get_mut(at) {
            *place = *byte;
        }
    }
    bytes.truncate(bytes.len().saturating_sub(cut));
    bytes
}

fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((any::<usize>(), any::<u8>()), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn blocks(
        at in any::<prop::sample::Index>(),
        changes in changes(),
        cut in prop_oneof![Just(0_usize), 0..64_usize],
    ) {
        let sample = at.get(&SAMPLES[..]);
        let bytes = changed(&sample.block, &changes, cut);
        let len = bytes.len();
        if let Ok(mut block) = Block::new(bytes.clone(), &sample.path, 0) {
            let mut entries = 0;
            while let Ok(true) = block.advance() {
                let _ = (block.key(), block.value());
                entries += 1;
                prop_assert!(entries <= len);
            }
        }
        for is_delta in [false, true] {
            let Ok(mut block) = Block::new(bytes.clone(), &sample.path, 0) else { continue };
            let coding = IndexCoding { is_delta, ..sample.coding };
            let (mut previous, mut entries) = (None, 0);
            while let Ok(Some(handle)) = block.advance_index(coding, previous) {
                previous = Some(handle);
                entries += 1;
                prop_assert!(entries <= len);
            }
        }
    }

    #[test]
    fn compressed_bytes(
        at in any::<prop::sample::Index>(),
        changes in changes(),
        cut in prop_oneof![Just(0_usize), 0..64_usize],
    ) {
        let sample = at.get(&SAMPLES[..]);
        let mut decompressor = match sample.dictionary.is_empty() {
            true => Decompressor::new(),
            false => {
                let dictionary = sample.dictionary.clone();
                Decompressor::with_dictionary(dictionary, &sample.path, 0).unwrap()
            }
        };
        let bytes = changed(&sample.compressed, &changes, cut);
        let limit = bytes.len().saturating_mul(1 << 18);
        if let Ok(found) = decompressor.decompress(sample.compression, bytes, &sample.path, 0) {
            prop_assert!(found.len() <= limit);
        }
        // A decompressor remains usable after an error.
        let whole = sample.compressed.clone();
        let found = decompressor.decompress(sample.compression, whole, &sample.path, 0).unwrap();
        prop_assert!(found == sample.block);
    }

    #[test]
    fn dictionaries(changes in changes(), cut in 0..64_usize, at in any::<prop::sample::Index>()) {
        let sample = at.get(&SAMPLES[..]);
        let dictionary = changed(&sample.dictionary, &changes, cut);
        let _ = Decompressor::with_dictionary(dictionary, &sample.path, 0);
    }

    #[test]
    fn properties(changes in changes(), at in any::<prop::sample::Index>()) {
        let sample = at.get(&SAMPLES[..]);
        let file = File::open(Arc::clone(&sample.path)).unwrap();
        let footer = Footer::read(&file).unwrap();
        let bytes = changed(&sample.block, &changes, 0);
        let _ = Properties::decode(bytes, &footer, &sample.path, 0);
    }
}

#[test]
fn samples_have_all_kinds_of_compression() {
    let has = |compression| SAMPLES.iter().any(|sample| sample.compression == compression);
    assert!(has(Compression::None) && has(Compression::Snappy) && has(Compression::Lz4));
    assert!(has(Compression::Zstd) && SAMPLES.len() > 50, "{}", SAMPLES.len());
    assert!(SAMPLES.iter().any(|sample| !sample.dictionary.is_empty()));
}
