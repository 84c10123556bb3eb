//! Tests of the file systems.

mod crash;
mod fault;
mod random;
mod suite;
