//! Values that expire.

mod basics;
mod model;
mod space;
