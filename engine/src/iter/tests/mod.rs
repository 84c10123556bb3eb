//! Compares the layers of iterators with a model.

mod bounds;
mod merge;
pub(crate) mod model;
mod range;
mod run;
mod visible;
