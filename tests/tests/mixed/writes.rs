//! Writing calls outside of transactions.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use sievedb::{Batch, Durability, Error, Keyspace, Result};
use sievedb_tests::{
    model::{Name, shown},
    table_files::{remove_files, write_files},
};

use super::{
    model::{Change, NEVER, Seen, Space, Style, prefix_range},
    operator::Operator,
    story::{OTHERS, Story},
};

/// Default TTLs of keyspaces, in milliseconds.
const DEFAULT_TTLS: [Option<u64>; 4] = [None, None, Some(30_000), Some(300_000)];

pub(super) fn time(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
}

impl Story {
    /// Makes one write of one key.
    pub(super) fn single(&mut self, call: &str) {
        let (keyspace, space, handle) = self.keyspace();
        let change = self.change(call, &keyspace, &space);
        let durability = self.set.durability;
        self.note(|| change.text());
        let (began, now_ms) = (self.disk.operations(), self.now_ms());
        let result = match &change {
            Change::Put { key, value, .. } if call == "insert without ttl" => {
                handle.insert_without_ttl(key, value)
            }
            Change::Put { key, value, expiry_ms, .. } if call == "insert with ttl" => {
                handle.insert_with_ttl(key, value, Duration::from_millis(expiry_ms - now_ms))
            }
            Change::Put { key, value, expiry_ms, .. } if call == "insert expiring at" => {
                handle.insert_expiring_at(key, value, time(*expiry_ms))
            }
            Change::Put { key, value, .. } => handle.insert(key, value),
            Change::Remove { key, .. } => handle.remove(key),
            Change::Merge { key, operand, .. } => handle.merge(key, operand),
            other => unreachable!("{other:?} is of several keys"),
        };
        self.written(vec![change], durability, began, result);
    }

    fn change(&mut self, call: &str, keyspace: &Name, space: &Space) -> Change {
        let (keyspace, key, operator) = (keyspace.clone(), self.key(), space.operator);
        match call {
            "remove" => return Change::Remove { keyspace, key },
            "merge" if space.merges(&key) => {
                return Change::Merge { keyspace, key, operand: self.value(operator) };
            }
            _ => {}
        }
        let now_ms = self.now_ms();
        let expiry_ms = match call {
            "insert with ttl" => now_ms + *self.lots.pick(&[0, 1, 20, 200, 3000, 90_000]),
            "insert expiring at" => (now_ms + self.lots.below(4000) as u64).saturating_sub(200),
            "insert without ttl" => NEVER,
            _ => space.default_expiry_ms(now_ms),
        };
        Change::Put { keyspace, key, value: self.value(operator), expiry_ms }
    }

    pub(super) fn remove_range(&mut self, of_prefix: bool) {
        let (keyspace, _, handle) = self.keyspace();
        let (durability, began) = (self.set.durability, self.disk.operations());
        let (change, result) = if of_prefix {
            let key = self.key();
            // Short ones would remove nearly everything.
            let prefix = key.slice(..key.len().min(4 + self.lots.below(2)));
            let prefix = if prefix.is_empty() { Bytes::from_static(b"a") } else { prefix };
            let range = prefix_range(&prefix);
            (Change::RemoveRange { keyspace, range }, handle.remove_prefix(&prefix))
        } else {
            let range = self.narrow_range();
            let result = handle.remove_range(range.clone());
            (Change::RemoveRange { keyspace, range }, result)
        };
        self.note(|| change.text());
        self.written(vec![change], durability, began, result);
    }

    /// Ingests a few keys with new values, from files or not.
    pub(super) fn ingest(&mut self, of_files: bool) {
        let (keyspace, space, handle) = self.keyspace();
        let count = 1 + self.lots.below(12);
        let keys: BTreeSet<_> = (0..count).map(|_| self.key()).collect();
        let entries: Vec<_> =
            keys.into_iter().map(|key| (key, self.value(space.operator))).collect();
        let expiry_ms = space.default_expiry_ms(self.now_ms());
        let put = |(key, value): &(Bytes, Bytes)| Change::Put {
            keyspace: keyspace.clone(),
            key: key.clone(),
            value: value.clone(),
            expiry_ms,
        };
        let changes: Vec<_> = entries.iter().map(put).collect();
        self.note(|| {
            let texts: Vec<_> = changes.iter().take(4).map(Change::text).collect();
            format!("ingest of {}: {}", changes.len(), texts.join("; "))
        });
        let files = 1 + self.lots.below(3);
        let paths = if of_files { write_files(&self.disk, &entries, files) } else { Vec::new() };
        let began = self.disk.operations();
        let result = if of_files { handle.ingest_files(&paths) } else { handle.ingest(entries) };
        self.written(changes, Durability::Disk, began, result);
        remove_files(&self.disk, &paths);
    }

