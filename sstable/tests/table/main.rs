//! Tests of the public API of tables: writes, reads and damage.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod advice;
mod allocations;
#[cfg(target_os = "linux")]
mod block_pages;
mod cached_blocks;
mod damage;
mod filled_filter;
mod golden;
mod lookup;
mod model;
mod prefix_filter;
mod range_filter;
mod scan_resistance;
mod support;
#[cfg(feature = "zstd")]
mod zstd;
