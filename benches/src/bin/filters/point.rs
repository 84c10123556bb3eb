//! A structure at one rate: a row of the space table, and a point of the plot.

use serde::Serialize;

use crate::measure::Space;

/// A structure at one rate.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Point {
    pub(crate) structure: &'static str,
    /// Configured rate; `None` for a structure with fixed settings.
    pub(crate) rate_asked: Option<f64>,
    #[serde(flatten)]
    pub(crate) space: Space,
}

impl Point {
    /// Returns the actual rate, at which the plot draws it.
    pub(crate) fn rate(&self) -> f64 {
        self.space.fpr_expected.unwrap_or(self.space.fpr_measured)
    }
}
