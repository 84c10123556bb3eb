//! fjall.

use std::path::Path;

use fjall::{Database, KeyspaceCreateOptions};

use crate::{
    error::{Error, Result},
    source::{Add, Source},
};

const ENGINE: &str = "fjall";

/// File that each database has.
const VERSION: &str = "version";

/// An open database.
pub(crate) struct Fjall(Database);

impl Fjall {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // fjall would create a missing database.
        Error::check(ENGINE, path, &path.join(VERSION))?;
        let opened = Database::builder(path).worker_threads(1).open();
        Ok(Self(opened.map_err(|error| Error::of(ENGINE)(error.into()))?))
    }
}

impl Source for Fjall {
    fn keyspaces(&self) -> Result<Vec<String>> {
        let mut names: Vec<_> =
            self.0.list_keyspace_names().iter().map(|name| name.to_string()).collect();
        names.sort();
        Ok(names)
    }

    fn entries(&self, name: &str, add: &mut Add<'_>) -> Result<()> {
        let failed = |error: fjall::Error| Error::of(ENGINE)(error.into());
        let keyspace = self.0.keyspace(name, KeyspaceCreateOptions::default).map_err(failed)?;
        for entry in keyspace.iter() {
            let (key, value) = entry.into_inner().map_err(failed)?;
            add(&key, &value)?;
        }
        Ok(())
    }
}
