//! Scenarios of the picker in `testdata/picker`, and comparisons with models.

mod amplification;
mod filtering;
mod picker;
mod ranges;
mod retain;
mod simulation;
