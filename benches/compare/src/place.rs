//! The directory of a case: the main store, a copy of it, or an empty store.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{case::Store, failure::Result, process::entries, task::Task};

/// Directory name of the store written by the load.
const MAIN: &str = "main";

/// The directory of one store. Removed on drop, except for the main store.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    temporary: bool,
}

impl Place {
    /// Returns the place of `task`.
    pub(crate) fn of(task: &Task) -> Result<Self> {
        let main = task.folder.join(MAIN);
        match task.case.workload.store() {
            Store::Main => {
                empty(&main)?;
                Ok(Self { path: main, temporary: false })
            }
            Store::Shared => Ok(Self { path: main, temporary: false }),
            Store::Empty => {
                let path = task.folder.join("empty");
                empty(&path)?;
                Ok(Self { path, temporary: true })
            }
            Store::Copy => Self::copy(task, 0),
        }
    }

    /// Creates copy number `number` of the main store.
    pub(crate) fn copy(task: &Task, number: usize) -> Result<Self> {
        let path = task.folder.join(format!("copy-{number}"));
        empty(&path)?;
        let place = Self { path, temporary: true };
        copy(&task.folder.join(MAIN), &place.path)?;
        Ok(place)
    }

    /// Returns copy number `number`, which another process created and will remove.
    pub(crate) fn of_peer(task: &Task, number: usize) -> Self {
        Self { path: task.folder.join(format!("copy-{number}")), temporary: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.temporary {
            // The next case in this directory removes any remains.
            let _ = remove(&self.path);
        }
    }
}

/// Removes the remains of an earlier round.
#[expect(clippy::disallowed_methods, reason = "these are files of other engines too")]
fn empty(path: &Path) -> Result<()> {
    if path.exists() {
        remove(path)?;
    }
    Ok(fs::create_dir_all(path)?)
}

#[expect(clippy::disallowed_methods, reason = "these are files of other engines too")]
fn remove(path: &Path) -> Result<()> {
    Ok(fs::remove_dir_all(path)?)
}

#[expect(clippy::disallowed_methods, reason = "these are files of other engines too")]
fn copy(from: &Path, to: &Path) -> Result<()> {
    let listed = entries(from).map_err(|error| format!("{}: {error}", from.display()))?;
    for entry in listed {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            fs::create_dir(&to)?;
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        case::{Case, Workload},
        contestant::Contestant,
        settings,
    };

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes files")]
    fn copy_equals_the_main_store_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let task = |workload| {
            let case = Case::cached(workload);
            Task::new(Contestant::Sievedb, case, 0, folder.path(), &settings::small())
        };
        let main = Place::of(&task(Workload::Load)).unwrap();
        fs::create_dir(main.path().join("deep")).unwrap();
        fs::write(main.path().join("deep/file"), "1").unwrap();

        let copy = Place::of(&task(Workload::Overwrite)).unwrap();
        assert_ne!(copy.path(), main.path());
        assert_eq!(fs::read(copy.path().join("deep/file")).unwrap(), b"1");
        let path = copy.path().to_owned();
        drop(copy);
        assert!(!path.exists());
        drop(main);
        let shared = Place::of(&task(Workload::Hit)).unwrap();
        assert!(shared.path().join("deep/file").exists());
        let main = Place::of(&task(Workload::Load)).unwrap();
        assert!(!main.path().join("deep").exists());
    }
}
