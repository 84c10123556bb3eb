//! Tests plans for given shapes.

mod curve;
mod properties;
mod stories;
