//! Isolation of transactions: the checker of histories.

mod app_lock;
mod engine;
mod properties;
mod reference;
mod scenario;
