//! Checksummed parts of files, and updating their checksums.
//!
//! An independent reader of the formats in `docs/file-formats.md`, like `log_record`.

use std::ops::{Range, RangeInclusive};

use sievedb_format::{checksum, file_header::HEADER_BYTES};

const RECORD_HEADER_BYTES: usize = 40;
const TABLE_TAIL_BYTES: usize = 64;
const FOOTER_ENTRY_BYTES: usize = 18;
/// Kinds of filter blocks in the footer. Their seals are tested separately.
const FILTERS: RangeInclusive<u8> = 3..=5;

/// A part of a file with a checksum.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// The header of a file.
    Header,
    /// A record of a log or manifest with this number.
    Record { file_id: u64, secret: u64, place: Range<usize> },
    /// A block of a table with the table's salt.
    Block { salt: u64, place: Range<usize> },
    /// The footer of a table.
    Footer(Range<usize>),
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn put(bytes: &mut [u8], at: usize, checksum: u32) {
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

impl Part {
    /// Returns its range in the file.
    pub(crate) fn place(&self) -> Range<usize> {
        match self {
            Self::Header => 0..HEADER_BYTES,
            Self::Record { place, .. } | Self::Block { place, .. } | Self::Footer(place) => {
                place.clone()
            }
        }
    }

    /// Updates the checksum.
    pub(crate) fn seal(&self, bytes: &mut [u8]) {
        match self {
            Self::Header => {
                let checksum = checksum::crc32(&[&bytes[..HEADER_BYTES - 4]]);
                put(bytes, HEADER_BYTES - 4, checksum);
            }
            Self::Record { file_id, secret, place } => {
                let record = &mut bytes[place.clone()];
                let payload = checksum::crc32(&[&record[RECORD_HEADER_BYTES..]]);
                put(record, 12, payload);
                let (file_id, offset) = (file_id.to_le_bytes(), (place.start as u64).to_le_bytes());
                let secret = secret.to_le_bytes();
                let header = [&secret, &file_id, &offset, &record[4..RECORD_HEADER_BYTES]];
                put(record, 0, checksum::crc32(&header));
            }
            Self::Block { salt, place } => {
                let block = &mut bytes[place.clone()];
                let (content, trailer) = block.split_at(block.len() - 5);
                let sealed = checksum::block(*salt, place.start as u64, trailer[0], content);
                put(block, place.len() - 4, sealed);
            }
            Self::Footer(place) => {
                let footer = &mut bytes[place.clone()];
                let end = footer.len() - 12;
                put(footer, end, checksum::crc32(&[&footer[..end]]));
            }
        }
    }
}

/// Returns the parts of a log or manifest, without padding.
pub(crate) fn log_parts(bytes: &[u8]) -> Vec<Part> {
    let mut parts = vec![Part::Header];
    let (file_id, secret, mut at) = (number(bytes, 32), number(bytes, 40), HEADER_BYTES);
    while at < bytes.len() {
        let payload_bytes = (number(bytes, at + 8) & 0xffff_ffff) as usize;
        let place = at..at + RECORD_HEADER_BYTES + payload_bytes;
        at = place.end.next_multiple_of(8);
        parts.push(Part::Record { file_id, secret, place });
    }
    parts
}

/// Returns the parts of a table.
///
/// Finds the end of each data block by its checksum.
pub(crate) fn table_parts(bytes: &[u8]) -> Vec<Part> {
    let list = number(bytes, bytes.len() - TABLE_TAIL_BYTES) as usize;
    let mut parts = vec![Part::Header, Part::Footer(list..bytes.len())];
    let blocks = footer_blocks(bytes).filter(|(kind, _)| !FILTERS.contains(kind));
    let salt = salt(bytes);
    parts.extend(blocks.map(|(_, place)| Part::Block { salt, place }));
    let mut start = HEADER_BYTES;
    let ends = parts[2..].iter().map(|part| part.place().start);
    let data_end = ends.min().expect("a table has an index");
    while let Some(end) = (start + 6..=data_end).find(|&end| is_block(bytes, salt, start..end)) {
        parts.push(Part::Block { salt, place: start..end });
        start = end;
    }
    parts
}

/// Returns the range of the point filter of a table.
pub(crate) fn filter_place(bytes: &[u8]) -> Option<Range<usize>> {
    filter_places(bytes).find(|(kind, _)| kind == FILTERS.start()).map(|(_, place)| place)
}

/// Returns the range of each filter of a table, with the kind of its block.
pub(crate) fn filter_places(bytes: &[u8]) -> impl Iterator<Item = (u8, Range<usize>)> {
    footer_blocks(bytes).filter(|(kind, _)| FILTERS.contains(kind))
}

/// Returns the block of this kind that the footer of a table names.
pub(crate) fn footer_part(bytes: &[u8], kind: u8) -> Option<Part> {
    let (_, place) = footer_blocks(bytes).find(|(found, _)| *found == kind)?;
    Some(Part::Block { salt: salt(bytes), place })
}

/// Returns a table whose block of this kind, which must be the last one, has another content.
pub(crate) fn with_block(bytes: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
    let place = footer_part(bytes, kind).expect("the table has the block").place();
    let mut tail = bytes[place.end..].to_vec();
    let entries_end = tail.len() - TABLE_TAIL_BYTES;
    for entry in tail[..entries_end].chunks_mut(FOOTER_ENTRY_BYTES) {
        if entry[0] == kind {
            entry[10..18].copy_from_slice(&(content.len() as u64 + 5).to_le_bytes());
        }
    }
    let mut forged = [&bytes[..place.start], content, &[0; 5]].concat();
    let list = forged.len();
    tail[entries_end..entries_end + 8].copy_from_slice(&(list as u64).to_le_bytes());
    forged.extend(tail);
    Part::Block { salt: salt(bytes), place: place.start..list }.seal(&mut forged);
    Part::Footer(list..forged.len()).seal(&mut forged);
    forged
}

/// Returns the kind and range of each block that the footer of a table names.
fn footer_blocks(bytes: &[u8]) -> impl Iterator<Item = (u8, Range<usize>)> {
    let tail = bytes.len() - TABLE_TAIL_BYTES;
    let list = number(bytes, tail) as usize;
    bytes[list..tail].chunks(FOOTER_ENTRY_BYTES).map(|entry| {
        let start = number(entry, 2) as usize;
        (entry[0], start..start + number(entry, 10) as usize)
    })
}

fn salt(bytes: &[u8]) -> u64 {
    number(bytes, bytes.len() - TABLE_TAIL_BYTES + 16)
}

fn is_block(bytes: &[u8], salt: u64, place: Range<usize>) -> bool {
    let (content, trailer) = bytes[place.clone()].split_at(place.len() - 5);
    let sealed = checksum::block(salt, place.start as u64, trailer[0], content);
    trailer[1..] == sealed.to_le_bytes()
}

#[test]
fn forge_finds_every_part_and_sealing_is_idempotent() {
    use super::script::{End, sample};

    let sample = sample(End::Closed);
    for (name, good) in &sample.files {
        let parts = match name.rsplit('.').next() {
            Some("sst") => table_parts(good),
            Some("log") => log_parts(good),
            _ if name.starts_with("MANIFEST-") => log_parts(good),
            _ => continue,
        };
        let mut covered = 0;
        for part in &parts {
            let mut bytes = good.to_vec();
            part.seal(&mut bytes);
            assert_eq!(bytes, **good, "{name}: {part:?}");
            covered += part.place().len();
        }
        // Everything except padding and filters.
        assert!(covered + 64 * 7 + 7 * parts.len() > good.len(), "{name}: {parts:?}");
    }
}
