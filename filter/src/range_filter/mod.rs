//! Range filter: "is any key in `a..=b` stored?", with a bound on the rate for any keys and
//! questions.
//!
//! Keys are points, integers of 64 bits. A hash that keeps neighbours together maps each point to a
//! code of a small universe; the sorted codes are compressed. Within a stretch of as many points as
//! the universe has codes the order is kept, so that a range of points is a range of codes, or two,
//! and the question is whether a code lies in between.
//!
//! | file         | what it holds                                          |
//! |--------------|--------------------------------------------------------|
//! | `coder`      | the hash                                               |
//! | `elias_fano` | sorted codes, compressed                               |
//! | `shape`      | how large the universe is for so many bits per key     |
//! | `key_points` | how byte strings become points                         |
//! | `stored`     | the payload of a filter block                          |
//!
//! # The bound
//!
//! With `B` bits per point, an empty range of `n` points is a "maybe" with a probability of about
//! `n / 2^(B - 2)`, at most 1.07 times that: 12.6 bits for 1 % and 16 points, a bit more or less
//! for each factor of two. It holds whatever the keys are and whichever ranges are asked for, as
//! long as nobody chooses them by the seed. It is the probability over all seeds: under one seed,
//! ranges that lie close to each other share their luck.
//!
//! Source: Costa, Ferragina and Vinciguerra, "Grafite: Taming Adversarial Queries with Optimal
//! Range Filters", Proceedings of the ACM on Management of Data 2(1), 2024 (SIGMOD).

use alloc::vec::Vec;
use core::fmt;

mod coder;
mod elias_fano;
mod key_points;
mod shape;
mod stored;

use coder::Coder;
use elias_fano::EliasFano;
use shape::Shape;

pub use key_points::{POINT_BYTES_MAX, PointCollector, Points};
pub use shape::{BITS_PER_KEY_MIN, POINTS_MAX};
pub(crate) use stored::{Header, Loading};

use crate::params::BITS_PER_KEY_MAX;

/// An immutable range filter.
#[derive(Clone)]
pub struct RangeFilter {
    coder: Coder,
    codes: EliasFano,
    shape: Shape,
    seed: u64,
    prefix_bytes: u64,
    point_bytes: u8,
    key_count: u64,
}

impl RangeFilter {
    /// A filter over these points, of `bits_per_key` bits for each different one, in memory.
    ///
    /// `seed` should be random: whoever knows it can ask for ranges that are always a "maybe".
    ///
    /// Takes no memory but that of the points and of the filter. About 30 ns a point: they are
    /// sorted anew by their codes.
    ///
    /// # Panics
    ///
    /// If `bits_per_key` is not from [`BITS_PER_KEY_MIN`] to [`BITS_PER_KEY_MAX`], or there are
    /// more than [`POINTS_MAX`] points.
    #[must_use]
    pub fn build(points: Points, bits_per_key: f64, seed: u64) -> Self {
        assert!(
            (BITS_PER_KEY_MIN..=BITS_PER_KEY_MAX).contains(&bits_per_key),
            "bits_per_key is {bits_per_key}"
        );
        let Points { prefix_bytes, point_bytes, mut points } = points;
        points.dedup();
        let key_count = points.len() as u64;
        assert!(key_count <= POINTS_MAX, "{key_count} points");
        let shape = Shape::new(key_count, bits_per_key);
        let coder = Coder::new(shape.universe, seed);
        let mut codes: Vec<u64> = points;
        codes.iter_mut().for_each(|point| *point = coder.code(*point));
        codes.sort_unstable();
        codes.dedup();
        let codes = EliasFano::build(&codes, shape);
        let (prefix_bytes, point_bytes) = (prefix_bytes as u64, point_bytes as u8); // At most 8.
        Self { coder, codes, shape, seed, prefix_bytes, point_bytes, key_count }
    }

    /// Returns `false` only if no point from `first` to `last`, both included, was added.
    ///
    /// Reads some three places in memory. A filter over no points always says `false`, and so does
    /// a range whose `last` is before its `first`.
    #[must_use]
    pub fn may_contain_range(&self, first: u64, last: u64) -> bool {
        if self.codes.is_empty() || last < first {
            return false;
        }
        let universe = self.shape.universe;
        if last - first >= universe {
            return true;
        }
        // Behind a multiple of the universe another stretch begins, with another place for it.
        let stretch = last - last % universe;
        if stretch <= first {
            return self.may_contain_codes(first, last);
        }
        self.may_contain_codes(first, stretch - 1) || self.may_contain_codes(stretch, last)
    }

    /// As [`may_contain_range`](Self::may_contain_range), for points of one stretch.
    fn may_contain_codes(&self, first: u64, last: u64) -> bool {
        let (first, last) = (self.coder.code(first), self.coder.code(last));
        if first <= last {
            return self.codes.any_in(first, last);
        }
        // The codes of a stretch go on at 0 behind the largest.
        self.codes.any_in(first, self.shape.universe - 1) || self.codes.any_in(0, last)
    }

    /// Bound on the false-positive rate, from 0 to 1, of empty ranges of `points` points: see [the
    /// bound](self#the-bound).
    #[must_use]
    pub fn expected_fpr(&self, points: u64) -> f64 {
        let expected = self.key_count as f64 * points as f64 / self.shape.universe as f64;
        expected.min(1.0)
    }

    /// Different points that were added.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Leading bytes of a key that are no part of its point: all keys must have them in common. 0
    /// if the points did not come from byte strings.
    #[must_use]
    pub fn prefix_bytes(&self) -> u64 {
        self.prefix_bytes
    }

    /// Bytes that the filter keeps in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.codes.memory_bytes()
    }

    /// Those of [`memory_bytes`](Self::memory_bytes) that its [arena](crate::FilterArena) counts as
    /// used.
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        self.codes.arena_bytes()
    }
}

/// Shows the shape, not the bits.
impl fmt::Debug for RangeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeFilter")
            .field("universe", &self.shape.universe)
            .field("keys", &self.key_count)
            .field("prefix_bytes", &self.prefix_bytes)
            .finish_non_exhaustive()
    }
}
