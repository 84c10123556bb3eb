//! Sessions of a web server: each expires some time after its last use.
//!
//! `cargo run -p sievedb --example session_store`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::{sync::Arc, time::Duration};

use sievedb::{Db, Keyspace, Options, TimeToLive, clock::ManualClock};

const TIME_TO_LIVE: Duration = Duration::from_secs(30 * 60);

/// Sessions by their token. Expired ones need no removal.
struct Sessions(Keyspace);

impl Sessions {
    fn begin(&self, token: &str, user: &str) -> sievedb::Result<()> {
        self.0.insert_with_ttl(token, user, TIME_TO_LIVE)
    }

    /// Returns the user of a session, and extends the session.
    fn user(&self, token: &str) -> sievedb::Result<Option<String>> {
        let Some(user) = self.0.get(token)? else { return Ok(None) };
        self.0.insert_with_ttl(token, &user, TIME_TO_LIVE)?;
        Ok(Some(String::from_utf8_lossy(&user).into_owned()))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    // A server uses the default clock. This one advances by hand.
    let clock = Arc::new(ManualClock::new());
    let db: Db = Options::new().clock(Arc::clone(&clock) as _).open(dir.path())?;
    let sessions = Sessions(db.keyspace("sessions")?);

    sessions.begin("71f0", "anna")?;
    sessions.begin("9b2c", "bert")?;
    clock.advance(Duration::from_secs(20 * 60));
    assert_eq!(sessions.user("71f0")?.as_deref(), Some("anna"));
    assert_eq!(sessions.0.ttl("71f0")?, Some(TimeToLive::Remaining(TIME_TO_LIVE)));

    clock.advance(Duration::from_secs(20 * 60));
    assert_eq!(sessions.user("9b2c")?, None, "not used for 40 minutes");
    assert_eq!(sessions.user("71f0")?.as_deref(), Some("anna"), "used 20 minutes ago");

    // A snapshot has a fixed clock: it sees the same sessions at any later time.
    let snapshot = db.snapshot().keyspace(&sessions.0)?;
    clock.advance(Duration::from_secs(3600));
    assert_eq!((sessions.0.iter().count(), snapshot.iter().count()), (0, 1));

    // Compactions free the space. They also run by themselves.
    drop(snapshot);
    db.compact()?;
    let entries: u64 = db.stats().levels.iter().map(|level| level.entries).sum();
    assert_eq!(entries, 0);
    println!("all sessions have expired, and their space is free");
    Ok(())
}
