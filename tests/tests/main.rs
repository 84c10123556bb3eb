//! Tests of whole stores.

mod crash;
mod faults;
mod model;
mod planted;
