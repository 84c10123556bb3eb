//! File systems for tests.
//!
//! The engine's unit tests compile the directory `fs` as their own module, because this crate's
//! `sievedb` has different traits inside the engine.

#![expect(missing_docs, reason = "calls are named like the methods of the fs traits")]

mod fs;
#[cfg(test)]
mod tests;

pub use fs::{Call, Failure, Fault, FaultFs, InjectedPanic, Loss, MemoryFs, Operation, Times};
