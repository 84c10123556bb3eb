//! Filters of tables: plan, checks, and what each table should have.

mod check;
mod due;
mod new_table;
pub(crate) mod plan;

pub(crate) use check::{FilterChecks, FilterOwner};
pub(crate) use due::{DueFilter, FilterSettings, TableFacts, choice, due_filters};
pub(crate) use new_table::choose_filter;
