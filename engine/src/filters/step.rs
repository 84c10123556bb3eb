//! The change of a filter in memory that a target requires. Pure.

use super::plan::Residence;
use crate::table::TableFilters;

/// A change of the filter of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Keep,
    Drop,
    /// Copy this number of columns in memory.
    Shrink(f64),
    /// Read this number of columns, or a whole filter without columns, from the file.
    Load(f64),
}

/// Returns the step from `filters` to `target`.
pub(super) fn step(filters: &TableFilters, target: Residence) -> Step {
    let is_resident = filters.point.resident().is_some();
    let columns = match target {
        Residence::Nothing if is_resident => return Step::Drop,
        Residence::Nothing => return Step::Keep,
        Residence::Columns(columns) => columns,
        Residence::Whole => f64::INFINITY,
    };
    let planned = filters.memory_bytes_at(columns);
    let found = filters.point.memory_bytes() as u64;
    if !is_resident {
        return if filters.available().is_some() { Step::Load(columns) } else { Step::Keep };
    }
    match planned.cmp(&found) {
        std::cmp::Ordering::Less => Step::Shrink(columns),
        std::cmp::Ordering::Equal => Step::Keep,
        std::cmp::Ordering::Greater => Step::Load(columns),
    }
}

/// Returns as many of `columns` columns as fit into `room` bytes, if memory has fewer.
pub(super) fn fitting(filters: &TableFilters, columns: f64, room: u64) -> Option<f64> {
    let (_, stored) = filters.available()?;
    let most = stored?.min(columns).floor() as u32; // A ribbon has few.
    let found = (1..=most).rev().map(f64::from).find(|&n| filters.memory_bytes_at(n) <= room)?;
    (filters.memory_bytes_at(found) > filters.point.memory_bytes() as u64).then_some(found)
}