    pub(super) fn batch(&mut self, count: usize) {
        let mut changes = Vec::with_capacity(count);
        let mut batch = self.db().batch();
        for _ in 0..count {
            let (keyspace, space, handle) = self.keyspace();
            let call = match self.lots.below(40) {
                0 => "remove range",
                1..8 => "remove",
                8..16 => "merge",
                16..20 => "insert with ttl",
                20..22 => "insert without ttl",
                _ => "insert",
            };
            let change = match call {
                "remove range" => Change::RemoveRange { keyspace, range: self.narrow_range() },
                _ => self.change(call, &keyspace, &space),
            };
            add(&mut batch, &handle, call, &change).expect("nothing fails");
            changes.push(change);
        }
        let (durability, began) = (self.durability(), self.disk.operations());
        self.note(|| {
            let texts: Vec<_> = changes.iter().take(4).map(Change::text).collect();
            format!("batch of {count}, {durability:?}: {}", texts.join("; "))
        });
        let result = batch.commit(durability);
        self.written(changes, durability, began, result);
    }

    /// Makes a write that depends on the present value.
    pub(super) fn conditional(&mut self, call: &str) {
        let (keyspace, space, handle) = self.keyspace();
        let (key, now_ms, operator) = (self.key(), self.now_ms(), space.operator);
        let (old, default_ms) = (space.get(&key, now_ms), space.default_expiry_ms(now_ms));
        let old_ms = space.entries.get(&key).and_then(|it| it.expiry_ms(now_ms));
        let kept_ms = if old.is_some() { old_ms.unwrap_or(NEVER) } else { default_ms };
        let began = self.disk.operations();
        let value = self.value(operator);
        let put = |value: Bytes, expiry_ms| Change::Put {
            keyspace: keyspace.clone(),
            key: key.clone(),
            value,
            expiry_ms,
        };
        let remove = |key: &Bytes| Change::Remove { keyspace: keyspace.clone(), key: key.clone() };
        self.note(|| format!("{call} {keyspace} {} = {}", shown(&key), shown(&value)));
        let is_present = old.is_some();
        let fails = old == Some(Seen::MergeFails);
        let old_value = old.and_then(|seen| seen.value().cloned());
        match call {
            "insert if absent" => {
                let ttl_ms = *self.lots.pick(&[None, Some(0), Some(200), Some(90_000)]);
                let result = match ttl_ms.map(Duration::from_millis) {
                    Some(ttl) => handle.insert_if_absent_with_ttl(&key, &value, ttl),
                    None => handle.insert_if_absent(&key, &value),
                };
                let expiry_ms = ttl_ms.map_or(default_ms, |ttl_ms| now_ms + ttl_ms);
                let change = (!is_present).then(|| put(value, expiry_ms));
                self.changed(change, began, result, |stored| assert_eq!(stored, !is_present));
            }
            "take" => {
                let result = handle.take(&key);
                let change = is_present.then(|| remove(&key));
                self.checked(fails, change, began, result, |taken| assert_eq!(taken, old_value));
            }
            "remove if" => {
                let is_removed = self.lots.chance(2, 3);
                let result = handle.remove_if(&key, |_| is_removed);
                let change = (is_present && is_removed).then(|| remove(&key));
                let want = change.is_some();
                self.checked(fails, change, began, result, |removed| assert_eq!(removed, want));
            }
            "compare and set" => {
                let expected = match self.lots.below(4) {
                    0 => None,
                    1 => Some(value.clone()),
                    _ => old_value.clone(),
                };
                let new = self.lots.chance(3, 4).then(|| value.clone());
                let result = handle.compare_and_set(&key, expected.as_deref(), new.as_deref());
                let is_equal = !fails && expected == old_value;
                let change = is_equal.then(|| match new {
                    Some(new) => Some(put(new, kept_ms)),
                    None => is_present.then(|| remove(&key)),
                });
                self.checked(fails, change.flatten(), began, result, |done| match done {
                    Ok(()) => assert!(is_equal, "not {expected:?} but {old_value:?}"),
                    Err(current) => assert_eq!((current.value, is_equal), (old_value, false)),
                });
            }
            "fetch update" => {
                let new = self.lots.chance(3, 4).then(|| value.clone());
                let returns_new = self.lots.chance(1, 2);
                let change = |_: Option<&[u8]>| new.clone();
                let (result, want) = match returns_new {
                    true => (handle.update_fetch(&key, change), new.clone()),
                    false => (handle.fetch_update(&key, change), old_value),
                };
                let change = match new {
                    Some(new) => Some(put(new, kept_ms)),
                    None => is_present.then(|| remove(&key)),
                };
                self.checked(fails, change, began, result, |got| assert_eq!(got, want));
            }
            "fetch add" => {
                let delta = self.lots.number() as i64;
                let result = handle.fetch_add(&key, delta);
                let count = match old_value.as_deref().map(<[u8; 8]>::try_from) {
                    None => Some(0),
                    Some(bytes) => bytes.ok().map(i64::from_be_bytes),
                };
                if let (Some(_), None, false) = (&old_value, count, fails) {
                    let is_refused = matches!(result, Err(Error::NotACounter { .. }));
                    assert!(is_refused || self.failing.is_some(), "{result:?}");
                    return;
                }
                let sum = count.map(|count| count.wrapping_add(delta).to_be_bytes().to_vec());
                let change = sum.map(|sum| put(sum.into(), kept_ms));
                self.checked(fails, change, began, result, |before| {
                    assert_eq!(Some(before), count);
                });
            }
            "expire at" => {
                let ttl_ms = self.lots.below(3000) as u64;
                let expiry_ms = now_ms + ttl_ms;
                let result = match ttl_ms % 2 {
                    0 => handle.expire_at(&key, time(expiry_ms)),
                    _ => handle.expire_after(&key, Duration::from_millis(ttl_ms)),
                };
                let change = old_value.map(|old| put(old, expiry_ms));
                self.checked(fails, change, began, result, |set| assert_eq!(set, is_present));
            }
            "persist key" => {
                let result = handle.persist_key(&key);
                let change = old_value.filter(|_| old_ms.is_some()).map(|old| put(old, NEVER));
                let fails = fails && old_ms.is_some();
                self.checked(fails, change, began, result, |kept| assert_eq!(kept, is_present));
            }
            _ => self.pop(&keyspace, &space, &handle),
        }
    }

