//! Writes of open transactions.

use std::{ops::Bound, time::Duration};

use bytes::Bytes;
use sievedb::{Error, Isolation, Keyspace, Result, TimeToLive};
use sievedb_tests::model::shown;

use super::{
    model::{NEVER, Seen, Space, prefix_range},
    operator::Operator,
    own_writes::expiry_of,
    story::Story,
    transactions::OpenTransaction,
    writes::time,
};

/// The keyspace of a step.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) space: std::sync::Arc<Space>,
    pub(super) handle: Keyspace,
    pub(super) is_dropped: bool,
}

impl Place {
    /// Returns `None` if the keyspace was dropped.
    fn accept<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(Error::KeyspaceDropped { .. }) if self.is_dropped => Ok(None),
            result => result.map(Some),
        }
    }
}

/// Returns the result of a call that reads a value; `None` if reading it `fails`, or if the
/// keyspace was dropped.
fn unless_failing<T: std::fmt::Debug>(result: Result<Option<T>>, fails: bool) -> Result<Option<T>> {
    match result {
        Err(Error::MergeFailed { .. }) if fails => Ok(None),
        result => {
            let value = result?;
            assert!(!fails || value.is_none(), "{value:?}, but the merge fails");
            Ok(value)
        }
    }
}

impl Story {
    /// Makes a write that does not depend on the present value.
    pub(super) fn blind_step(
        &mut self,
        open: &mut OpenTransaction,
        place: &Place,
        call: &str,
        key: Bytes,
    ) -> Result<()> {
        let (space, handle) = (&place.space, &place.handle);
        let (id, now_ms) = (space.id, open.now_ms);
        let tx = &mut open.transaction;
        match call {
            "remove" => {
                tx.remove(handle, &key)?;
                open.own.remove(id, key);
                return Ok(());
            }
            "remove range" => {
                let range = self.narrow_range();
                self.note(|| format!("... the range {range:?}"));
                tx.remove_range(handle, range.clone())?;
                open.own.remove_range(id, &range);
                return Ok(());
            }
            "remove prefix" => {
                let prefix = key.slice(..key.len().min(5));
                let prefix = if prefix.is_empty() { Bytes::from_static(b"a") } else { prefix };
                tx.remove_prefix(handle, &prefix)?;
                open.own.remove_range(id, &prefix_range(&prefix));
                return Ok(());
            }
            _ => {}
        }
        let value = self.value(space.operator);
        let expiry_ms = match call {
            "insert with ttl" => {
                let ttl_ms = *self.lots.pick(&[0, 1, 200, 3000, 90_000]);
                tx.insert_with_ttl(handle, &key, &value, Duration::from_millis(ttl_ms))?;
                now_ms + ttl_ms
            }
            "insert expiring at" => {
                let expiry_ms = (now_ms + self.lots.below(4000) as u64).saturating_sub(200);
                tx.insert_expiring_at(handle, &key, &value, time(expiry_ms))?;
                expiry_ms
            }
            "insert without ttl" => {
                tx.insert_without_ttl(handle, &key, &value)?;
                NEVER
            }
            _ => {
                tx.insert(handle, &key, &value)?;
                self.default_expiry_ms(open, id)
            }
        };
        open.own.put(id, key, value, expiry_ms, now_ms);
        Ok(())
    }

    /// Returns when a value expires that a transaction writes without a TTL: the option is that of
    /// now, the clock that of its start.
    fn default_expiry_ms(&self, open: &OpenTransaction, id: u64) -> u64 {
        let now = self.history.now().of_id(id).or_else(|| open.contents.of_id(id));
        now.expect("the transaction has it").1.default_expiry_ms(open.now_ms)
    }

