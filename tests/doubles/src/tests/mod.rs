//! Tests of the file systems.

mod crash;
mod fault;
mod kept;
mod random;
mod suite;
