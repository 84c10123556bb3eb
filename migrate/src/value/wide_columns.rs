//! Values that are sets of named columns.

use super::blob::BlobIndex;
use crate::{decoder::Decoder, error::Result};

/// Types of columns in version 2.
const INLINE: u8 = 0x01;
const BLOB: u8 = 0x11;

/// Value of the default column.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DefaultColumn<'a> {
    Inline(&'a [u8]),
    Blob(BlobIndex),
}

/// Returns the default column of an entity. Refuses an entity with other columns, which would be
/// lost.
pub(crate) fn default_column<'a>(mut decoder: Decoder<'a>) -> Result<DefaultColumn<'a>> {
    let version = decoder.varint32("version of columns")?;
    if !(1..=2).contains(&version) {
        return Err(decoder.unsupported(format!("columns of version {version}")));
    }
    let count = decoder.varint32("number of columns")?;
    if count != 1 {
        return Err(decoder.unsupported(format!("wide-column entity with {count} columns")));
    }
    let kind = match version {
        2 => {
            for what in ["lengths of names", "lengths of values", "names"] {
                decoder.varint32(what)?;
            }
            decoder.u8("type of a column")?
        }
        _ => INLINE,
    };
    // With one column, the versions differ only in the position of the name.
    let (name, len) = match version {
        1 => (decoder.prefixed("name of a column")?, decoder.varint32("length of a column")?),
        _ => {
            let name_len = decoder.varint32("length of a name")?;
            let len = decoder.varint32("length of a column")?;
            (decoder.bytes(name_len as usize, "name of a column")?, len)
        }
    };
    if !name.is_empty() {
        let name = String::from_utf8_lossy(name);
        return Err(decoder.unsupported(format!("wide-column entity with the column {name:?}")));
    }
    let value = decoder.bytes(len as usize, "value of a column")?;
    let behind = decoder.clone();
    behind.finish("the columns")?;
    match kind {
        INLINE => Ok(DefaultColumn::Inline(value)),
        BLOB => BlobIndex::decode(decoder.within(value)).map(DefaultColumn::Blob),
        kind => Err(decoder.unsupported(format!("column of type {kind:#04x}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn column(bytes: &[u8]) -> Result<DefaultColumn<'_>> {
        default_column(Decoder::new(bytes, Path::new("table"), 0))
    }

    #[test]
    fn the_default_column_of_both_versions() {
        assert_eq!(column(b"\x01\x01\x00\x02ab").unwrap(), DefaultColumn::Inline(b"ab"));
        let second = b"\x02\x01\x01\x01\x00\x01\x00\x02ab";
        assert_eq!(column(second).unwrap(), DefaultColumn::Inline(b"ab"));
    }

    #[test]
    fn other_columns_are_refused_by_name() {
        let refused = |bytes: &[u8]| column(bytes).unwrap_err().to_string();
        assert!(refused(b"\x01\x01\x01x\x02ab").contains("the column \"x\""));
        assert!(refused(b"\x01\x02\x00\x02\x01x\x01abc").contains("2 columns"));
        assert!(refused(b"\x03\x01").contains("version 3"));
        assert!(refused(b"\x01\x01\x00\x02abc").contains("1 bytes follow"));
    }
}
