//! Isolation of transactions: the checker of histories.

mod properties;
mod reference;
mod scenario;
