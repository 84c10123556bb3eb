//! Test doubles of [`sievedb::fs`].
//!
//! | implementation | is                                                                           |
//! |----------------|------------------------------------------------------------------------------|
//! | [`MemoryFs`]   | a disk in memory that can crash after every operation, also with its process |
//! | [`FaultFs`]    | a wrapper of another file system, whose calls fail on demand                 |

mod crash;
mod disk;
mod disk_file;
mod fault;
mod fault_plan;
mod image;
mod journal;
mod kept;
mod memory;
pub(crate) mod random;

pub use crash::Loss;
pub use fault::FaultFs;
pub use fault_plan::{Call, Failure, Fault, InjectedPanic, Times};
pub use journal::Operation;
pub use memory::MemoryFs;
