//! A payload with its checksums, which writers compute before they wait for a lock.

use std::ops::Range;

use bytes::Bytes;
use sievedb_format::{SequenceNumber, checksum::crc32};
use smallvec::SmallVec;

use super::{
    record::{FRAGMENT_BYTES_MAX, RecordType},
    transform::{Transform, to_lz4},
    values::LoggedValues,
};

/// Bytes of the total length at the start of the first fragment.
pub(crate) const TOTAL_BYTES: usize = size_of::<u64>();

/// A payload in its stored form, and the checksum of each of its fragments. Costs one pass over the
/// bytes.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    bytes: Bytes,
    transform: Transform,
    checksums: SmallVec<[u32; 1]>,
    /// Values stored outside of the record.
    values: Option<Box<LoggedValues>>,
}

#[derive(Debug, Clone)]
pub(crate) struct PendingRecord {
    /// Number of the first entry of the batch in a log, or of the edit in a manifest.
    pub(crate) sequence: SequenceNumber,
    pub(crate) payload: Payload,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) record_type: RecordType,
    /// Bytes of the payload.
    pub(super) range: Range<usize>,
}

impl Fragment {
    /// The first fragment also holds the total length.
    #[cfg(test)]
    pub(super) fn payload_bytes(&self) -> usize {
        let total = if self.record_type == RecordType::First { TOTAL_BYTES } else { 0 };
        self.range.len() + total
    }
}

impl Payload {
    /// Stores `bytes` unchanged.
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self::stored(bytes, Transform::None)
    }

    /// Stores the batch `bytes`, compressed if `compresses` is set and the batch has several
    /// `entries`. A single long value would be compressed here, and again in its table.
    pub(crate) fn of_batch(bytes: Bytes, entries: u64, compresses: bool) -> Self {
        if compresses && entries > 1 { Self::compressed(bytes) } else { Self::new(bytes) }
    }

    /// Compresses `bytes` by LZ4 if that saves at least one byte in eight.
    pub(crate) fn compressed(bytes: Bytes) -> Self {
        match to_lz4(&bytes) {
            Some(stored) => Self::stored(stored, Transform::Lz4),
            None => Self::new(bytes),
        }
    }

    /// Stores `bytes` without `values`, which are in blob files.
    pub(crate) fn without(bytes: &[u8], values: LoggedValues) -> Self {
        let stored = Self::stored(values.cut(bytes), Transform::Values);
        Self { values: Some(Box::new(values)), ..stored }
    }

    fn stored(bytes: Bytes, transform: Transform) -> Self {
        let total = (bytes.len() as u64).to_le_bytes();
        let checksum = |fragment: Fragment| {
            let part = &bytes[fragment.range.clone()];
            if fragment.record_type == RecordType::First {
                crc32(&[&total, part])
            } else {
                crc32(&[part])
            }
        };
        let checksums = fragments(bytes.len()).map(checksum).collect();
        Self { bytes, transform, checksums, values: None }
    }

    /// Returns the values stored outside of the record, if any.
    pub(crate) fn values(&self) -> Option<&LoggedValues> {
        self.values.as_deref()
    }

    /// Returns the stored form.
    pub(crate) const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the stored form.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    pub(super) const fn transform(&self) -> Transform {
        self.transform
    }

    #[cfg(test)]
    pub(crate) fn log_bytes(&self) -> u64 {
        fragments(self.bytes.len()).map(|part| record_bytes(part.payload_bytes()) as u64).sum()
    }

    pub(super) fn fragments(&self) -> impl Iterator<Item = (Fragment, u32)> + '_ {
        fragments(self.bytes.len()).zip(self.checksums.iter().copied())
    }
}

fn fragments(bytes: usize) -> impl Iterator<Item = Fragment> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let start = next?;
        let first_max = FRAGMENT_BYTES_MAX - TOTAL_BYTES;
        let (record_type, end) = match start {
            0 if bytes <= FRAGMENT_BYTES_MAX => (RecordType::Full, bytes),
            0 => (RecordType::First, first_max),
            _ if bytes - start <= FRAGMENT_BYTES_MAX => (RecordType::Last, bytes),
            _ => (RecordType::Middle, start + FRAGMENT_BYTES_MAX),
        };
        next = (end < bytes).then_some(end);
        Some(Fragment { record_type, range: start..end })
    })
}

#[cfg(test)]
use super::record::record_bytes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_split_at_the_limit() {
        use RecordType::{First, Full, Last, Middle};
        const MAX: usize = FRAGMENT_BYTES_MAX;
        type Parts<'a> = &'a [(RecordType, usize)];
        let cases: [(&str, usize, Parts<'_>); 6] = [
            ("nothing", 0, &[(Full, 0)]),
            ("one byte", 1, &[(Full, 1)]),
            ("the limit", MAX, &[(Full, MAX)]),
            ("one more", MAX + 1, &[(First, MAX), (Last, 9)]),
            ("two full", 2 * MAX - 8, &[(First, MAX), (Last, MAX)]),
            ("three", 2 * MAX, &[(First, MAX), (Middle, MAX), (Last, 8)]),
        ];
        for (name, bytes, want) in cases {
            let parts: Vec<_> = fragments(bytes).collect();
            let got: Vec<_> = parts.iter().map(|p| (p.record_type, p.payload_bytes())).collect();
            assert_eq!(got, want, "{name}");
            let mut end = 0;
            for part in parts {
                assert_eq!(part.range.start, end, "{name}");
                end = part.range.end;
            }
            assert_eq!(end, bytes, "{name}");
        }
    }
}
