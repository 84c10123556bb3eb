//! Verification of filters in the file of their table.

use std::sync::Arc;

use sievedb_filter::{Expected, filter_block};

use crate::{
    error::ReadError,
    filter_state::FilterHandle,
    footer::{BlockKind, Footer, FooterBlock},
    metadata::{ResidentBlocks, TableIdentity},
    prefix_extractor::prefix_hash_seed,
    source::TableSource,
};

/// Reads the filters in the file of the table `identity`, except those at the offsets `used`.
/// Returns the number of damaged filters.
///
/// The file checksum covers filters that filter files have replaced. If nothing else is damaged,
/// this function explains a wrong file checksum.
///
/// # Errors
///
/// [`ReadError`] if footer, properties or another resident block cannot be read.
pub fn damaged_filters(
    source: &Arc<dyn TableSource>,
    identity: &TableIdentity,
    used: &[u64],
) -> Result<u64, ReadError> {
    let footer = Footer::read(&**source)?;
    let ResidentBlocks { properties, .. } = ResidentBlocks::read(Arc::clone(source), &footer)?;
    let source = &**source;
    let TableIdentity { hash_seed, salt, .. } = *identity;
    let mut damaged = 0;
    for FooterBlock { kind, offset, bytes } in &footer.blocks {
        let block = FilterHandle { offset: *offset, bytes: *bytes, checksum: 0 };
        let read = || {
            let length = block.length_in(source).ok()?;
            source.read_at(block.offset, length).ok()
        };
        let is_good = |decode: &dyn Fn(&[u8]) -> bool| read().is_some_and(|bytes| decode(&bytes));
        let keys = |hash_seed| {
            let expected = Expected { hash_seed, salt };
            is_good(&|bytes| filter_block::decode(bytes, expected).is_ok())
        };
        let is_unused_and_damaged = !used.contains(offset)
            && match kind {
                BlockKind::PointFilter => !keys(hash_seed),
                BlockKind::PrefixFilter => {
                    let named = properties.prefix_filter.as_ref();
                    !named.is_some_and(|(_, name)| keys(prefix_hash_seed(name, hash_seed)))
                }
                BlockKind::RangeFilter => {
                    let expected = Expected { hash_seed, salt };
                    !is_good(&|bytes| filter_block::decode_range(bytes, expected).is_ok())
                }
                BlockKind::DataIndex
                | BlockKind::Properties
                | BlockKind::RangeTombstones
                | BlockKind::CompressionDictionary => false,
            };
        damaged += u64::from(is_unused_and_damaged);
    }
    Ok(damaged)
}
