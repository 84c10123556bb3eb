//! Memory of a table being written, within the share of its worker. Pure.
//!
//! A small share makes small and therefore many tables. Each has a write buffer, blocks and index
//! partitions in proportion, so that most of the share is for entries, and little of the index
//! stays in memory.
//!
//! Until a filter is built, each entry takes [`ENTRY_BYTES`]. In a store with too many tables for
//! its memory, a blocked Bloom filter is filled entry by entry instead, which takes about 1.25
//! bytes each. So a table of the least share has 200,000 entries instead of 12,000.

use sievedb_sstable::{DEFAULT_INDEX_PARTITION_BYTES, DEFAULT_WRITE_BUFFER_BYTES};

use crate::{
    filter_policy::FilterChoice,
    keyspace_options::{Compression, KeyspaceOptions},
};

/// Number of entries whose filter memory is charged at a time.
pub(crate) const ENTRIES_CHARGED: u64 = 1 << 10;
/// Memory of an entry until the filter is built: its hash, and 20 bytes while a ribbon is built.
pub(crate) const ENTRY_BYTES: usize = HASH_BYTES + 20;
/// A hash in an array with up to 1/8 to spare.
const HASH_BYTES: usize = size_of::<u64>() * 9 / 8;

/// Initial memory of the writer besides its buffers: the state of LZ4, and the heads of the entries
/// of a block.
const WRITER_BYTES: usize = 40 << 10;
/// Number of copies of a block, and of an index partition, during its construction: entries,
/// content, and compressed, each in an array with spare capacity.
const COPIES: usize = 4;
/// Minimum memory for the top index.
const TOP_INDEX_BYTES_MIN: u64 = 16 << 10;

/// Ratio of the samples for the training of a dictionary to its length.
const SAMPLE_RATIO: usize = 100;

/// Divisor of the growing memory for the index and range tombstones of a table whose filter is
/// filled entry by entry.
const INDEX_BESIDE_FILTER: u64 = 4;
/// Divisor of the length of a table for such a filter.
const FILTER_IN_TABLE: u64 = 4;

/// Divisor of a share for the write buffer.
const BUFFER_IN_SHARE: usize = 8;
/// Divisor of a share for a block.
const BLOCK_IN_SHARE: usize = 16;
/// Divisor of a share for an index partition: 2 KiB of the least share, whose tables' indexes are
/// not resident as a whole.
const INDEX_PARTITION_IN_SHARE: usize = 256;
/// Of the least share.
const INDEX_PARTITION_BYTES_MIN: usize = 2 << 10;

/// Upper bounds of the entries of a new table, and of all tables of its flush or compaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewEntries {
    pub(crate) of_table: u64,
    pub(crate) of_all: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableRoom {
    pub(super) write_buffer_bytes: usize,
    pub(super) index_partition_bytes: usize,
    /// Initial memory of the writer, and mostly its later memory too.
    pub(super) first_bytes: u64,
    /// Memory of an entry until the filters are built.
    pub(super) entry_bytes: u64,
    /// Limit of entries, and of other memory that grows with the table.
    pub(super) growing_bytes_max: u64,
    /// Memory of a filter that is filled entry by entry.
    pub(super) filter_bytes: u64,
    /// Entries at which the table ends, whose filter is filled entry by entry.
    pub(super) filter_keys_max: Option<u64>,
}

