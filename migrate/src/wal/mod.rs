//! Write-ahead logs. A manifest has the same format.

mod batch;
mod memtable;
mod reader;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use memtable::{LogEntry, Memtable};
pub(crate) use reader::LogReader;
pub(crate) use replay::Replay;
