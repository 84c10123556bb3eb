//! Isolation of transactions: the checker of histories.

mod app_lock;
mod engine;
mod full_log;
mod properties;
mod reference;
mod scenario;
pub(crate) mod transactions;
