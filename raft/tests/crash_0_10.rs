//! Crashes below the storage of openraft 0.10.

#[path = "crash/check.rs"]
mod check;
#[path = "crash/history.rs"]
mod history;
#[path = "crash/node.rs"]
mod node;
#[path = "crash/series_0_10.rs"]
mod series;
#[path = "support/next.rs"]
mod support;
#[path = "crash/tests.rs"]
mod tests;
#[path = "crash/workload.rs"]
mod workload;
