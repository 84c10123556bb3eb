//! Filter files: a filter outside of its table.
//!
//! A rebuilt filter is written without rewriting the table. The checksum of the filter block covers
//! salt and hash seed of the table, so the filter of another table is refused.
//! `testdata/filter_file` pins these bytes.
//!
//! | offset | bytes | field    | meaning                                               |
//! |--------|-------|----------|-------------------------------------------------------|
//! | 0      | 64    | `header` | [`sievedb_format::file_header`], of kind `Filter`     |
//! | 64     | n     | `filter` | [`sievedb_filter::filter_block`], up to the end       |

use std::{io, sync::Arc};

use sievedb_filter::{Expected, RangeFilter, TableFilter, filter_block};
use sievedb_format::{Annotation, FileHeader, FileKind, file_header::HEADER_BYTES};

use crate::{
    describe::describe_filter,
    filter_state::{FilterHandle, FilterUnusable, stored_checksum},
    metadata::TableIdentity,
    source::{TableSink, TableSource},
};

/// Writes `filter`, of the table `identity`, as the file `file_id`, and returns its location. For a
/// prefix filter, `identity.hash_seed` is the seed of the prefix hashes.
///
/// Allocates up to as much memory as the filter takes. Does not sync the sink.
///
/// # Errors
///
/// Those of the sink.
pub fn write_filter_file(
    sink: &mut impl TableSink,
    identity: &TableIdentity,
    file_id: u64,
    filter: &TableFilter,
) -> io::Result<FilterHandle> {
    write_block(sink, identity, file_id, |expected, put| {
        filter_block::encode_to(filter, expected, put)
    })
}

/// Writes a range filter. Otherwise as [`write_filter_file`].
///
/// # Errors
///
/// As [`write_filter_file`].
pub fn write_range_filter_file(
    sink: &mut impl TableSink,
    identity: &TableIdentity,
    file_id: u64,
    filter: &RangeFilter,
) -> io::Result<FilterHandle> {
    write_block(sink, identity, file_id, |expected, put| {
        put(&filter_block::encode_range(filter, expected))
    })
}

