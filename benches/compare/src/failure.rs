//! What stops a measurement.

/// Any error: of an engine, of the file system, or a wrong answer.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What may fail.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;
