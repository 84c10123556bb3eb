//! Values that expire.

mod basics;
mod default_ttl;
mod jump;
mod model;
mod space;
mod transactions;
