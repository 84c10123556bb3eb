//! File systems for tests.
//!
//! The unit tests of the engine compile the directory `fs` as a module of their own: within the
//! engine, the traits of this crate's `sievedb` would be other traits.

#![expect(missing_docs, reason = "calls are named like the methods of the fs traits")]

mod fs;
#[cfg(test)]
mod tests;

pub use fs::{Call, Failure, Fault, FaultFs, InjectedPanic, Loss, MemoryFs, Operation, Times};
