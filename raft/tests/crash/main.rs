//! Crashes below the storage of openraft 0.9.

mod check;
mod history;
mod node;
#[path = "series_0_9.rs"]
mod series;
#[path = "../support/mod.rs"]
mod support;
mod tests;
mod workload;
