//! Shapes in, plans out.

mod curve;
mod properties;
mod stories;
