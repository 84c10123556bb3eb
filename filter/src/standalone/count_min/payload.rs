//! The saved payload of a count-min sketch.
//!
//! The [envelope](crate::saved) is around it. Integers are little-endian.
//!
//! | offset | bytes     | field      | meaning                                                     |
//! |--------|-----------|------------|-------------------------------------------------------------|
//! | 0      | 8         | `width`    | counters of a row, at least 1                               |
//! | 8      | 8         | `depth`    | rows, 1 to 64                                               |
//! | 16     | 8         | `total`    | all insertions                                              |
//! | 24     | 8         | `keys`     | insertions of keys with an estimate of 0                    |
//! | 32     | 4 × w × d | `counters` | row after row                                               |

use core::hash::BuildHasher;

use super::{CountMinSketch, DEPTH_MAX};
use crate::decode_error::DecodeError;
use crate::saved::{Payload, Reader, SavedKind, Writer};

impl<S: BuildHasher> Payload for CountMinSketch<S> {
    const KIND: SavedKind = SavedKind::CountMin;

    fn write_payload(&self, writer: &mut Writer) {
        writer.u64(self.width);
        writer.u64(self.depth.into());
        writer.u64(self.total);
        writer.u64(self.keys);
        self.counters.iter().for_each(|counter| writer.bytes(&counter.to_le_bytes()));
    }

    fn read_payload(reader: &mut Reader<'_>, hasher: S) -> Result<Self, DecodeError> {
        let width = reader.u64_in("sketch width", 1..=u64::MAX)?;
        let depth = reader.u64_in("sketch depth", 1..=DEPTH_MAX.into())? as u32; // At most 64.
        let total = reader.u64("sketch total")?;
        let keys = reader.u64("sketch keys")?;
        let need = width.saturating_mul(u64::from(depth) * size_of::<u32>() as u64);
        let (counters, _) = reader.bytes("sketch counters", need)?.as_chunks();
        let counters = counters.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        Ok(Self { counters, width, depth, total, keys, hasher })
    }
}
