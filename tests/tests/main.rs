//! Integration tests of SieveDB, in one binary.

mod corruption;
mod lifetime;
mod limits;
mod locking;
mod stress;
mod tidy;
