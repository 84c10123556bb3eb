//! Forged filters.

use std::path::Path;

use sievedb::{PrefixExtractor, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_filter::{Expected, FilterKind, TableFilter, filter_block, key_hash};
use sievedb_format::checksum::crc32;

use super::fixture::{change, id, key, paths, read};
use crate::corruption::forge::{Part, log_parts};

const HEADER_BYTES: usize = 64;

/// Extractor of the prefix filters.
pub(super) const EXTRACTOR: PrefixExtractor = PrefixExtractor::FixedLength(5);

/// Changes to a filter file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forged {
    /// A flipped bit.
    Damaged,
    /// A missing file.
    Missing,
    /// A kind of a later release, with valid checksums.
    UnknownKind,
    /// An older hash version, with valid checksums.
    OlderHash,
    /// Another seed, with otherwise valid checksums.
    OtherSeed,
    /// A missing key, with valid checksums.
    LacksAKey,
}

impl Forged {
    pub(super) const ALL: [Self; 6] = [
        Self::Damaged,
        Self::Missing,
        Self::UnknownKind,
        Self::OlderHash,
        Self::OtherSeed,
        Self::LacksAKey,
    ];
}

/// Applies the change to the filter in the file `path`, and updates the manifest.
pub(super) fn forge(fs: &MemoryFs, path: &Path, forged: Forged) {
    let identity = identity_of(fs, path);
    match forged {
        Forged::Damaged => change(fs, path, |bytes| bytes[HEADER_BYTES + 9] ^= 4),
        Forged::Missing => fs.unlink(path).unwrap(),
        // The kind is the seventh byte from the end.
        Forged::UnknownKind => with_seal(fs, path, identity, |block| {
            let end = block.len();
            block[end - 7] = 77;
        }),
        // The trailer starts with the hash version; its length is the fifth byte from the end.
        Forged::OlderHash => with_seal(fs, path, identity, |block| {
            let trailer = block.len() - usize::from(block[block.len() - 5]);
            block[trailer] = 0;
        }),
        Forged::OtherSeed => {
            let other = Expected { hash_seed: identity.hash_seed ^ 1, ..identity };
            with_seal(fs, path, other, |_| ());
        }
        Forged::LacksAKey => {
            let filter = without_a_key(fs, path, identity);
            let block = filter_block::encode(&filter, identity);
            with_seal(fs, path, identity, |old| {
                assert_eq!(old.len(), block.len(), "a filter of as many keys");
                *old = block.to_vec();
            });
        }
    }
}

/// Returns seed and salt of the filter in the file `path`.
fn identity_of(fs: &MemoryFs, path: &Path) -> Expected {
    let store_seed = hash_seed(fs);
    let seeds = [store_seed, EXTRACTOR.hash_seed(store_seed)];
    let block = read(fs, path)[HEADER_BYTES..].to_vec();
    let salts = paths(fs, ".sst").into_iter().map(|table| salt(&read(fs, &table)));
    let is_good = |&expected: &Expected| {
        filter_block::decode(&block, expected).is_ok()
            || filter_block::decode_range(&block, expected).is_ok()
    };
    let mut fitting =
        salts.flat_map(|salt| seeds.map(|hash_seed| Expected { hash_seed, salt })).filter(is_good);
    fitting.next().expect("the filter is one of a table")
}

/// Returns the salt of a table, from its footer.
fn salt(table: &[u8]) -> u64 {
    let tail = &table[table.len() - 64..];
    u64::from_le_bytes(tail[16..24].try_into().unwrap())
}

/// Returns field 2 of the first edit of the manifest, after the store id.
fn hash_seed(fs: &MemoryFs) -> u64 {
    let manifest = read(fs, &paths(fs, "MANIFEST-")[0]);
    let mark = [&[3, 16][..], &manifest[16..32], &[5, 8]].concat();
    let at = manifest.windows(mark.len()).position(|bytes| bytes == mark).unwrap() + mark.len();
    u64::from_le_bytes(manifest[at..at + 8].try_into().unwrap())
}

/// Changes the filter block in the file `path`, updates its checksum, and names the new checksum in
/// the manifest.
fn with_seal(fs: &MemoryFs, path: &Path, expected: Expected, forge: impl FnOnce(&mut Vec<u8>)) {
    let bytes = read(fs, path);
    let mut block = bytes[HEADER_BYTES..].to_vec();
    let old: [u8; 4] = *block.last_chunk().unwrap();
    forge(&mut block);
    let end = block.len() - 4;
    let trailer = block.len() - usize::from(block[block.len() - 5]);
    let (seed, salt) = (expected.hash_seed.to_le_bytes(), expected.salt.to_le_bytes());
    let new = crc32(&[&seed, &salt, &block[trailer..end]]).to_le_bytes();
    block[end..].copy_from_slice(&new);
    change(fs, path, |bytes| {
        bytes.truncate(HEADER_BYTES);
        bytes.extend_from_slice(&block);
    });
    change(fs, &paths(fs, "MANIFEST-")[0], |manifest| {
        let places: Vec<_> =
            (0..manifest.len() - 3).filter(|&at| manifest[at..at + 4] == old).collect();
        assert!(!places.is_empty(), "the manifest names filter {}", id(path));
        for at in places {
            manifest[at..at + 4].copy_from_slice(&new);
        }
        for part in log_parts(manifest) {
            if let Part::Record { .. } = part {
                part.seal(manifest);
            }
        }
    });
}

/// Returns the filter in the file `path` with another key in place of its first one.
fn without_a_key(fs: &MemoryFs, path: &Path, identity: Expected) -> TableFilter {
    let block = read(fs, path)[HEADER_BYTES..].to_vec();
    let good = filter_block::decode(&block, identity).unwrap();
    // The keys of the table are unknown; the filter rejects most others.
    let hash = |number: u32| key_hash(&key(number), identity.hash_seed);
    let table = paths(fs, ".sst")
        .into_iter()
        .map(|table| read(fs, &table))
        .find(|bytes| salt(bytes) == identity.salt)
        .unwrap();
    let in_bounds = bounds_of(&table);
    let mut hashes: Vec<u64> = (0..super::fixture::KEYS)
        .filter(|&number| number % 4 != 3 && in_bounds(&key(number)))
        .map(hash)
        .filter(|&hash| good.may_contain_hash(hash))
        .collect();
    let keys = good.key_count() as usize;
    assert!(hashes.len() >= keys, "{} of {keys} keys", hashes.len());
    hashes.truncate(keys);
    for at in 0..keys {
        let mut lacking = hashes.clone();
        lacking[at] = hash(super::fixture::KEYS + 7);
        let filter = TableFilter::build(FilterKind::BlockedBloom, &lacking, 10.0).unwrap();
        if !filter.may_contain_hash(hashes[at]) {
            return filter;
        }
    }
    panic!("every filter without a key passes for it");
}

/// Returns whether a key is within the bounds in the properties of a table.
fn bounds_of(table: &[u8]) -> impl Fn(&[u8]) -> bool {
    // Fields 6 and 7 of the properties: smallest and largest key, 8 bytes each.
    let at = |number: u8| {
        let mark = [number << 1, 8];
        let found = (0..table.len() - 20).rev().find(|&at| {
            table[at..at + 2] == mark && (number == 7 || table[at + 10..at + 12] == [7 << 1, 8])
        });
        let at = found.expect("a table has bounds") + 2;
        table[at..at + 8].to_vec()
    };
    let (smallest, largest) = (at(6), at(7));
    move |key| smallest.as_slice() <= key && key <= largest.as_slice()
}
