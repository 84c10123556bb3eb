//! sled.

use std::path::Path;

use sled::{Config, Db};

use crate::{
    error::{Error, Result},
    source::{Add, Source},
};

const ENGINE: &str = "sled";

/// File that each database has.
const CONFIG: &str = "conf";

/// Name of the tree that each database has.
const DEFAULT_TREE: &[u8] = b"__sled__default";

/// Keyspace that the default tree becomes.
const DEFAULT: &str = sievedb::DEFAULT_KEYSPACE;

/// An open database.
pub(crate) struct Sled(Db);

impl Sled {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // sled would create a missing database.
        Error::check(ENGINE, path, &path.join(CONFIG))?;
        let opened = Config::default().path(path).open();
        Ok(Self(opened.map_err(|error| Error::of(ENGINE)(error.into()))?))
    }
}

impl Source for Sled {
    fn keyspaces(&self) -> Result<Vec<String>> {
        let mut names = vec![DEFAULT.to_owned()];
        for tree in self.0.tree_names() {
            if tree == DEFAULT_TREE {
                continue;
            }
            let unsupported = |reason: &str| Error::Unsupported {
                name: tree.escape_ascii().to_string(),
                reason: reason.to_owned(),
            };
            let name = std::str::from_utf8(&tree)
                .map_err(|_| unsupported("the name of the tree is not UTF-8"))?;
            if name == DEFAULT {
                return Err(unsupported("the default tree becomes the keyspace of this name"));
            }
            names.push(name.to_owned());
        }
        names.sort();
        Ok(names)
    }

    fn entries(&self, name: &str, add: &mut Add<'_>) -> Result<()> {
        let failed = |error: sled::Error| Error::of(ENGINE)(error.into());
        let tree = match name {
            DEFAULT => self.0.open_tree(DEFAULT_TREE),
            name => self.0.open_tree(name),
        };
        for entry in &tree.map_err(failed)? {
            let (key, value) = entry.map_err(failed)?;
            add(&key, &value)?;
        }
        Ok(())
    }
}