impl TableRoom {
    /// Returns the room of a table with `options`, which are [within the share](within_share), and
    /// `filter`, while `reserved_bytes` of it are for other uses, such as reading. The table ends
    /// early for them, but has at least half of what the writer leaves, and room for
    /// [`ENTRIES_CHARGED`] entries and a little index.
    pub(super) fn new(
        options: &KeyspaceOptions,
        filter: FilterChoice,
        share_bytes: u64,
        reserved_bytes: u64,
    ) -> Self {
        let share = in_memory(share_bytes);
        let write_buffer_bytes = DEFAULT_WRITE_BUFFER_BYTES.min(share / BUFFER_IN_SHARE);
        let index_partition_bytes = (share / INDEX_PARTITION_IN_SHARE)
            .clamp(INDEX_PARTITION_BYTES_MIN, DEFAULT_INDEX_PARTITION_BYTES);
        let sample = match options.compression {
            Compression::Zstd { dictionary_bytes, .. } => SAMPLE_RATIO * dictionary_bytes as usize,
            _ => 0,
        };
        let blocks = COPIES * (options.block_bytes + index_partition_bytes);
        let first_bytes = (WRITER_BYTES + write_buffer_bytes + blocks + sample) as u64;
        // The filters are built one after another.
        let has_prefixes = options.prefix_extractor.present().is_some();
        let has_ranges = options.range_filter_bits_per_key > 0.0;
        let more = usize::from(has_prefixes) + usize::from(has_ranges);
        let points = if filter.bits_per_key > 0.0 || more > 0 { ENTRY_BYTES } else { 0 };
        let entry_bytes = (points + more * HASH_BYTES) as u64;
        let left = share_bytes.saturating_sub(first_bytes);
        let growing_bytes_max = left
            .saturating_sub(reserved_bytes)
            .max(left / 2)
            .max(ENTRIES_CHARGED * entry_bytes + TOP_INDEX_BYTES_MIN);
        Self {
            write_buffer_bytes,
            index_partition_bytes,
            first_bytes,
            entry_bytes,
            growing_bytes_max,
            filter_bytes: 0,
            filter_keys_max: None,
        }
    }

    /// Returns the most entries whose hashes fit.
    pub(super) fn hashed_entries_max(&self) -> u64 {
        self.growing_bytes_max / self.entry_bytes.max(1)
    }

    /// Returns the room of a table of up to `entries` entries and `table_bytes` bytes with a point
    /// filter that is filled entry by entry, if that makes it larger and there is no other filter.
    ///
    /// A filter whose hashes fit into the share of `share_bytes` bytes would be rebuilt.
    pub(super) fn with_large_filter(
        self,
        filter: FilterChoice,
        share_bytes: u64,
        table_bytes: u64,
        entries: u64,
    ) -> Self {
        let Self { entry_bytes, growing_bytes_max, .. } = self;
        let entries_max = self.hashed_entries_max().max(share_bytes / ENTRY_BYTES as u64);
        if entry_bytes != ENTRY_BYTES as u64 || entries <= entries_max {
            return self;
        }
        let room = growing_bytes_max - growing_bytes_max / INDEX_BESIDE_FILTER;
        // The whole filter counts for the length of the table from the first entry on.
        let room = room.min(table_bytes / FILTER_IN_TABLE);
        let filter_keys_max = entries.min((room as f64 * 8.0 / filter.bits_per_key) as u64);
        let filter_bytes = filter_bytes(filter, filter_keys_max);
        if filter_keys_max <= entries_max {
            return self;
        }
        Self {
            filter_bytes,
            entry_bytes: 0,
            growing_bytes_max: growing_bytes_max.saturating_sub(filter_bytes),
            filter_keys_max: Some(filter_keys_max),
            ..self
        }
    }
}

/// Returns the bytes of a blocked Bloom filter of `keys` keys.
pub(crate) fn filter_bytes(filter: FilterChoice, keys: u64) -> u64 {
    (keys as f64 * filter.bits_per_key / 8.0) as u64
}

/// Returns the options of a table that one worker writes within its share: a block may take 1/16 of
/// it, and the samples of a dictionary 1/2.
pub(super) fn within_share(options: &KeyspaceOptions, share_bytes: u64) -> KeyspaceOptions {
    let share = in_memory(share_bytes);
    let mut options = options.clone();
    options.block_bytes = options.block_bytes.min(share / BLOCK_IN_SHARE);
    if let Compression::Zstd { dictionary_bytes, .. } = &mut options.compression {
        let sampled_max = share / 2 / SAMPLE_RATIO;
        *dictionary_bytes = u32::try_from(sampled_max).unwrap_or(u32::MAX).min(*dictionary_bytes);
    }
    options
}

