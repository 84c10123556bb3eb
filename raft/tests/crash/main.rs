//! Crashes below the storage of openraft 0.9.

mod check;
mod history;
#[path = "line_0_9.rs"]
mod line;
mod node;
#[path = "../support/mod.rs"]
mod support;
mod tests;
mod workload;
