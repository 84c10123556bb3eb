//! Selects the backups that a prune keeps. Pure.

use std::collections::BTreeSet;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Rules for the backups of each store that [`BackupSet::prune`](crate::BackupSet::prune) keeps. At
/// least one rule must have a count above 0. The newest backup is always kept.
///
/// Each rule keeps backups by itself: `daily(7)` keeps the newest backup of each of the last 7 days
/// that have one, in UTC. Weeks begin on Monday.
///
/// ```
/// let kept = sievedb::Retention::new().last(3).daily(7).weekly(4).monthly(12);
/// # let _ = kept;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct Retention {
    last: usize,
    daily: usize,
    weekly: usize,
    monthly: usize,
}

impl Retention {
    /// Returns a retention without a rule, which [`BackupSet::prune`](crate::BackupSet::prune)
    /// refuses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the last `count` backups. Default 0.
    pub fn last(mut self, count: usize) -> Self {
        self.last = count;
        self
    }

    /// Keeps the newest backup of each of the last `count` days that have one. Default 0.
    pub fn daily(mut self, count: usize) -> Self {
        self.daily = count;
        self
    }

    /// Keeps the newest backup of each of the last `count` weeks that have one. Default 0.
    pub fn weekly(mut self, count: usize) -> Self {
        self.weekly = count;
        self
    }

    /// Keeps the newest backup of each of the last `count` months that have one. Default 0.
    pub fn monthly(mut self, count: usize) -> Self {
        self.monthly = count;
        self
    }

    /// Returns `true` if a rule has a count above 0. Otherwise only the newest backup of each store
    /// would be kept.
    pub(super) fn has_rule(&self) -> bool {
        [self.last, self.daily, self.weekly, self.monthly].iter().any(|&count| count > 0)
    }

    /// Returns the numbers of the kept backups. `backups` are numbers and Unix times, ascending.
    pub(super) fn kept(&self, backups: &[(u64, u64)]) -> BTreeSet<u64> {
        let mut kept = BTreeSet::new();
        let newest = backups.iter().rev().map(|&(number, _)| number);
        kept.extend(newest.take(self.last.max(1)));
        // The first day of Unix time was a Thursday.
        let periods: [fn(u64) -> u64; 3] = [|day| day, |day| (day + 3) / 7, month];
        for (count, period) in [self.daily, self.weekly, self.monthly].into_iter().zip(periods) {
            let mut seen = BTreeSet::new();
            for &(number, time_ms) in backups.iter().rev() {
                let is_new = !seen.contains(&period(time_ms / DAY_MS));
                if is_new && seen.len() < count {
                    seen.insert(period(time_ms / DAY_MS));
                    kept.insert(number);
                }
            }
        }
        kept
    }
}

/// Returns the number of the month of a day of Unix time, both from 0.
fn month(day: u64) -> u64 {
    // Years begin in March, so that the leap day is the last day of a year.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    (era * 400 + year) * 12 + month
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_have_their_lengths() {
        let mut day = 0;
        for year in 1970..2110_u64 {
            let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year % 400 == 0);
            let february = if leap { 29 } else { 28 };
            for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                assert_eq!(month(day), month(day + days - 1), "day {day}");
                assert_eq!(month(day) + 1, month(day + days), "day {day}");
                day += days;
            }
        }
    }

    #[test]
    fn each_rule_keeps_the_newest_of_its_periods() {
        // Two backups per day for 100 days, beginning on a Thursday.
        let backups: Vec<_> = (0..200).map(|number| (number, number * DAY_MS / 2)).collect();
        let kept = |rule: Retention| rule.kept(&backups).into_iter().collect::<Vec<_>>();
        assert_eq!(kept(Retention::new().last(1)), [199]);
        assert_eq!(kept(Retention::new().last(3)), [197, 198, 199]);
        assert_eq!(kept(Retention::new().daily(3)), [195, 197, 199]);
        // Sundays are days 94 and 87.
        assert_eq!(kept(Retention::new().weekly(3)), [175, 189, 199]);
        // March is days 59 to 89.
        assert_eq!(kept(Retention::new().monthly(9)), [61, 117, 179, 199]);
        assert_eq!(Retention::new().daily(3).kept(&[]), BTreeSet::new());
    }
}
