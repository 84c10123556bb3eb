//! Check of a state after a crash.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use sievedb::{Db, Durability, Options};
use sievedb_doubles::{Loss, MemoryFs};

use crate::{
    case::Cut,
    history::{CrashPoint, History},
    model::{DEFAULT, Model},
    observe::observe,
    recorder::Recorder,
    rng::mix,
    settings::STORE_DIR,
};

/// Returns the options to open a store of an enumeration.
pub type Opening = dyn Fn(Arc<MemoryFs>) -> Options + Send + Sync;

/// Actions after a state proved legal, before the store is reopened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// No action.
    Reopen,
    /// A write.
    Write,
    /// A write, a flush and a compaction.
    Compact,
}

impl Cut {
    /// Returns the crash point of the history. Killing the process keeps all that the operating
    /// system has.
    #[must_use]
    pub fn point(&self) -> CrashPoint {
        let killed = self.loss == Loss::Nothing;
        let survives = if killed { Durability::OsBuffer } else { Durability::Disk };
        CrashPoint { at: self.at, survives }
    }

    fn after(&self) -> After {
        let lot = match self.loss {
            Loss::Nothing => 1,
            Loss::Everything => 2,
            Loss::Alone(number) => 3 + number as u64,
            Loss::Random { seed, .. } => seed,
        };
        match mix(mix(self.at as u64) ^ lot) % 8 {
            0 => After::Compact,
            1..=3 => After::Write,
            _ => After::Reopen,
        }
    }
}

/// Opens the store on `disk`, which `cut` left of a disk with `history`, and checks its contents.
/// Then continues to use it, and reopens it.
///
/// Returns the operations since the cut, for a second one.
///
/// # Errors
///
/// The violation. A panic of the store is one too.
pub fn check_state(
    opening: &Opening,
    disk: &Arc<MemoryFs>,
    history: &History,
    cut: Cut,
) -> Result<History, String> {
    guarded(|| {
        let options = opening(Arc::clone(disk));
        let mut recorder = Recorder::recover(Arc::clone(disk), options, history, cut.point())?;
        check_filters(recorder.db())?;
        recorder.number_values_from(1 << 32);
        match cut.after() {
            After::Reopen => {}
            After::Write => recorder.insert_with(DEFAULT, "a", 40, Durability::Disk),
            After::Compact => {
                recorder.insert(DEFAULT, "a", 40);
                recorder.remove(DEFAULT, "b");
                recorder.compact();
                recorder.check();
                recorder.wait_for_background();
                let report = recorder.db().verify().map_err(|error| format!("{error:?}"))?;
                if !report.is_good() {
                    return Err(report.to_string());
                }
            }
        }
        recorder.reopen();
        recorder.close();
        Ok(recorder.history().clone())
    })
}

/// No crash damages a filter: it is durable before and while the manifest names it.
fn check_filters(db: &Db) -> Result<(), String> {
    match db.stats().tables_with_unusable_filters {
        0 => Ok(()),
        count => Err(format!("{count} filters cannot be used")),
    }
}

/// Opens the store on `disk`, reads it and closes it.
fn read(opening: &Opening, disk: &Arc<MemoryFs>, history: &History) -> Result<Model, String> {
    let opened = opening(Arc::clone(disk)).open(STORE_DIR);
    let db = opened.map_err(|error| format!("the store cannot be opened: {error:?}"))?;
    check_filters(&db)?;
    observe(&db, history.keys()).map_err(|error| error.to_string())
}

/// Runs `check`; converts a panic to an error.
///
/// # Errors
///
/// The error of `check` or the message of the panic.
pub fn guarded<T>(check: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| Err(message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message"))
}

/// Checks the disk after a second cut. Recovery is repeated, so the state must equal that of
/// `history`, which starts at the first recovery.
///
/// # Errors
///
/// As [`check_state`].
pub fn check_second(
    opening: &Opening,
    disk: MemoryFs,
    history: &History,
    cut: Cut,
) -> Result<(), String> {
    guarded(|| {
        let disk = Arc::new(disk);
        let found = read(opening, &disk, history)?;
        history.check(&found, cut.point())?;
        let again = read(opening, &disk, history)?;
        if again != found {
            return Err(format!("opened again:\n{}", again.difference(&found, 12)));
        }
        Ok(())
    })
}
