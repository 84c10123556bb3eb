//! Calls that concern whole keyspaces.

mod ends;
mod refresh;
mod threads;
