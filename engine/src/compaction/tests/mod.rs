//! The picker as stories in `testdata/picker`, and everything else against models.

mod picker;
mod retain;
mod simulation;
