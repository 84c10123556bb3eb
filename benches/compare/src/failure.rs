//! Errors that abort a measurement.

/// Any error: of an engine, of the file system, or a wrong answer.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Result of a fallible operation.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;
