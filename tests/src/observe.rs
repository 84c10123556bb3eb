//! Contents of a store, read in every way.

use std::{collections::BTreeSet, fmt};

use bytes::Bytes;
use sievedb::{Db, Error, Keyspace};

use crate::{
    filtered::outdated,
    history::Universe,
    model::{Change, DEFAULT, Entries, Model, Name, shown},
};

/// A failure to read a store, or inconsistent reads.
#[derive(Debug)]
pub enum Unreadable {
    /// A call failed.
    Error(Error),
    /// Two ways to read return different results.
    Contradiction(String),
}

impl From<Error> for Unreadable {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "the store cannot be read: {error:?}"),
            Self::Contradiction(text) => write!(f, "the store contradicts itself: {text}"),
        }
    }
}

/// Returns a handle of the existing keyspace `name`.
///
/// # Errors
///
/// As [`Db::keyspace`].
pub fn keyspace(db: &Db, name: &str) -> Result<Keyspace, Error> {
    if name == DEFAULT { Ok(db.default_keyspace().clone()) } else { db.keyspace(name) }
}

/// Reads all of `db`: forwards, backwards, by prefixes, and each key of `universe`.
///
/// # Errors
///
/// If a call fails, or two ways to read differ.
pub fn observe(db: &Db, universe: &Universe) -> Result<Model, Unreadable> {
    let mut model = Model::nothing();
    for name in db.keyspaces().expect("it is open") {
        let name = Name::from(name);
        model.apply(&Change::Create { keyspace: name.clone() });
        let handle = keyspace(db, &name)?;
        let entries: Entries = read_both_ways(&name, &handle)?.into_iter().collect();
        if let Some(key) = outdated(&entries) {
            let text = format!("{name} has an older value of {} than of its mark", shown(key));
            return Err(Unreadable::Contradiction(text));
        }
        for (key, value) in entries.clone() {
            model.apply(&Change::Put { keyspace: name.clone(), key, value });
        }
        let Some(keys) = universe.get(&name) else { continue };
        let scanned = entries.keys().filter(|key| !keys.contains(*key));
        for key in keys.iter().chain(scanned) {
            ask_for(&name, &handle, key, entries.get(key))?;
        }
        let prefixes: BTreeSet<_> = keys.iter().map(|key| &key[..key.len().min(4)]).collect();
        for prefix in prefixes {
            let with_prefix = entries.iter().filter(|(key, _)| key.starts_with(prefix));
            let scanned = handle.prefix(prefix).collect::<Result<Vec<_>, _>>()?;
            if !with_prefix.eq(scanned.iter().map(|(key, value)| (key, value))) {
                let (found, prefix) = (scanned.len(), shown(prefix));
                let text = format!("{name} has {found} entries that begin with {prefix}");
                return Err(Unreadable::Contradiction(text));
            }
        }
    }
    Ok(model)
}

fn read_both_ways(name: &str, handle: &Keyspace) -> Result<Vec<(Bytes, Bytes)>, Unreadable> {
    let forwards = handle.iter().collect::<Result<Vec<_>, _>>()?;
    let mut backwards = handle.iter().rev().collect::<Result<Vec<_>, _>>()?;
    backwards.reverse();
    if forwards != backwards {
        let text = format!(
            "{name} has {} entries forwards and {} backwards",
            forwards.len(),
            backwards.len()
        );
        return Err(Unreadable::Contradiction(text));
    }
    if let Some([left, right]) = forwards.array_windows().find(|[left, right]| left.0 >= right.0) {
        let text = format!("{name} yields {} before {}", shown(&left.0), shown(&right.0));
        return Err(Unreadable::Contradiction(text));
    }
    Ok(forwards)
}

/// Looks up a key in each way, and compares the results with that of a scan.
fn ask_for(
    name: &str,
    handle: &Keyspace,
    key: &Bytes,
    scanned: Option<&Bytes>,
) -> Result<(), Unreadable> {
    let got = handle.get(key)?;
    let contained = handle.contains_key(key)?;
    let maybe = handle.may_contain(key);
    let agree = got.as_ref() == scanned && contained == got.is_some() && (maybe || !contained);
    if agree {
        return Ok(());
    }
    let value = |value: Option<&Bytes>| value.map_or("nothing".to_owned(), |value| shown(value));
    Err(Unreadable::Contradiction(format!(
        "{name} {}: a scan returns {}, get {}, contains_key {contained}, may_contain {maybe}",
        shown(key),
        value(scanned),
        value(got.as_ref())
    )))
}