fn write_block(
    sink: &mut impl TableSink,
    identity: &TableIdentity,
    file_id: u64,
    encode: impl FnOnce(Expected, &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
) -> io::Result<FilterHandle> {
    let TableIdentity { store_id, hash_seed, salt, .. } = *identity;
    sink.append(&FileHeader::new(FileKind::Filter, store_id, file_id).encode())?;
    let (mut bytes, mut checksum) = (0, None);
    encode(Expected { hash_seed, salt }, &mut |piece| {
        bytes += piece.len() as u64;
        checksum = stored_checksum(piece);
        sink.append(piece)
    })?;
    let checksum = checksum.expect("a filter block ends with its trailer");
    Ok(FilterHandle { offset: HEADER_BYTES as u64, bytes, checksum })
}

pub(crate) fn check_header(
    source: &dyn TableSource,
    store_id: u128,
    file_id: u64,
) -> Result<(), FilterUnusable> {
    let header = source.read_at(0, HEADER_BYTES).map_err(FilterUnusable::Io)?;
    let expected = FileHeader::new(FileKind::Filter, store_id, file_id);
    expected.check(&header).map(drop).map_err(FilterUnusable::Header)
}

/// Describes every field of a filter file as text, even if the file is damaged.
#[must_use]
pub fn describe_filter_file(source: &Arc<dyn TableSource>) -> Annotation {
    let mut annotation = Annotation::new();
    let header = HEADER_BYTES as u64;
    let end = header.min(source.len());
    match source.read_at(0, HEADER_BYTES).map(|bytes| FileHeader::decode(&bytes)) {
        Ok(Ok(found)) => found.describe(&mut annotation),
        Ok(Err(error)) => annotation.field(0..end, "header", format_args!("damaged: {error}")),
        Err(error) => annotation.field(0..end, "header", format_args!("unreadable: {error}")),
    }
    annotation.rebase(header);
    describe_filter(&**source, header, source.len().saturating_sub(header), &mut annotation);
    annotation
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sievedb_filter::{FilterArena, FilterKind, key_hash, range_filter::PointCollector};

    use super::*;
    use crate::filter_state::FilterState;

    const IDENTITY: TableIdentity =
        TableIdentity { store_id: 1 << 64, file_id: 2, salt: 3, hash_seed: 4 };

    fn file(kind: FilterKind) -> (Vec<u8>, FilterHandle) {
        let hashes: Vec<u64> =
            (0..500_u32).map(|key| key_hash(&key.to_be_bytes(), IDENTITY.hash_seed)).collect();
        let filter = TableFilter::build(kind, &hashes, 10.0).unwrap();
        let mut bytes = Vec::new();
        let handle = write_filter_file(&mut bytes, &IDENTITY, 9, &filter).unwrap();
        assert_eq!(handle.offset + handle.bytes, bytes.len() as u64);
        assert!(handle.offset.is_multiple_of(64));
        (bytes, handle)
    }

    #[test]
    fn a_filter_file_round_trips() {
        for kind in [FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::BinaryFuse] {
            let (bytes, handle) = file(kind);
            let (source, heap) = (Bytes::from(bytes), FilterArena::heap());
            let state = FilterState::load(&source, &IDENTITY, Some(9), handle, &heap);
            let filter = state.resident().unwrap_or_else(|| panic!("{kind:?}: {state:?}"));
            assert_eq!((filter.kind(), filter.key_count()), (kind, 500));
            let holds = |key: u32| filter.may_contain_hash(key_hash(&key.to_be_bytes(), 4));
            assert!((0..500).all(holds), "{kind:?}");
            assert!((500..600).filter(|&key| holds(key)).count() < 20, "{kind:?}");
        }
    }

    #[test]
    fn a_range_filter_file_round_trips_and_damage_is_detected() {
        let mut points = PointCollector::new();
        let keys: Vec<_> = (0..500_u64).map(|key| (key << 40).to_be_bytes()).collect();
        keys.iter().for_each(|key| points.push(key));
        let bounds: (&[u8], &[u8]) = (&keys[0], &keys[499]);
        let filter = RangeFilter::build(points.finish(bounds.0, bounds.1), 12.0, 5);
        let mut good = Vec::new();
        let handle = write_range_filter_file(&mut good, &IDENTITY, 9, &filter).unwrap();
        let load = |bytes: Vec<u8>, file_id| {
            let (source, heap) = (Bytes::from(bytes), FilterArena::heap());
            FilterState::load_range(&source, &IDENTITY, Some(file_id), handle, bounds, &heap)
        };
        let state = load(good.clone(), 9);
        assert_eq!(state.resident().map(RangeFilter::key_count), Some(500));
        assert!(matches!(load(good.clone(), 8), FilterState::Unusable(_)), "another file");
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(matches!(load(bytes, 9), FilterState::Unusable(_)), "flipped at {at}");
            assert!(
                matches!(load(good[..at].to_vec(), 9), FilterState::Unusable(_)),
                "truncated at {at}"
            );
        }
        // A point filter is refused as a range filter, and vice versa.
        let (keys, of_keys) = file(FilterKind::Ribbon);
        let heap = FilterArena::heap();
        let keys = Bytes::from(keys);
        let state = FilterState::load_range(&keys, &IDENTITY, Some(9), of_keys, bounds, &heap);
        assert!(matches!(state, FilterState::Unusable(_)));
        let ranges = Bytes::from(good);
        let state = FilterState::load(&ranges, &IDENTITY, Some(9), handle, &heap);
        assert!(matches!(state, FilterState::Unusable(_)));
    }

    #[test]
    fn flipped_bits_and_truncation_are_detected() {
        let (good, handle) = file(FilterKind::Ribbon);
        let load = |bytes: Vec<u8>| {
            let (source, heap) = (Bytes::from(bytes), FilterArena::heap());
            FilterState::load(&source, &IDENTITY, Some(9), handle, &heap)
        };
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(matches!(load(bytes), FilterState::Unusable(_)), "flipped at {at}");
            let cut = load(good[..at].to_vec());
            assert!(matches!(cut, FilterState::Unusable(_)), "truncated at {at}");
        }
    }

    #[test]
    fn the_filter_of_another_table_or_store_is_refused() {
        let (good, handle) = file(FilterKind::BlockedBloom);
        let cases = [
            ("file", 8, IDENTITY),
            ("salt", 9, TableIdentity { salt: 0, ..IDENTITY }),
            ("seed", 9, TableIdentity { hash_seed: 0, ..IDENTITY }),
            ("store", 9, TableIdentity { store_id: 0, ..IDENTITY }),
        ];
        for (name, file_id, identity) in cases {
            let (source, heap) = (Bytes::from(good.clone()), FilterArena::heap());
            let state = FilterState::load(&source, &identity, Some(file_id), handle, &heap);
            assert!(matches!(state, FilterState::Unusable(_)), "{name}");
        }
    }
}
