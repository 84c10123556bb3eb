//! The file `STATS`: the statistics of a store for other processes.
//!
//! Lines of a name, a space and a number, or for `read_only` a text; the first names the format,
//! the last is `end`. An unknown name is ignored, and a missing one is 0. Nothing depends on the
//! file: it is never synced, and after a crash it may be missing, empty or truncated. An open store
//! is locked, so other processes, such as `sieve stats`, have no other source.
//!
//! | name               | what it is                                                              |
//! |--------------------|-------------------------------------------------------------------------|
//! | `open_us`          | [`Stats::open_for`], in microseconds                                    |
//! | `level.N.FIELD`    | a field of [`LevelStats`]                                               |
//! | `memory.FIELD`     | a field of [`MemoryStats`](super::MemoryStats)                          |
//! | `memory.budget_source` | the place in [`BudgetSource::ALL`]                                  |
//! | `moves.FIELD`      | a field of [`MemoryMoves`](super::MemoryMoves), or of one of its parts  |
//! | `writes.FIELD`     | a field of [`WriteStats`](super::WriteStats)                            |
//! | `read_only`        | [`Stats::read_only`], only if the store became read-only                |
//! | others             | the field of [`Stats`] or of one of its parts with this name            |

use std::{collections::BTreeMap, fmt::Write as _, path::Path, str::FromStr, time::Duration};

use sievedb_format::Corruption;

use super::{BudgetSource, LevelStats, Stats};
use crate::{Error, Result, file_name::FileName, fs::Fs, level_count::LEVELS};

const FIRST_LINE: &str = "sievedb statistics 1";
const LAST_LINE: &str = "end";
const BUDGET_SOURCE: &str = "memory.budget_source";
const READ_ONLY: &str = "read_only";
const CHANGES_KEPT_AFTER: &str = "changes_kept_after";
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads the statistics that the store in `dir` wrote last, without its lock: see
/// [`Options::stats_file_interval`](crate::Options::stats_file_interval). Returns `None` if there
/// are none. Keyspaces, quarantined tables and the duration of opening are not included.
///
/// # Errors
///
/// [`Error::Io`]; [`Error::Corrupt`] if the file is incomplete.
pub fn read_stats_file(fs: &dyn Fs, dir: &Path) -> Result<Option<Stats>> {
    let path = FileName::Stats.path(dir);
    let io = |error| Error::io("read", &path, error);
    if !fs.exists(&path).map_err(io)? {
        return Ok(None);
    }
    let file = fs.open(&path).map_err(io)?;
    let length = file.len().map_err(io)?;
    let corrupt = |source| Error::corrupt(&path, 0, source);
    if length > FILE_BYTES_MAX {
        let what = "bytes of the statistics";
        return Err(corrupt(Corruption::OutOfRange { what, value: length }));
    }
    let mut bytes = vec![0; length as usize];
    file.read_at(&mut bytes, 0).map_err(io)?;
    let stats = str::from_utf8(&bytes).ok().and_then(decode);
    stats.map(Some).ok_or_else(|| corrupt(Corruption::Missing { what: "end of the statistics" }))
}

pub(crate) fn encode(stats: &Stats) -> String {
    let mut stats = stats.clone();
    let mut text = format!("{FIRST_LINE}\nopen_us {}\n", stats.open_for.as_micros());
    let mut line = |name: &str, number: &dyn std::fmt::Display| {
        writeln!(text, "{name} {number}").expect("a string takes everything");
    };
    line("false_positives_planned", &stats.false_positives_planned);
    if let Some(source) = stats.memory.budget_source {
        let place = BudgetSource::ALL.iter().position(|&known| known == source);
        line(BUDGET_SOURCE, &place.expect("it lists all"));
    }
    if let Some(cause) = &stats.read_only {
        line(READ_ONLY, &cause.replace(['\n', '\r'], " "));
    }
    if let Some(after) = &stats.changes_kept_after {
        line(CHANGES_KEPT_AFTER, after);
    }
    for of in [Stats::held_mut, Stats::counted_mut] {
        for (name, number) in of(&mut stats) {
            line(name, number);
        }
    }
    for (at, level) in stats.levels.iter_mut().enumerate() {
        let name = |field: &str| format!("level.{at}.{field}");
        line(&name("filter_fpr_expected"), &level.filter_fpr_expected);
        line(&name("false_positives_expected"), &level.false_positives_expected);
        for of in [LevelStats::held_mut, LevelStats::counted_mut] {
            for (field, number) in of(level) {
                line(&name(field), number);
            }
        }
    }
    text + LAST_LINE + "\n"
}