    /// Makes a write that depends on the present value.
    pub(super) fn dependent_step(
        &mut self,
        open: &mut OpenTransaction,
        place: &Place,
        call: &str,
        key: Bytes,
    ) -> Result<()> {
        let (space, handle, id) = (&place.space, &place.handle, place.space.id);
        let wanted = open.seen(space, &key);
        let fails = wanted == Some(Seen::MergeFails);
        let old = wanted.as_ref().and_then(|seen| seen.value().cloned());
        let (now_ms, default_ms) = (open.now_ms, self.default_expiry_ms(open, id));
        let expiry_ms = open.expiry_ms(space, &key);
        let kept_ms = if wanted.is_some() { expiry_ms.unwrap_or(NEVER) } else { default_ms };
        open.keys.push((id, key.clone()));
        let tx = &mut open.transaction;
        let written = match call {
            "merge" if space.operator != Operator::None => {
                let operand = self.value(space.operator);
                let value = match &wanted {
                    None => space.operator.is_valid(&operand).then(|| operand.clone()),
                    Some(Seen::Value(old)) => space.operator.join(old, &operand).map(Bytes::from),
                    Some(Seen::MergeFails) => None,
                };
                let merged = place.accept(tx.merge(handle, &key, &operand));
                let Some(()) = unless_failing(merged, value.is_none())? else { return Ok(()) };
                Some(value.map(|value| (value, kept_ms)))
            }
            "merge" => {
                let merged = place.accept(tx.merge(handle, &key, "1"));
                match merged {
                    Err(Error::NoMergeOperator { .. }) | Ok(None) => {}
                    // The key is read first.
                    Err(Error::MergeFailed { .. }) if fails => {}
                    Err(error) => return Err(error),
                    Ok(Some(())) => panic!("merged without an operator"),
                }
                None
            }
            "fetch update" => {
                let new = self.lots.chance(3, 4).then(|| self.value(space.operator));
                let returns_new = self.lots.chance(1, 2);
                let change = |_: Option<&[u8]>| new.clone();
                let (result, want) = match returns_new {
                    true => (tx.update_fetch(handle, &key, change), new.clone()),
                    false => (tx.fetch_update(handle, &key, change), old.clone()),
                };
                let result = unless_failing(place.accept(result), fails)?;
                let Some(got) = result else { return Ok(()) };
                assert_eq!(got, want, "update of {} in a transaction", shown(&key));
                match new {
                    Some(new) => Some(Some((new, kept_ms))),
                    None => old.is_some().then_some(None),
                }
            }
            "take" => {
                let taken = place.accept(tx.take(handle, &key));
                let Some(taken) = unless_failing(taken, fails)? else { return Ok(()) };
                assert_eq!(taken, old, "take of {} in a transaction", shown(&key));
                old.is_some().then_some(None)
            }
            "fetch add" => {
                let delta = self.lots.number() as i64;
                let count = match old.as_deref().map(<[u8; 8]>::try_from) {
                    None => Some(0),
                    Some(bytes) => bytes.ok().map(i64::from_be_bytes),
                };
                let before = match place.accept(tx.fetch_add(handle, &key, delta)) {
                    Err(Error::NotACounter { .. }) if count.is_none() => return Ok(()),
                    before => before,
                };
                let Some(before) = unless_failing(before, fails)? else { return Ok(()) };
                assert_eq!(Some(before), count, "fetch_add in a transaction");
                let sum = before.wrapping_add(delta).to_be_bytes().to_vec();
                Some(Some((sum.into(), kept_ms)))
            }
            "expire at" => {
                let expiry_ms = (now_ms + self.lots.below(3000) as u64).saturating_sub(200);
                let done = place.accept(tx.expire_at(handle, &key, time(expiry_ms)));
                let Some(done) = unless_failing(done, fails)? else { return Ok(()) };
                assert_eq!(done, old.is_some(), "expire_at in a transaction");
                old.map(|old| Some((old, expiry_ms)))
            }
            _ => {
                let kept = place.accept(tx.persist_key(handle, &key));
                let Some(kept) = unless_failing(kept, fails)? else { return Ok(()) };
                assert_eq!(kept, old.is_some(), "persist_key in a transaction");
                old.filter(|_| expiry_ms.is_some()).map(|old| Some((old, NEVER)))
            }
        };
        match written {
            Some(Some((value, expiry_ms))) => open.own.put(id, key, value, expiry_ms, now_ms),
            Some(None) => open.own.remove(id, key),
            None => {}
        }
        Ok(())
    }

    /// Reads the time to live of a key.
    pub(super) fn ttl_step(open: &mut OpenTransaction, place: &Place, key: Bytes) -> Result<()> {
        let wanted = open.seen(&place.space, &key);
        if wanted == Some(Seen::MergeFails) {
            return Ok(());
        }
        let expiry_ms = open.expiry_ms(&place.space, &key);
        if let Some(ttl) = place.accept(open.transaction.ttl(&place.handle, &key))? {
            let left = |expiry_ms| Duration::from_millis(expiry_ms - open.now_ms);
            let of = |expiry: Option<u64>| {
                expiry.map_or(TimeToLive::Unlimited, |it| TimeToLive::Remaining(left(it)))
            };
            assert_eq!(ttl, wanted.map(|_| of(expiry_ms)), "ttl of {}", shown(&key));
        }
        open.note_read(place.space.id, key);
        Ok(())
    }

    /// Reads the first or the last entry.
    pub(super) fn end_step(open: &mut OpenTransaction, place: &Place, first: bool) -> Result<()> {
        let (space, all) = (&place.space, (Bound::Unbounded, Bound::Unbounded));
        let entries = open.range(space, &all);
        let wanted = if first { entries.first() } else { entries.last() }.cloned();
        let tx = &open.transaction;
        let result = if first { tx.first(&place.handle) } else { tx.last(&place.handle) };
        let read = match result {
            Err(Error::MergeFailed { .. }) if open.meets_failing(space, &all) => None,
            result => Some(result?.map(|(key, value)| (key, Seen::Value(value)))),
        };
        if let Some(read) = &read {
            assert_eq!(*read, wanted, "an end in a transaction, the first: {first}");
        }
        if open.isolation == Isolation::Serializable {
            let range = match read.flatten() {
                Some((key, _)) if first => (Bound::Unbounded, Bound::Included(key)),
                Some((key, _)) => (Bound::Included(key), Bound::Unbounded),
                None => all,
            };
            open.ranges.push((space.id, range));
        }
        Ok(())
    }
}

impl OpenTransaction {
    /// Returns when the visible value of a key expires.
    fn expiry_ms(&self, space: &Space, key: &Bytes) -> Option<u64> {
        match self.own.get(space.id, key) {
            Some(own) => own.and_then(expiry_of),
            None => space.entries.get(key)?.expiry_ms(self.now_ms),
        }
    }

    /// Compares a key that the compaction filter was shown, unless the transaction has written it.
    pub(super) fn check_unwritten(&self, id: u64, key: &Bytes) {
        let Some((name, space)) = self.contents.of_id(id) else { return };
        // A tracked read would change what the commit depends on.
        let is_tracked = self.isolation == Isolation::Serializable;
        if is_tracked || self.own.get(id, key).is_some() {
            return;
        }
        let got = super::reads::seen(self.transaction.get(&self.handles[&id], key));
        let wanted = space.get(key, self.now_ms);
        assert_eq!(got.expect("nothing fails"), wanted, "a transaction, filtered {name}");
    }
}
