//! Prices with a history: what a shop charged at any time of the last month.
//!
//! `cargo run -p sievedb --example history`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sievedb::{Error, HistoryLength, KeyspaceOptions, Options, clock::ManualClock};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    // A shop uses the default clock. This one advances by hand.
    let clock = Arc::new(ManualClock::new());
    let db = Options::new().clock(Arc::clone(&clock) as _).open(dir.path())?;
    let month = KeyspaceOptions::new().keep_history(HistoryLength::Time(30 * DAY));
    let prices = db.keyspace_with("prices", &month)?;

    let opening = SystemTime::UNIX_EPOCH;
    for (day, price) in [(0, "3.00"), (10, "3.20"), (25, "2.90")] {
        clock.advance((opening + day * DAY).duration_since(db_time(&clock))?);
        prices.insert("tea", price)?;
        prices.flush()?;
    }

    let then = prices.snapshot_at(opening + 12 * DAY)?;
    assert_eq!(then.get("tea")?, Some("3.20".into()));
    for version in prices.history("tea")? {
        let version = version?;
        let day = version.written_at.ok_or("the time is known")?.duration_since(opening)?;
        let price = version.value.unwrap_or_default();
        println!("day {:>2}: {}", day.as_secs() / DAY.as_secs(), String::from_utf8_lossy(&price));
    }

    // Two months later only the present price is left.
    clock.advance(60 * DAY);
    prices.compact()?;
    assert_eq!(prices.history("tea")?.count(), 1);
    let too_old = prices.snapshot_at(opening + 12 * DAY);
    assert!(matches!(too_old, Err(Error::NotInHistory { .. })));
    println!("after two months: {} version", prices.history("tea")?.count());
    Ok(())
}

fn db_time(clock: &ManualClock) -> SystemTime {
    SystemTime::UNIX_EPOCH + sievedb::clock::Clock::unix_time(clock)
}
