//! Reading calls, and the comparison of everything.

use std::time::Duration;

use bytes::Bytes;
use sievedb::{Db, Error, Keyspace, Result, TimeToLive};
use sievedb_tests::model::{Name, shown};

use super::{
    failures::milliseconds,
    history::{Found, difference},
    model::{Contents, Seen},
    story::Story,
};

/// Converts the result of a read of one key.
pub(super) fn seen(got: Result<Option<Bytes>>) -> Result<Option<Seen>> {
    match got {
        Ok(value) => Ok(value.map(Seen::Value)),
        Err(Error::MergeFailed { .. }) => Ok(Some(Seen::MergeFails)),
        Err(error) => Err(error),
    }
}

impl Story {
    pub(super) fn read(&mut self, call: &str) {
        let (name, space, handle) = self.keyspace();
        let (key, now_ms) = (self.key(), self.now_ms());
        let wanted = space.get(&key, now_ms);
        self.note(|| format!("{call} {name} {}", shown(&key)));
        match call {
            "get" => {
                let got = if self.lots.chance(1, 8) {
                    handle.get_with(&key, Bytes::copy_from_slice)
                } else {
                    handle.get(&key)
                };
                let Some(got) = self.accept("get", seen(got)) else { return };
                assert_eq!(got, wanted, "get {name} {}", shown(&key));
            }
            "contains key" => {
                let Some(is_there) = self.accept("read", handle.contains_key(&key)) else { return };
                assert_eq!(is_there, wanted.is_some(), "contains_key {name} {}", shown(&key));
            }
            "may contain" => {
                let maybe = handle.may_contain(&key);
                assert!(maybe || wanted.is_none(), "may_contain {name} {}", shown(&key));
            }
            "get many" | "contains many" => {
                let count = self.lots.below(20);
                let keys: Vec<_> = (0..count).map(|_| self.key()).collect();
                let wanted: Vec<_> = keys.iter().map(|key| space.get(key, now_ms)).collect();
                if call == "contains many" {
                    let Some(all) = self.accept("read", handle.contains_many(&keys)) else {
                        return;
                    };
                    assert!(all.into_iter().eq(wanted.iter().map(Option::is_some)), "{keys:?}");
                    return;
                }
                let got = handle.get_many(&keys);
                if wanted.contains(&Some(Seen::MergeFails)) {
                    match got {
                        Err(Error::MergeFailed { .. }) => {}
                        other => drop(self.accept("get many", other.map(|got| panic!("{got:?}")))),
                    }
                    return;
                }
                let Some(got) = self.accept("get many", got) else { return };
                let got: Vec<_> = got.into_iter().map(|value| value.map(Seen::Value)).collect();
                assert_eq!(got, wanted, "get_many {name} {keys:?}");
            }
            "ttl" => {
                if wanted == Some(Seen::MergeFails) {
                    return;
                }
                let Some(ttl) = self.accept("ttl", handle.ttl(&key)) else { return };
                let wanted = wanted.map(|_| match space.entries[&key].expiry_ms(now_ms) {
                    None => TimeToLive::Unlimited,
                    Some(expiry_ms) => {
                        TimeToLive::Remaining(Duration::from_millis(expiry_ms - now_ms))
                    }
                });
                assert_eq!(ttl, wanted, "ttl {name} {}", shown(&key));
            }
            "first and last" => {
                for is_first in [true, false] {
                    let (got, wanted) = if is_first {
                        (handle.first(), space.all(now_ms).next())
                    } else {
                        (handle.last(), space.all(now_ms).next_back())
                    };
                    let fails = matches!(wanted, Some((_, Seen::MergeFails)));
                    if fails && matches!(got, Err(Error::MergeFailed { .. })) {
                        continue;
                    }
                    let Some(got) = self.accept("read", got) else { return };
                    let got = got.map(|(key, value)| (key, Seen::Value(value)));
                    assert_eq!(got, wanted.map(|(key, seen)| (key.clone(), seen)));
                }
            }
            "len" => {
                let all: Vec<_> = space.all(now_ms).collect();
                if all.iter().any(|(_, seen)| *seen == Seen::MergeFails) {
                    return;
                }
                let Some(len) = self.accept("len", handle.len()) else { return };
                assert_eq!(len, all.len() as u64, "len of {name}");
                let Some(is_empty) = self.accept("read", handle.is_empty()) else { return };
                assert_eq!(is_empty, all.is_empty(), "{name}");
            }
            "sizes" => {
                let range = self.key_range();
                let _ = self.accept("sizes", handle.approximate_len());
                let _ = self.accept("sizes", handle.approximate_bytes(range));
            }
            "explain" => {
                let explained = handle.explain(&key);
                if wanted == Some(Seen::MergeFails) {
                    assert!(matches!(explained, Err(Error::MergeFailed { .. })) || self.is_tainted);
                    return;
                }
                let _ = self.accept("explain", explained.map(|explained| explained.to_string()));
            }
            other => unreachable!("{other} is no call"),
        }
    }