pub(crate) fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use sievedb_filter::FilterKind;

    use super::*;

    const KIB: u64 = 1 << 10;
    const RIBBON: FilterChoice = FilterChoice { kind: FilterKind::Ribbon, bits_per_key: 10.0 };

    #[test]
    fn tables_of_small_shares_have_small_buffers_and_many_entries() {
        let new = KeyspaceOptions::new;
        // The share, the write buffer and the index partition in KiB, and the minimum and maximum
        // number of entries.
        let cases = [
            ("the least share, a flush", 512, 0, new(), [64, 2], 13_000..15_000),
            ("two runs are merged", 512, 100, new(), [64, 2], 10_000..12_000),
            ("many runs are merged", 512, 500, new(), [64, 2], 6_500..8_000),
            ("the longest blocks", 512, 500, new().block_bytes(1 << 20), [64, 2], 4_000..6_000),
            ("1 MiB", 1 << 10, 150, new(), [128, 4], 23_000..26_000),
            ("16 MiB", 16 << 10, 2 << 10, new(), [256, 16], 480_000..500_000),
        ];
        for (name, share, reading, options, [buffer, partition], entries) in cases {
            let options = within_share(&options, share * KIB);
            let room = TableRoom::new(&options, RIBBON, share * KIB, reading * KIB);
            let found = [room.write_buffer_bytes, room.index_partition_bytes];
            assert_eq!(found, [buffer << 10, partition << 10], "{name}");
            let most = room.growing_bytes_max / room.entry_bytes;
            assert!(entries.contains(&most), "{name}: {most}");
        }
    }

    #[test]
    fn no_table_has_a_single_block_of_entries_because_there_is_no_room() {
        let room = TableRoom::new(&KeyspaceOptions::new(), RIBBON, 0, u64::MAX);
        assert!(room.growing_bytes_max > ENTRIES_CHARGED * room.entry_bytes + KIB);
    }

    #[test]
    fn a_large_filter_makes_tables_of_small_shares_larger() {
        let new = KeyspaceOptions::new;
        let with_ranges = new().range_filter_bits_per_key(16.0);
        let small = new().table_bytes(128 << 10);
        // The bytes for reading in KiB, the entries, and those of a filter that is filled entry by
        // entry.
        let cases = [
            ("many entries", 100, new(), u64::MAX, Some(170_000..190_000)),
            ("many runs are merged", 500, new(), u64::MAX, Some(110_000..125_000)),
            ("fewer entries", 100, new(), 50_000, Some(50_000..50_001)),
            ("a small table", 100, small, u64::MAX, Some(26_214..26_215)),
            ("so few that the hashes have room", 100, new(), 9_000, None),
            ("hashes have room for a rebuild", 100, new(), 18_000, None),
            ("a range filter", 100, with_ranges, u64::MAX, None),
        ];
        let share = 512 * KIB;
        for (name, reading, options, entries, want) in cases {
            let options = within_share(&options, share);
            let hashed = TableRoom::new(&options, RIBBON, share, reading * KIB);
            let table_bytes = options.table_bytes;
            let room = hashed.with_large_filter(RIBBON, share, table_bytes, entries);
            let Some(want) = want else {
                assert_eq!(room, hashed, "{name}");
                continue;
            };
            let keys = room.filter_keys_max.expect(name);
            assert!(want.contains(&keys), "{name}: {keys}");
            assert_eq!(room.first_bytes, hashed.first_bytes, "{name}");
            let bytes = room.filter_bytes + room.growing_bytes_max;
            assert_eq!(bytes, hashed.growing_bytes_max, "{name}");
            assert!(room.growing_bytes_max >= 32 * KIB, "{name}: {}", room.growing_bytes_max);
        }
    }

    #[test]
    fn tables_without_a_filter_end_by_their_index_alone() {
        let none = FilterChoice { bits_per_key: 0.0, ..RIBBON };
        let room = TableRoom::new(&KeyspaceOptions::new(), none, 512 * KIB, 0);
        assert_eq!(room.entry_bytes, 0);
        assert_eq!(room.with_large_filter(none, 512 * KIB, u64::MAX, u64::MAX), room);
    }
}
