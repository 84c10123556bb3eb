//! Scenarios of the picker in `testdata/picker`, and comparisons with models.

use std::collections::BTreeSet;

use sievedb_sstable::BlobUse;

use crate::table::TableMeta;

mod amplification;
mod borders;
mod filtering;
mod operands;
mod picker;
mod ranges;
mod retain;
mod simulation;

static NO_TABLES: BTreeSet<u64> = BTreeSet::new();

/// Returns a table that uses blob files: id, length of their values, and used bytes.
pub(super) fn table_with_blobs(uses: impl Iterator<Item = (u64, u64, u64)>) -> TableMeta {
    let blob_files = uses.map(|(file_id, values, used_bytes)| BlobUse {
        file_id,
        // With header and footer.
        bytes: values + 92,
        checksum: 0,
        salt: 0,
        used_bytes,
    });
    TableMeta { blob_files: blob_files.collect(), ..picker::table(1, 1, 0, b"a", b"b") }
}
