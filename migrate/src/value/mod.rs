//! Values that are stored in other forms than plain bytes.

mod blob;
mod merge;
mod wide_columns;

pub(crate) use blob::{BlobFiles, BlobIndex};
pub use merge::{MergeOperator, StringAppend, UInt64Add};
pub(crate) use wide_columns::{DefaultColumn, default_column};
