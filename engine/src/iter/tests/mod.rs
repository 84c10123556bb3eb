//! The layers against a model, and what each of them must not do.

mod bounds;
mod merge;
pub(crate) mod model;
mod range;
mod run;
mod visible;
