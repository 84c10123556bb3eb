//! Tests of whole stores, in one binary.

mod bottommost;
mod compression;
mod corruption;
mod crash;
mod faults;
mod filter_budget;
mod filter_files;
mod filter_plan;
mod full_disk;
mod insight;
mod lifetime;
mod limits;
mod listening;
mod locking;
mod lookups;
mod model;
mod planted;
mod prefix;
mod processes;
mod range_filter;
mod read_modes;
mod read_only;
mod scans;
mod stress;
mod tidy;
