//! Integration tests of SieveDB, in one binary.

mod corruption;
mod limits;
mod locking;