    fn pop(&mut self, keyspace: &Name, space: &Space, handle: &Keyspace) {
        let (began, now_ms) = (self.disk.operations(), self.now_ms());
        let is_first = self.lots.chance(1, 2);
        let (wanted, result) = if is_first {
            (space.all(now_ms).next(), handle.pop_first())
        } else {
            (space.all(now_ms).next_back(), handle.pop_last())
        };
        self.note(|| format!("pop of {keyspace}, the first: {is_first}"));
        let fails = matches!(wanted, Some((_, Seen::MergeFails)));
        let wanted = wanted.and_then(|(key, seen)| Some((key.clone(), seen.value()?.clone())));
        let key = wanted.as_ref().map(|(key, _)| key.clone());
        let change = key.map(|key| Change::Remove { keyspace: keyspace.clone(), key });
        self.checked(fails, change, began, result, |popped| assert_eq!(popped, wanted));
    }

    /// As [`changed`](Self::changed); if `fails`, the merge operator must fail instead.
    fn checked<T: std::fmt::Debug>(
        &mut self,
        fails: bool,
        change: Option<Change>,
        began: usize,
        result: Result<T>,
        check: impl FnOnce(T),
    ) {
        if fails {
            match result {
                Err(Error::MergeFailed { .. }) => self.count("(merge failed)"),
                Err(error) => self.tolerate("failing merge", &error),
                Ok(value) => panic!("{value:?}, but the merge fails"),
            }
            return;
        }
        self.changed(change, began, result, check);
    }

    /// Checks the result of a conditional write, and adds the change that it must have made.
    fn changed<T>(
        &mut self,
        change: Option<Change>,
        began: usize,
        result: Result<T>,
        check: impl FnOnce(T),
    ) {
        let durability = self.set.durability;
        let value = match change {
            Some(change) => self.written(vec![change], durability, began, result),
            None => self.accept("conditional write", result),
        };
        if let Some(value) = value {
            check(value);
        }
    }

