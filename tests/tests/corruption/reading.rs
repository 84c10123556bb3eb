//! All reads of a store, compared with the history.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sievedb::{Db, Error, Keyspace, ReadMode, Result};
use sievedb_doubles::MemoryFs;

use super::sample::{Files, KEYSPACES, STORE_DIR, Sample, State, disk, open};

/// Result of opening and reading a damaged store.
pub(super) enum Verdict {
    /// The open failed.
    Refused(Error),
    /// Every read returned an error or the result of the state with this number.
    Read { state: usize, errors: Vec<Error> },
}

impl Verdict {
    /// Opens the store in `files`, reads everything, and compares it with the states `legal` of the
    /// history, in this order.
    ///
    /// # Errors
    ///
    /// A result that matches none of these states.
    pub(super) fn of(
        sample: &Sample,
        files: &Files,
        mode: ReadMode,
        legal: &[usize],
    ) -> Result<Self, String> {
        let fs = disk(files);
        let db = match open(Arc::clone(&fs), mode) {
            Ok(db) => db,
            Err(error) => return Ok(Self::Refused(error)),
        };
        let readings = match read_all(sample, &db) {
            Ok(readings) => readings,
            Err(error) => return Ok(Self::Refused(error)),
        };
        let mut why = String::from("no state is legal");
        for &number in legal {
            let state = &sample.history[number];
            if let Err(difference) = compare(&readings, state) {
                why = format!("differs from state {number}: {difference}");
                continue;
            }
            let errors: Vec<_> = readings.into_iter().flat_map(Reading::errors).collect();
            let later = check_later(sample, fs, mode, db, (state, errors.is_empty()));
            later.map_err(|why| format!("after state {number}: {why}"))?;
            return Ok(Self::Read { state: number, errors });
        }
        Err(why)
    }

    /// # Errors
    ///
    /// An error that does not report damage to one of `damaged`.
    pub(super) fn check_errors(&self, sample: &Sample, damaged: &[&str]) -> Result<(), String> {
        match self {
            Self::Refused(error) => check_error(sample, error, damaged),
            Self::Read { errors, .. } => {
                errors.iter().try_for_each(|error| check_error(sample, error, damaged))
            }
        }
    }
}

/// Writes to a store that was opened with damage, and reopens it: truncated writes must not return,
/// and readable entries must remain.
fn check_later(
    sample: &Sample,
    fs: Arc<MemoryFs>,
    mode: ReadMode,
    db: Db,
    (state, is_whole): (&State, bool),
) -> Result<(), String> {
    let (key, mut state) = (b"written later", state.clone());
    // After detected damage the store may refuse writes.
    if db.insert(key, key).is_ok() {
        state[0].insert(key.to_vec(), key.to_vec());
    } else if is_whole {
        return Err("no write is possible".to_owned());
    }
    drop(db);
    match open(fs, mode) {
        Err(error) if is_whole => Err(format!("does not open again: {error:?}")),
        Err(_) => Ok(()),
        Ok(db) => {
            let readings = read_all(sample, &db).map_err(|error| format!("{error:?}"))?;
            compare(&readings, &state)
        }
    }
}

fn compare(readings: &[Reading], state: &State) -> Result<(), String> {
    readings.iter().zip(state).try_for_each(|(reading, want)| reading.compare(want))
}

fn check_error(sample: &Sample, error: &Error, damaged: &[&str]) -> Result<(), String> {
    let (Error::Corrupt { path, .. } | Error::Io { path, .. }) = error else {
        return Err(format!("the wrong error: {error:?}"));
    };
    let name = path.strip_prefix(STORE_DIR).ok().and_then(|name| name.to_str()).unwrap_or("");
    if !damaged.contains(&name) {
        return Err(format!("an error about {name:?} instead of {damaged:?}: {error:?}"));
    }
    let bytes = sample.files.get(name).map_or(0, Bytes::len) as u64;
    match error {
        // A longer file may report an error after its old end.
        Error::Corrupt { offset, .. } if *offset > bytes + 64 => {
            Err(format!("a place behind the end of {name}: {error:?}"))
        }
        _ => Ok(()),
    }
}

/// Entries in scan order, until an error, if any.
type Scan = (Vec<(Bytes, Bytes)>, Option<Error>);

/// All reads of a keyspace.
pub(super) struct Reading {
    gets: BTreeMap<Vec<u8>, Result<Option<Bytes>>>,
    /// Keys that `may_contain` rejects.
    ruled_out: Vec<Vec<u8>>,
    forward: Scan,
    backward: Scan,
}

pub(super) fn read_all(sample: &Sample, db: &Db) -> Result<Vec<Reading>> {
    let names = db.keyspaces().expect("it is open");
    let read = |(at, name): (usize, &&str)| {
        if !names.iter().any(|known| known == name) {
            // `Db::keyspace` would create it.
            return Ok(Reading::empty());
        }
        let keyspace = db.keyspace(name)?;
        Ok(Reading::new(&keyspace, sample.keys(at)))
    };
    KEYSPACES.iter().enumerate().map(read).collect()
}

impl Reading {
    fn empty() -> Self {
        let nothing = || (Vec::new(), None);
        let (forward, backward) = (nothing(), nothing());
        Self { gets: BTreeMap::new(), ruled_out: Vec::new(), forward, backward }
    }

    fn new(keyspace: &Keyspace, keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut reading = Self::empty();
        for key in keys {
            if !keyspace.may_contain(&key) {
                reading.ruled_out.push(key.clone());
            }
            let value = keyspace.get(&key);
            reading.gets.insert(key, value);
        }
        reading.forward = scan(keyspace.iter());
        reading.backward = scan(keyspace.iter().rev());
        reading
    }

    /// Returns whether each result is an error or that of `want`.
    fn compare(&self, want: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), String> {
        for (key, found) in &self.gets {
            if let Ok(found) = found
                && found.as_deref() != want.get(key).map(Vec::as_slice)
            {
                return Err(format!("get {key:?} is {found:?}"));
            }
        }
        if let Some(key) = self.ruled_out.iter().find(|key| want.contains_key(*key)) {
            return Err(format!("{key:?} was ruled out"));
        }
        compare_scan("scan", &self.forward, want.iter())?;
        compare_scan("reverse scan", &self.backward, want.iter().rev())
    }

    fn errors(self) -> impl Iterator<Item = Error> {
        let gets = self.gets.into_values().filter_map(Result::err);
        gets.chain(self.forward.1).chain(self.backward.1)
    }
}

fn scan(entries: impl Iterator<Item = Result<(Bytes, Bytes)>>) -> Scan {
    let mut found = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => found.push(entry),
            Err(error) => return (found, Some(error)),
        }
    }
    (found, None)
}

fn compare_scan<'a>(
    what: &str,
    (found, error): &Scan,
    mut want: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) -> Result<(), String> {
    for (key, value) in found {
        match want.next() {
            Some((k, v)) if *k == **key && *v == **value => {}
            other => return Err(format!("{what} has {key:?}, not {:?}", other.map(|(k, _)| k))),
        }
    }
    match want.next() {
        Some((key, _)) if error.is_none() => Err(format!("{what} lacks {key:?}")),
        _ => Ok(()),
    }
}
