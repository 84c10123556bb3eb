//! Times to live and points in time as arguments.

use std::{
    str::FromStr,
    time::{Duration, SystemTime},
};

use sievedb::PointInTime;

/// The word for no expiry.
pub(crate) const NONE: &str = "none";

/// Suffixes and the seconds of their unit.
const UNITS: [(char, f64); 4] = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86_400.0)];

/// A time to live as an argument: seconds, a number with a unit such as `90s`, `5m`, `12h` or `7d`,
/// or `none`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ttl(pub(crate) Option<Duration>);

impl FromStr for Ttl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const REASON: &str = "write seconds, or a number with s, m, h or d, or `none`";
        if text == NONE {
            return Ok(Self(None));
        }
        let unit = UNITS.into_iter().find(|(suffix, _)| text.ends_with(*suffix));
        let (number, seconds) = match unit {
            Some((suffix, seconds)) => (text.strip_suffix(suffix).unwrap_or(text), seconds),
            None => (text, 1.0),
        };
        let number: f64 = number.parse().map_err(|_| REASON)?;
        let duration = Duration::try_from_secs_f64(number * seconds).map_err(|_| REASON)?;
        Ok(Self(Some(duration)))
    }
}

/// A point in the history of a store as an argument: a sequence number, or a Unix time in seconds
/// behind an `@`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point(pub(crate) PointInTime);

impl FromStr for Point {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const REASON: &str = "write a sequence number, or `@` and a Unix time in seconds";
        let point = match text.strip_prefix('@') {
            Some(seconds) => {
                let UnixTime(time) = seconds.parse().map_err(|_| REASON)?;
                time.into()
            }
            None => text.parse::<u64>().map_err(|_| REASON)?.into(),
        };
        Ok(Self(point))
    }
}

/// A Unix time in seconds as an argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct UnixTime(pub(crate) SystemTime);

impl FromStr for UnixTime {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const REASON: &str = "write a Unix time in seconds";
        let seconds = text.parse().map_err(|_| REASON)?;
        let since = Duration::try_from_secs_f64(seconds).map_err(|_| REASON)?;
        SystemTime::UNIX_EPOCH.checked_add(since).map(Self).ok_or(REASON)
    }
}

/// Returns `time` as Unix time in seconds.
pub(crate) fn unix_seconds(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}.{:03}", since.as_secs(), since.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_sequence_numbers_or_times() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1500);
        assert_eq!("@1.5".parse(), Ok(Point(time.into())));
        assert_eq!("7".parse(), Ok(Point(7.into())));
        for text in ["", "@", "-1", "@-1", "1.5", "@nan", "@1e99", "now"] {
            assert!(text.parse::<Point>().is_err(), "{text}");
        }
        assert_eq!(unix_seconds(time), "1.500");
    }

    #[test]
    fn times_have_units() {
        let cases = [
            ("90", 90.0),
            ("0", 0.0),
            ("1.5s", 1.5),
            ("5m", 300.0),
            ("0.5h", 1800.0),
            ("7d", 604_800.0),
        ];
        for (text, want) in cases {
            let ttl: Ttl = text.parse().unwrap();
            assert_eq!(ttl.0.map(|ttl| ttl.as_secs_f64()), Some(want), "{text}");
        }
        assert_eq!("none".parse(), Ok(Ttl(None)));
        for text in ["", "s", "-1", "1w", "1 h", "5ms", "1ss", "nan", "inf", "1e99"] {
            assert!(text.parse::<Ttl>().is_err(), "{text}");
        }
    }
}
