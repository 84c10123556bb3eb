//! Values that expire.

mod basics;
mod conditional;
mod default_ttl;
mod jump;
mod model;
mod space;
mod transactions;