    pub(super) fn change_keyspace(&mut self, call: &str) {
        let name = Name::from(*self.lots.pick(&OTHERS));
        let found = self.history.now().space(&name).map(|space| space.id);
        let began = self.disk.operations();
        let (change, done) = match (call, found) {
            ("create", None) => {
                let style = Style {
                    operator: *self.lots.pick(&Operator::ALL),
                    has_filter: self.lots.chance(1, 2),
                    default_ttl_ms: *self.lots.pick(&DEFAULT_TTLS),
                };
                let options = self.set.keyspace(style, &self.filter);
                self.ids += 1;
                let id = self.ids;
                let created = self.db().keyspace_with(&name, &options);
                let done = created.map(|handle| drop(self.handles.insert(id, handle)));
                (Change::Create { keyspace: name, id, style }, done)
            }
            ("drop", Some(_)) => {
                let done = self.db().drop_keyspace(&name).map(|dropped| assert!(dropped));
                (Change::Drop { keyspace: name }, done)
            }
            ("clear", _) => {
                let (name, _, handle) = self.keyspace();
                let done = handle.clear();
                self.forget_past(&handle);
                (Change::Clear { keyspace: name }, done)
            }
            ("rename", Some(id)) => {
                let to = Name::from(*self.lots.pick(&OTHERS));
                if self.history.now().space(&to).is_some() {
                    let renamed = self.db().rename_keyspace(&name, &to);
                    let is_refused = matches!(renamed, Err(Error::KeyspaceExists { .. }));
                    assert!(is_refused, "{renamed:?}");
                    return;
                }
                let done = self.db().rename_keyspace(&name, &to);
                if done.is_ok() {
                    assert_eq!(self.handles[&id].name(), *to);
                }
                (Change::Rename { keyspace: name, to }, done)
            }
            _ => return,
        };
        self.note(|| change.text());
        if self.written(vec![change.clone()], Durability::Disk, began, done).is_none() {
            // Later changes would be of another keyspace, if this one happened.
            self.must_restart = true;
        } else if let (Change::Drop { .. }, Some(id)) = (&change, found) {
            let handle = self.handles.remove(&id).expect("it was there");
            let got = handle.get("any");
            assert!(matches!(got, Err(Error::KeyspaceDropped { .. })), "{got:?}");
        }
    }

    pub(super) fn set_default_ttl(&mut self) {
        let (name, _, handle) = self.keyspace();
        let ttl_ms = *self.lots.pick(&DEFAULT_TTLS);
        self.note(|| format!("set the default TTL of {name} to {ttl_ms:?} ms"));
        let ttl = ttl_ms.map(Duration::from_millis);
        let done = handle.set_options(handle.options().default_ttl(ttl));
        if self.accept("set options", done).is_some() {
            self.history.set_default_ttl(&name, ttl_ms);
        } else {
            // Only another opening shows which options the manifest has.
            self.must_restart = true;
        }
    }

    pub(super) fn maintain(&mut self, call: &str) {
        let (name, _, handle) = self.keyspace();
        let durability = self.durability();
        self.note(|| format!("{call} {name} {durability:?}"));
        let done = match call {
            "persist" => self.db().persist(durability),
            "flush" => self.db().flush(),
            "flush keyspace" => handle.flush(),
            "compact" => self.db().compact(),
            "compact keyspace" => handle.compact(),
            _ => self.db().wait_for_background(),
        };
        if self.accept(call, done).is_some() && call == "persist" {
            self.history.acknowledge(durability, self.disk.operations());
        }
    }
}

fn add(batch: &mut Batch, handle: &Keyspace, call: &str, change: &Change) -> Result<()> {
    match change {
        Change::Put { key, value, expiry_ms, .. } if call == "insert with ttl" => {
            batch.insert_expiring_at(handle, key, value, time(*expiry_ms))
        }
        Change::Put { key, value, .. } if call == "insert without ttl" => {
            batch.insert_without_ttl(handle, key, value)
        }
        Change::Put { key, value, .. } => batch.insert(handle, key, value),
        Change::Remove { key, .. } => batch.remove(handle, key),
        Change::Merge { key, operand, .. } => batch.merge(handle, key, operand),
        Change::RemoveRange { range, .. } => batch.remove_range(handle, range.clone()),
        other => unreachable!("{other:?} is not for a batch"),
    }
}