    /// Compares all keys of all keyspaces, and the held snapshots.
    pub(super) fn check(&mut self) {
        self.note(|| "check".to_owned());
        let (now, now_ms) = (self.history.now().clone(), self.now_ms());
        let found = observe(self.db(), &self.keyspace_handles(), now_ms);
        let Some(found) = self.accept("read everything", found) else { return };
        let (count, text) = difference(&now, &found, now_ms, |_, want, have| want == have);
        assert_eq!(count, 0, "the open store:\n{text}");
        let checked = self.check_each(&now, now_ms);
        self.accept("read each key", checked);
        self.check_snapshot();
    }

    fn keyspace_handles(&self) -> Vec<(Name, Keyspace)> {
        let spaces = self.history.now().spaces.iter();
        spaces.map(|(name, space)| (name.clone(), self.handles[&space.id].clone())).collect()
    }

    fn check_each(&self, now: &Contents, now_ms: u64) -> Result<()> {
        for (name, space) in &now.spaces {
            let handle = &self.handles[&space.id];
            for key in self.all_keys() {
                let got = seen(handle.get(key))?;
                assert_eq!(got, space.get(key, now_ms), "{name} {}", shown(key));
            }
        }
        Ok(())
    }
}

/// Returns when a value with this time to live expires.
pub(super) fn expiry_ms(ttl: TimeToLive, now_ms: u64) -> Option<u64> {
    match ttl {
        TimeToLive::Remaining(left) => Some(now_ms + milliseconds(left)),
        TimeToLive::Unlimited => None,
    }
}

/// Reads all of a store, whose clock is at `now_ms`.
pub(super) fn observe(db: &Db, handles: &[(Name, Keyspace)], now_ms: u64) -> Result<Found> {
    let mut names = db.keyspaces().expect("it is open");
    names.sort_unstable();
    assert!(names.iter().map(String::as_str).eq(handles.iter().map(|(name, _)| &**name)));
    let mut found = Found::new();
    for (name, handle) in handles {
        let forwards = scan(handle)?;
        // A failing merge ends the scan from either side.
        if forwards.iter().all(|(_, seen)| *seen != Seen::MergeFails) {
            let backwards = handle.iter().rev().collect::<Result<Vec<_>>>()?;
            let backwards =
                backwards.into_iter().rev().map(|(key, value)| (key, Seen::Value(value)));
            assert!(forwards.iter().cloned().eq(backwards), "{name} backwards");
        }
        let mut entries = Vec::with_capacity(forwards.len());
        for (key, seen) in forwards {
            let Some(ttl) = handle.ttl(&key)? else {
                panic!("{name} {} has no time to live", shown(&key));
            };
            entries.push((key, (seen, expiry_ms(ttl, now_ms))));
        }
        found.insert(name.clone(), entries);
    }
    Ok(found)
}

/// Reads a keyspace in ascending order, past failing merges.
fn scan(handle: &Keyspace) -> Result<Vec<(Bytes, Seen)>> {
    let mut found: Vec<(Bytes, Seen)> = Vec::new();
    let mut range = handle.iter();
    loop {
        match range.next() {
            None => return Ok(found),
            Some(Ok((key, value))) => found.push((key, Seen::Value(value))),
            Some(Err(Error::MergeFailed { key, .. })) => {
                let key = Bytes::from(key);
                range.seek([&key[..], b"\0"].concat());
                found.push((key, Seen::MergeFails));
            }
            Some(Err(error)) => return Err(error),
        }
    }
}
