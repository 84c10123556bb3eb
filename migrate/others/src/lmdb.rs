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

/// Most levels of a tree: `CURSOR_STACK` of LMDB.
const DEPTH_MAX: u16 = 32;

/// First page behind the two meta pages.
const FIRST_PAGE: u64 = 2;

/// An open environment.
pub(crate) struct Lmdb(Env<WithTls>);

/// Contents of an environment.
#[derive(Default)]
struct Contents {
    named: Vec<String>,
    /// Name of a database that heed cannot open, since it is not UTF-8.
    unreadable: Option<String>,
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
            let mut contents = Contents::default();
            let abort = CommitOrAbort::<(), _>::Abort;
            let Some(main) = opener.open_database::<Bytes, Bytes>(transaction, None)? else {
                return Ok(abort(contents));
            };
            for entry in main.iter(transaction)? {
                let (key, value) = entry?;
                let name = std::str::from_utf8(key).ok().filter(|name| !name.contains('\0'));
                if name.is_none() && is_database(value) {
                    contents.unreadable = Some(key.escape_ascii().to_string());
                }
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
            CommitOrAbort::Commit(()) => Contents::default(),
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
        let contents = self.contents().map_err(failed)?;
        let Contents { named: mut names, unreadable, has_unnamed } = contents;
        if let Some(name) = unreadable {
            let reason = "the name of a database is not UTF-8; copy it to one whose name is";
            return Err(Error::Unsupported { name, reason: reason.to_owned() });
        }
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

/// Returns `true` if `value` has the form of a record of a named database in the main database.
///
/// The record is `MDB_db` of LMDB on a machine of 64 bits: padding, flags and depth, in 4, 2 and 2
/// bytes, then the numbers of branch, leaf and overflow pages, the number of entries, and the root.
fn is_database(value: &[u8]) -> bool {
    let Ok(value) = <&[u8; 48]>::try_from(value) else { return false };
    let (words, _) = value.as_chunks::<8>();
    let [_, branches, leaves, _, entries, root] =
        [0, 1, 2, 3, 4, 5].map(|at| u64::from_ne_bytes(words[at]));
    let depth = u16::from_ne_bytes([value[6], value[7]]);
    match depth {
        0 => [branches, leaves, entries, root] == [0, 0, 0, u64::MAX],
        _ => depth <= DEPTH_MAX && (1..=entries).contains(&leaves) && root >= FIRST_PAGE,
    }
}

fn failed(error: heed::Error) -> Error {
    Error::of(ENGINE)(error.into())
}
