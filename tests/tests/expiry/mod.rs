//! Values that expire.

mod basics;
mod default_ttl;
mod model;
mod space;
mod transactions;
