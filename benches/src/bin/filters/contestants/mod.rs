//! The structures measured: ours, and those of other crates.
//!
//! Each module has our structures of one kind, or those of one crate. It builds and probes them in
//! the best way that their documentation names, and defines the settings measured.

mod bloomfilter;
mod cuckoofilter;
mod fastbloom;
mod qfilter;
mod sbbf;
mod standalone;
mod table_filters;
mod xorf;

pub(crate) use self::sbbf::bits_for_rate as sbbf_bits_for_rate;

/// All structures, ours first.
pub(crate) const FAMILIES: [Family; 17] = [
    table_filters::BLOCKED_BLOOM,
    table_filters::RIBBON,
    table_filters::BINARY_FUSE_8,
    table_filters::BINARY_FUSE_16,
    standalone::BLOOM,
    standalone::ATOMIC_BLOOM,
    standalone::PARTITIONED_BLOOM,
    standalone::COUNTING_BLOOM,
    standalone::SCALABLE_BLOOM,
    standalone::CUCKOO,
    fastbloom::FAMILY,
    bloomfilter::FAMILY,
    sbbf::FAMILY,
    xorf::FAMILY_8,
    xorf::FAMILY_16,
    cuckoofilter::FAMILY,
    qfilter::FAMILY,
];

/// One structure with the settings measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) origin: Origin,
    pub(crate) given: Given,
    /// Settings of the rows of the table.
    pub(crate) settings: &'static [Setting],
    /// Returns the setting for a false-positive rate, if there is one; `None` if the structure has
    /// only the settings of the table.
    pub(crate) for_rate: Option<fn(f64) -> Option<f64>>,
    /// Builds the structure over hashes with the value of a setting.
    pub(crate) build: fn(&[u64], f64) -> Box<dyn Built>,
}

/// Author of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Ours,
    Crate,
}

/// Input of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    /// The hash of a key. Some mix it again.
    Hash,
    /// A key, which the structure hashes itself. It gets the 64-bit hash as a key, so its times
    /// include the hashing of 8 bytes.
    Key,
}

/// Size or precision of a structure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// In the structure's own unit: bits per key, columns, or a rate.
    pub(crate) value: f64,
}

impl Setting {
    const fn new(name: &'static str, value: f64) -> Self {
        Self { name, value }
    }
}

/// Settings of a structure configured by its false-positive rate.
const RATES: &[Setting] = &[Setting::new("1 %", 0.01), Setting::new("0.1 %", 0.001)];

/// Settings of a structure configured by bits per key.
const BITS: &[Setting] =
    &[Setting::new("10 bits", 10.0), Setting::new("12 bits", 12.0), Setting::new("16 bits", 16.0)];

/// Probes of a structure, inlined into the loops of [`Built`].
pub(crate) trait Structure {
    /// Returns `false` only if no key with this hash was added.
    fn may_contain(&self, hash: u64) -> bool;

    /// Probes all of `hashes` in batches of 32. Returns `false` if the structure has no batched
    /// call.
    fn answer_all(&self, _hashes: &[u64], _answers: &mut [bool]) -> bool {
        false
    }

    /// Returns the rate that the structure states, if any.
    fn expected_fpr(&self) -> Option<f64> {
        None
    }

    /// Returns the bytes of a table filter's stored form, including the trailer.
    fn stored_bytes(&self) -> Option<usize> {
        None
    }
}

/// A built structure of any type. One indirect call makes many probes.
pub(crate) trait Built {
    /// Returns the number of `hashes` that may match.
    fn count(&self, hashes: &[u64]) -> usize;

    /// See [`Structure::answer_all`].
    fn answer_all(&self, hashes: &[u64], answers: &mut [bool]) -> bool;

    /// See [`Structure::expected_fpr`].
    fn expected_fpr(&self) -> Option<f64>;

    /// See [`Structure::stored_bytes`].
    fn stored_bytes(&self) -> Option<usize>;
}

impl<T: Structure> Built for T {
    fn count(&self, hashes: &[u64]) -> usize {
        hashes.iter().filter(|&&hash| self.may_contain(hash)).count()
    }

    fn answer_all(&self, hashes: &[u64], answers: &mut [bool]) -> bool {
        Structure::answer_all(self, hashes, answers)
    }

    fn expected_fpr(&self) -> Option<f64> {
        Structure::expected_fpr(self)
    }

    fn stored_bytes(&self) -> Option<usize> {
        Structure::stored_bytes(self)
    }
}
