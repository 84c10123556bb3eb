//! Memory and false-positive rate of a filter of each size.

use std::sync::LazyLock;

use sievedb_filter::{FilterKind, params::BITS_PER_KEY_MAX};

use super::shape::{Residence, StoredFilter, TableShape};
use crate::filter_policy::FilterChoice;

/// Maximum number of columns of a ribbon.
const COLUMNS_MAX: f64 = 32.0;

/// Bytes of a ribbon outside of its columns: layers and rounding, estimated generously.
const RIBBON_BYTES: f64 = 448.0;

/// Additional bytes per key: two bits per 128 keys select the keys of the next layer.
const RIBBON_BYTES_PER_KEY: f64 = 1.0 / 512.0;

/// Minimum number of keys of a ribbon with a fraction of a column. A smaller ribbon has so few
/// blocks, of 64 keys, that rounding changes the fraction.
const FRACTION_KEYS_MIN: u64 = 1_024;

/// Minimum number of keys of a new blocked Bloom filter with a fraction of a bit per key. With
/// fewer, the fraction is less than a line.
const LINE_FRACTION_KEYS_MIN: f64 = 4_096.0;

/// Bytes of a line of a blocked Bloom filter.
pub(super) const LINE_BYTES: f64 = 64.0;

/// Possible sizes of a filter, from 0 to its largest. A size is a number of columns or of bits per
/// key, or 1 for a filter that is whole or absent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Curve {
    form: Form,
    /// The largest size.
    pub(super) size_max: f64,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    /// A filter that is whole or absent.
    Whole { bytes: f64, fpr: f64 },
    /// A ribbon, sized in columns.
    Ribbon { fixed_bytes: f64, column_bytes: f64, has_fractions: bool },
    /// A new blocked Bloom filter, sized in bits per key.
    Bloom { keys: f64 },
    /// A new binary fuse filter, sized in bits per key.
    Fuse { keys: f64 },
}

impl Curve {
    /// The curve without a filter.
    pub(super) const NOTHING: Self =
        Self { form: Form::Whole { bytes: 0.0, fpr: 1.0 }, size_max: 0.0 };

    /// Returns the sizes of the stored filter of `table`; of a ribbon, up to `columns_max` columns.
    pub(super) fn of_stored(table: &TableShape, columns_max: f64) -> Self {
        let Some(stored) = table.stored else { return Self::NOTHING };
        let StoredFilter { kind, columns, whole_bytes } = stored;
        let whole_bytes = whole_bytes.max(1) as f64;
        if kind == FilterKind::Ribbon && columns >= 1.0 {
            let fixed_bytes = ribbon_fixed_bytes(table.keys).min(whole_bytes / 2.0);
            let column_bytes = (whole_bytes - fixed_bytes) / columns;
            let has_fractions = table.keys >= FRACTION_KEYS_MIN;
            let form = Form::Ribbon { fixed_bytes, column_bytes, has_fractions };
            return Self { form, size_max: columns.min(columns_max.max(1.0)) };
        }
        let bits = (whole_bytes * 8.0 / table.keys.max(1) as f64).clamp(1e-3, BITS_PER_KEY_MAX);
        let fpr = kind.expected_fpr(bits).unwrap_or(1.0);
        Self { form: Form::Whole { bytes: whole_bytes, fpr }, size_max: 1.0 }
    }

    /// Returns the sizes of a new filter over `keys` keys, up to `bits_max` bits per key.
    pub(super) fn of_new(kind: FilterKind, keys: u64, bits_max: f64) -> Self {
        if bits_max <= 0.0 || keys == 0 {
            return Self::NOTHING;
        }
        let bits_max = bits_max.min(BITS_PER_KEY_MAX);
        let form = match kind {
            FilterKind::Ribbon if bits_max >= 1.0 => Form::Ribbon {
                fixed_bytes: ribbon_fixed_bytes(keys),
                column_bytes: keys as f64 / 8.0,
                has_fractions: true,
            },
            FilterKind::BinaryFuse => Form::Fuse { keys: keys as f64 },
            _ => Form::Bloom { keys: keys as f64 },
        };
        let size_max =
            if matches!(form, Form::Ribbon { .. }) { bits_max.min(COLUMNS_MAX) } else { bits_max };
        Self { form, size_max }
    }

