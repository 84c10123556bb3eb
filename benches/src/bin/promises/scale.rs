//! How much a measurement does.

use std::path::PathBuf;

/// Input size and working directory of a measurement.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    /// Use small inputs: seconds instead of minutes.
    pub(crate) small: bool,
    /// An empty directory that is removed afterwards.
    pub(crate) directory: PathBuf,
}

impl Scale {
    /// `full`, or `small` if small inputs are asked for.
    pub(crate) fn pick(&self, full: u64, small: u64) -> u64 {
        if self.small { small } else { full }
    }
}
