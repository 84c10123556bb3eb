//! Checkpoints: consistent copies of a store in use.

mod basics;
mod copying;
mod crash;
mod faults;
mod planted;
mod threads;
