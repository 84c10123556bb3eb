//! The equations of a bucket, field by field, for SIMD loads.

use alloc::vec::Vec;

use super::row::Row;

/// Equations sorted by start.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowVec {
    starts: Vec<u64>,
    coefficients: Vec<u64>,
    fingerprints: Vec<u32>,
}

impl RowVec {
    pub(crate) fn clear(&mut self) {
        self.starts.clear();
        self.coefficients.clear();
        self.fingerprints.clear();
    }

    pub(crate) fn as_rows(&self) -> Rows<'_> {
        Rows {
            starts: &self.starts,
            coefficients: &self.coefficients,
            fingerprints: &self.fingerprints,
        }
    }
}

impl Extend<Row> for RowVec {
    fn extend<I: IntoIterator<Item = Row>>(&mut self, rows: I) {
        for Row { start, coefficients, fingerprint } in rows {
            self.starts.push(start);
            self.coefficients.push(coefficients);
            self.fingerprints.push(fingerprint);
        }
    }
}

/// A part of a [`RowVec`]. All fields have the same length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) starts: &'a [u64],
    pub(crate) coefficients: &'a [u64],
    pub(crate) fingerprints: &'a [u32],
}

impl Rows<'_> {
    pub(crate) fn split_at(self, count: usize) -> (Self, Self) {
        let (starts, later_starts) = self.starts.split_at(count);
        let (coefficients, later_coefficients) = self.coefficients.split_at(count);
        let (fingerprints, later_fingerprints) = self.fingerprints.split_at(count);
        (
            Self { starts, coefficients, fingerprints },
            Self {
                starts: later_starts,
                coefficients: later_coefficients,
                fingerprints: later_fingerprints,
            },
        )
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Row> {
        let starts = self.starts.iter().zip(self.coefficients).zip(self.fingerprints);
        starts.map(|((&start, &coefficients), &fingerprint)| Row {
            start,
            coefficients,
            fingerprint,
        })
    }
}
