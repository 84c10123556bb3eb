//! A new file, or standard output.

use std::{
    io::{self, Write},
    path::Path,
};

use sievedb_migrate::export::OutputFile;

use crate::error::Result;

/// Destination of text.
pub(crate) enum Output<'a> {
    Stdout(&'a mut dyn Write),
    File(Box<OutputFile>),
}

impl<'a> Output<'a> {
    /// Creates the file `path`. Without one, returns `stdout`.
    pub(crate) fn new(path: Option<&Path>, stdout: &'a mut dyn Write) -> Result<Self> {
        Ok(match path {
            Some(path) => Self::File(Box::new(OutputFile::create(path)?)),
            None => Self::Stdout(stdout),
        })
    }

    /// Flushes the buffer. Makes a file durable under its final name.
    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Self::Stdout(out) => Ok(out.flush()?),
            Self::File(file) => Ok(file.finish()?),
        }
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File(file) => file.flush(),
        }
    }
}