    /// Calls `see` with sizes in ascending order, up to the largest. Between two of them every byte
    /// has the same value. `resident` is among them, unless it is 0.
    pub(super) fn for_each_size(&self, resident: f64, mut see: impl FnMut(f64)) {
        if self.size_max <= 0.0 {
            return;
        }
        let first = match self.form {
            Form::Whole { .. } => self.size_max,
            Form::Ribbon { .. } => 1.0,
            Form::Bloom { .. } => self.size_max.min(1.0),
            Form::Fuse { .. } => self.size_max.min(FUSE_BITS),
        };
        let step = if matches!(self.form, Form::Fuse { .. }) { FUSE_BITS } else { 1.0 };
        let mut before = 0.0;
        let mut size = first;
        loop {
            if before < resident && resident < size {
                see(resident);
            }
            see(size);
            if size >= self.size_max {
                return;
            }
            before = size;
            size = ((size / step).floor() * step + step).min(self.size_max);
        }
    }

    /// Returns the bytes in memory of a filter of this size; 0 for size 0.
    pub(super) fn bytes(&self, size: f64) -> f64 {
        if size <= 0.0 {
            return 0.0;
        }
        match self.form {
            Form::Whole { bytes, .. } => bytes,
            Form::Ribbon { fixed_bytes, column_bytes, .. } => fixed_bytes + size * column_bytes,
            Form::Bloom { keys } => (keys * size / (8.0 * LINE_BYTES)).ceil() * LINE_BYTES,
            Form::Fuse { keys } => {
                // As `sievedb_filter` builds them; the last segments are rounded up.
                let slots = keys * (0.875 + 3.454 / keys.max(16.0).ln()).max(1.125) + 64.0;
                slots * if size < 2.0 * FUSE_BITS { 1.0 } else { 2.0 }
            }
        }
    }

    /// Returns the expected false-positive rate at this size, from 0 to 1; 1 for size 0.
    pub(super) fn fpr(&self, size: f64) -> f64 {
        if size <= 0.0 {
            return 1.0;
        }
        match self.form {
            Form::Whole { fpr, .. } => fpr,
            Form::Ribbon { .. } => {
                FilterKind::Ribbon.expected_fpr(size).expect("tables have ribbons")
            }
            Form::Bloom { .. } => bloom_fpr(size),
            Form::Fuse { .. } => {
                FilterKind::BinaryFuse.expected_fpr(size).expect("tables have fuse filters")
            }
        }
    }

    /// Returns `true` if sizes between `size` and the next one are useful.
    pub(super) fn has_fractions_from(&self, size: f64) -> bool {
        match self.form {
            Form::Whole { .. } | Form::Fuse { .. } => false,
            Form::Ribbon { has_fractions, .. } => has_fractions && size >= 1.0,
            Form::Bloom { keys } => keys >= LINE_FRACTION_KEYS_MIN,
        }
    }

    /// Returns the size of the part in memory.
    pub(super) fn size_of(&self, resident: Residence) -> f64 {
        match resident {
            Residence::Nothing => 0.0,
            Residence::Columns(columns) => columns.min(self.size_max),
            Residence::Whole => self.size_max,
        }
    }
}

/// Bits per key of the smaller binary fuse filter; the larger one has twice as many.
const FUSE_BITS: f64 = 9.0;

fn ribbon_fixed_bytes(keys: u64) -> f64 {
    RIBBON_BYTES + keys as f64 * RIBBON_BYTES_PER_KEY
}

/// Returns the rate of a blocked Bloom filter, interpolated between whole bits. The exact rate
/// takes 100 exponentials; the interpolated one is at most 2 % higher.
fn bloom_fpr(bits: f64) -> f64 {
    static WHOLE: LazyLock<Vec<f64>> = LazyLock::new(|| {
        let rate = |bits| match bits {
            0 => 1.0,
            _ => FilterKind::BlockedBloom.expected_fpr(f64::from(bits)).expect("tables have them"),
        };
        (0..=BITS_PER_KEY_MAX as u32).map(rate).collect()
    });
    let below = (bits.floor() as usize).min(WHOLE.len() - 2);
    let fraction = bits - below as f64;
    WHOLE[below] * (1.0 - fraction) + WHOLE[below + 1] * fraction
}

/// Rounds down to a thousandth of a bit, as tables store it. A ribbon of less than one column
/// becomes a blocked Bloom filter.
pub(super) fn rounded(kind: FilterKind, bits_per_key: f64) -> FilterChoice {
    let bits_per_key = (bits_per_key * 1e3).floor() / 1e3;
    if kind == FilterKind::Ribbon && bits_per_key < 1.0 {
        return FilterChoice { kind: FilterKind::BlockedBloom, bits_per_key };
    }
    FilterChoice { kind, bits_per_key }
}
