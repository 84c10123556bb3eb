//! Shapes in, plans out.

mod properties;
