//! Report of copied keyspaces.

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use sievedb::text::bytes;
use sievedb_migrate::store::Copied;

use crate::text::{count, escape};

/// Returns a row for each keyspace.
pub(crate) fn table(copied: &[Copied]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["keyspace", "entries", "keys and values", "digest"]);
    for Copied { name, bytes: total, digest } in copied {
        table.add_row([
            escape(name.as_bytes()),
            count(digest.entries()),
            bytes(*total),
            digest.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
