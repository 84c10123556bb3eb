//! Figures and their bounds.

use std::error::Error;

use serde::{Deserialize, Serialize};

use crate::scale::Scale;

/// The figures of one run of a measurement.
pub(crate) type Measured = Result<Vec<Figure>, Box<dyn Error>>;

/// One measurement, which yields one or more figures.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// Number of the item in the issue.
    pub(crate) item: &'static str,
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// Measures.
    pub(crate) measure: fn(&Scale) -> Measured,
}

/// A measured figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Name, unique within the measurement.
    pub(crate) name: String,
    /// Unit, such as `ms` or `MiB`.
    pub(crate) unit: String,
    /// The measured value.
    pub(crate) value: f64,
    /// The bound that the value must keep, if the issue states one.
    pub(crate) bound: Option<Bound>,
}

/// A bound of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Bound {
    /// The largest value allowed.
    AtMost(f64),
    /// The smallest value allowed.
    AtLeast(f64),
}

impl Bound {
    /// Returns `true` if `value` keeps the bound.
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

impl Figure {
    /// A figure without a bound.
    pub(crate) fn new(name: impl Into<String>, unit: &str, value: f64) -> Self {
        Self { name: name.into(), unit: unit.to_owned(), value, bound: None }
    }

    /// The figure with an upper bound.
    pub(crate) fn at_most(mut self, bound: f64) -> Self {
        self.bound = Some(Bound::AtMost(bound));
        self
    }

    /// The figure with a lower bound.
    pub(crate) fn at_least(mut self, bound: f64) -> Self {
        self.bound = Some(Bound::AtLeast(bound));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_is_inclusive() {
        assert!(Bound::AtMost(2.0).holds(2.0) && !Bound::AtMost(2.0).holds(2.1));
        assert!(Bound::AtLeast(2.0).holds(2.0) && !Bound::AtLeast(2.0).holds(1.9));
    }
}