/// Returns `None` if `text` is incomplete.
fn decode(text: &str) -> Option<Stats> {
    let lines = text.strip_prefix(FIRST_LINE)?.strip_prefix('\n')?;
    let lines = lines.strip_suffix('\n')?.strip_suffix(LAST_LINE)?;
    let pairs: Option<BTreeMap<&str, &str>> =
        lines.lines().map(|line| line.split_once(' ')).collect();
    let numbers = Numbers(pairs?);
    let mut stats = Stats {
        open_for: Duration::from_micros(numbers.get("open_us")?),
        false_positives_planned: numbers.get("false_positives_planned")?,
        read_only: numbers.0.get(READ_ONLY).map(|&cause| cause.to_owned()),
        levels: vec![LevelStats::default(); LEVELS],
        ..Stats::default()
    };
    if numbers.0.contains_key(CHANGES_KEPT_AFTER) {
        stats.changes_kept_after = Some(numbers.get(CHANGES_KEPT_AFTER)?);
    }
    if let Some(place) = numbers.0.get(BUDGET_SOURCE) {
        let place: usize = place.parse().ok()?;
        stats.memory.budget_source = BudgetSource::ALL.get(place).copied();
    }
    for of in [Stats::held_mut, Stats::counted_mut] {
        for (name, number) in of(&mut stats) {
            *number = numbers.get(name)?;
        }
    }
    for (at, level) in stats.levels.iter_mut().enumerate() {
        let name = |field: &str| format!("level.{at}.{field}");
        level.filter_fpr_expected = numbers.get(&name("filter_fpr_expected"))?;
        level.false_positives_expected = numbers.get(&name("false_positives_expected"))?;
        for of in [LevelStats::held_mut, LevelStats::counted_mut] {
            for (field, number) in of(level) {
                *number = numbers.get(&name(field))?;
            }
        }
    }
    Some(stats)
}

struct Numbers<'t>(BTreeMap<&'t str, &'t str>);

impl Numbers<'_> {
    /// Returns 0 for a missing name, and `None` for a malformed number.
    fn get<N: FromStr + Default>(&self, name: &str) -> Option<N> {
        self.0.get(name).map_or_else(|| Some(N::default()), |text| text.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Statistics in which every number is another one.
    fn sample() -> Stats {
        let levels = vec![LevelStats::default(); LEVELS];
        let mut stats = Stats { open_for: Duration::from_micros(77), levels, ..Stats::default() };
        let mut next = 1;
        let mut number = |place: &mut u64| {
            *place = next;
            next += 1;
        };
        for of in [Stats::held_mut, Stats::counted_mut] {
            of(&mut stats).into_iter().for_each(|(_, place)| number(place));
        }
        for level in &mut stats.levels {
            for of in [LevelStats::held_mut, LevelStats::counted_mut] {
                of(level).into_iter().for_each(|(_, place)| number(place));
            }
            level.filter_fpr_expected = 1.0 / level.runs as f64;
            level.false_positives_expected = 0.1 + level.runs as f64;
        }
        stats.memory.budget_source = Some(BudgetSource::ControlGroup);
        stats.read_only = Some("cannot sync a b.log: I/O error".to_owned());
        stats.changes_kept_after = Some(0);
        stats
    }

    #[test]
    fn statistics_return() {
        let stats = sample();
        let text = encode(&stats);
        assert_eq!(format!("{:?}", decode(&text).unwrap()), format!("{stats:?}"));
        let lines = Stats { read_only: Some("cannot sync a\nb".to_owned()), ..sample() };
        let read = decode(&encode(&lines)).unwrap();
        assert_eq!(read.read_only.as_deref(), Some("cannot sync a b"));
        let names: BTreeSet<_> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        assert_eq!(names.len(), text.lines().count() - 1, "a name stands twice:\n{text}");
    }

    #[test]
    fn other_releases_are_understood_and_cut_files_are_not() {
        let text = encode(&sample());
        let newer = text.replace("lookups ", "lookups_of_old ");
        assert_eq!(decode(&newer).unwrap().lookups.lookups, 0);
        let older = text.replace("memory.budget_source ", "memory.budget_source_of_old ");
        assert_eq!(decode(&older).unwrap().memory.budget_source, None);
        let newer = text.replace("memory.budget_source ", "memory.budget_source 1000");
        assert_eq!(decode(&newer).unwrap().memory.budget_source, None);
        for length in 0..text.len() {
            assert!(decode(&text[..length]).is_none(), "{length} bytes");
        }
        assert!(decode(&text.replace("\nlookups ", "\nlookups x")).is_none());
        assert!(decode(&text.replace("statistics 1", "statistics 2")).is_none());
    }
}
