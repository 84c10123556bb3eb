//! Known figures, and those measured here.

use serde::Serialize;

use crate::text;

/// One figure of an experiment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) what: String,
    /// From the literature or by calculation; empty if unknown.
    pub(crate) known: String,
    pub(crate) here: String,
}

impl Figure {
    pub(crate) fn new(
        what: impl Into<String>,
        known: impl Into<String>,
        here: impl Into<String>,
    ) -> Self {
        Self { what: what.into(), known: known.into(), here: here.into() }
    }
}

/// The figures as a table.
pub(crate) fn table(figures: &[Figure]) -> String {
    let cells = |figure: &Figure| {
        let known = if figure.known.is_empty() { "–" } else { &figure.known };
        vec![figure.what.clone(), known.to_owned(), figure.here.clone()]
    };
    text::table(&["", "known", "here"], 1, figures.iter().map(cells).collect())
}
