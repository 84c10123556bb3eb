//! LMDB.

use std::path::Path;

use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, MdbError, WithTls, types::Bytes,
};

use crate::{
    error::{Error, Result},
    source::{Add, Source},
};

const ENGINE: &str = "LMDB";

/// File that each environment has.
const DATA: &str = "data.mdb";

/// Keyspace that the unnamed database becomes.
const DEFAULT: &str = sievedb::DEFAULT_KEYSPACE;

/// Most named databases of an environment. Each takes about 100 bytes.
const DATABASES_MAX: u32 = 4096;

/// An open environment.
pub(crate) struct Lmdb(Env<WithTls>);

/// Contents of an environment.
struct Contents {
    named: Vec<String>,
    /// The unnamed database has entries besides the names of the others.
    has_unnamed: bool,
}

impl Lmdb {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Error::check(ENGINE, path, &path.join(DATA))?;
        let mut options = EnvOpenOptions::new();
        options.max_dbs(DATABASES_MAX);
        // SAFETY: a read-only environment writes no pages, so it loses no data.
        unsafe { options.flags(EnvFlags::READ_ONLY) };
        // SAFETY: the file is mapped, and must not be truncated meanwhile. The caller has closed
        // the database, and LMDB itself never truncates a file.
        let opened = unsafe { options.open(path) };
        Ok(Self(opened.map_err(failed)?))
    }

    fn contents(&self) -> Result<Contents, heed::Error> {
        let transaction = self.0.read_txn()?;
        // The abort of the transaction closes the databases again.
        let found = self.0.open_databases_and_commit(transaction, |opener, transaction| {
            let mut contents = Contents { named: Vec::new(), has_unnamed: false };
            let abort = CommitOrAbort::<(), _>::Abort;
            let Some(main) = opener.open_database::<Bytes, Bytes>(transaction, None)? else {
                return Ok(abort(contents));
            };
            for entry in main.iter(transaction)? {
                let name = std::str::from_utf8(entry?.0).ok().filter(|name| !name.contains('\0'));
                let opened =
                    name.map(|name| opener.open_database::<Bytes, Bytes>(transaction, Some(name)));
                match (name, opened) {
                    (Some(name), Some(Ok(Some(_)))) => contents.named.push(name.to_owned()),
                    (_, None | Some(Ok(None) | Err(heed::Error::Mdb(MdbError::Incompatible)))) => {
                        contents.has_unnamed = true;
                    }
                    (_, Some(Err(error))) => return Err(error),
                    (None, Some(Ok(Some(_)))) => {}
                }
            }
            Ok::<_, heed::Error>(abort(contents))
        });
        Ok(match found? {
            CommitOrAbort::Abort(contents) => contents,
            CommitOrAbort::Commit(()) => Contents { named: Vec::new(), has_unnamed: false },
        })
    }

    /// Opens a database, `None` for the unnamed one.
    fn database(&self, name: Option<&str>) -> Result<Database<'static, Bytes, Bytes>> {
        let transaction = self.0.read_txn().map_err(failed)?;
        let opened = self.0.open_databases_and_commit(transaction, |opener, transaction| {
            let opened = opener.open_database(transaction, name)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(opened))
        });
        let opened = opened.map_err(failed)?.commit().flatten();
        opened.ok_or_else(|| Error::of(ENGINE)("a database is missing".into()))
    }
}

impl Source for Lmdb {
    fn keyspaces(&self) -> Result<Vec<String>> {
        let Contents { named: mut names, has_unnamed } = self.contents().map_err(failed)?;
        if has_unnamed {
            if names.iter().any(|name| name == DEFAULT) {
                return Err(Error::Unsupported {
                    name: DEFAULT.to_owned(),
                    reason: "the unnamed database becomes the keyspace of this name".to_owned(),
                });
            }
            names.push(DEFAULT.to_owned());
        }
        names.sort();
        Ok(names)
    }

    fn entries(&self, name: &str, add: &mut Add<'_>) -> Result<()> {
        let Contents { named, .. } = self.contents().map_err(failed)?;
        let is_named = named.iter().any(|found| found == name);
        let database = self.database(is_named.then_some(name))?;
        let transaction = self.0.read_txn().map_err(failed)?;
        let mut last: Option<&[u8]> = None;
        for entry in database.iter(&transaction).map_err(failed)? {
            let (key, value) = entry.map_err(failed)?;
            if !is_named && named.iter().any(|name| name.as_bytes() == key) {
                continue;
            }
            if last == Some(key) {
                return Err(Error::Unsupported {
                    name: name.to_owned(),
                    reason: "a database with the flag `MDB_DUPSORT` has several values of a key"
                        .to_owned(),
                });
            }
            last = Some(key);
            add(key, value)?;
        }
        Ok(())
    }
}

fn failed(error: heed::Error) -> Error {
    Error::of(ENGINE)(error.into())
}
