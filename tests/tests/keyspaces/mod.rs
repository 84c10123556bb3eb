//! Calls that concern whole keyspaces.

mod clear;
mod clear_threads;
mod dropped;
mod ends;
mod refresh;
mod rename;
mod repaired;
mod sizes;
mod threads;
