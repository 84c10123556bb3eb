//! Parts of `sieve bench`.

pub(crate) mod case;
mod chance;
pub(crate) mod cold;
pub(crate) mod dir;
pub(crate) mod fill;
pub(crate) mod fill_compacted;
pub(crate) mod levels;
pub(crate) mod lookups;
pub(crate) mod output;
pub(crate) mod page;
mod plot;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod promise;
pub(crate) mod read_mode;
pub(crate) mod report;
pub(crate) mod sweep;
pub(crate) mod threads;
