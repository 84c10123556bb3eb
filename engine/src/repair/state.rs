//! State of a damaged store, from its manifest or rebuilt without one.

use std::{path::Path, sync::Arc};

use super::{
    lost::{check_lost, lost_as_none},
    rebuild::{Rebuilt, rebuild},
    stale::check_not_stale,
};
use crate::{
    Error, Result,
    file_name::FileName,
    fs::Fs,
    manifest::{
        load,
        load::{Loaded, load_newest},
    },
    store::verify::current_is_missing,
};

pub(super) struct State {
    pub(super) loaded: Loaded,
    /// Set if no manifest is usable.
    pub(super) rebuilt: Option<Rebuilt>,
    /// Error of `CURRENT`, if the only manifest is used without it.
    pub(super) current: Option<Error>,
    /// Error of the manifest, or of `CURRENT` if several manifests exist.
    pub(super) lost: Option<Error>,
}

/// Reads the manifest. Without `CURRENT`, uses the newest manifest if it is complete. Never uses a
/// manifest older than the one that `CURRENT` names, or than the newest one: its tables have older
/// values. Nor one whose last edits are lost.
///
/// # Errors
///
/// As [`Options::repair`](crate::Options::repair).
pub(super) fn read_state(fs: &Arc<dyn Fs>, folder: &Path, names: &[String]) -> Result<State> {
    let missing = || current_is_missing(folder);
    let whole = |loaded: Loaded| {
        check_not_stale(fs, folder, names, &loaded)?;
        Ok(loaded)
    };
    let loaded = load(&**fs, folder).and_then(|it| it.ok_or_else(missing)).and_then(whole);
    let error = match loaded {
        Ok(loaded) => return Ok(State { loaded, rebuilt: None, current: None, lost: None }),
        Err(error) => error,
    };
    check_lost(&error)?;
    if is_about_current(&error) {
        let newest = load_newest(&**fs, folder, names);
        let newest = newest.and_then(|newest| newest.map(whole).transpose());
        if let Some(loaded) = lost_as_none(newest)?.flatten() {
            let is_manifest =
                |name: &&String| matches!(FileName::parse(name), Some(FileName::Manifest(_)));
            let is_only_one = names.iter().filter(is_manifest).count() == 1;
            let (current, lost) =
                if is_only_one { (Some(error), None) } else { (None, Some(error)) };
            return Ok(State { loaded, rebuilt: None, current, lost });
        }
    }
    let Some(rebuilt) = rebuild(fs, folder, names)? else { return Err(error) };
    let loaded = rebuilt.loaded.clone();
    Ok(State { loaded, rebuilt: Some(rebuilt), current: None, lost: Some(error) })
}

fn is_about_current(error: &Error) -> bool {
    let (Error::Corrupt { path, .. } | Error::Io { path, .. }) = error else { return false };
    path.file_name().is_some_and(|name| name == "CURRENT")
}
