//! Names of read modes.

use std::{fmt, str::FromStr};

use sievedb::ReadMode;

/// A read mode as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadModeArg(pub(crate) ReadMode);

const NAMES: [(&str, ReadMode); 3] =
    [("pread", ReadMode::Pread), ("map", ReadMode::Map), ("direct", ReadMode::Direct)];

impl FromStr for ReadModeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, mode)| Self(*mode)).ok_or_else(|| {
            let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("{text:?} is not one of {}", names.join(", "))
        })
    }
}

impl fmt::Display for ReadModeArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = NAMES.iter().find(|(_, mode)| *mode == self.0);
        f.write_str(found.map_or("unknown", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed() {
        for (name, mode) in NAMES {
            assert_eq!(name.parse(), Ok(ReadModeArg(mode)));
            assert_eq!(ReadModeArg(mode).to_string(), name);
        }
        assert!("mmap".parse::<ReadModeArg>().is_err());
    }
}
