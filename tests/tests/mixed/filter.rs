//! A compaction filter whose effects the model follows.
//!
//! A compaction may show a value to the filter at any time, so the model learns from the store what
//! has become of it. The filter notes its decisions. After the call the store has the value, or
//! what the decision leaves of it; from then on it stays so. A snapshot sees no difference.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use sievedb::{CompactionContext, CompactionFilter, Decision};
use sievedb_tests::model::{Name, shown};

use super::{
    model::{Seen, Space},
    reads::{expiry_ms, seen},
    story::Story,
};

/// End of a value that the filter has replaced.
const REPLACED: &[u8] = b"=R";

/// Returns what the filter decides about a value.
fn decision(key: &[u8], value: &[u8]) -> Decision {
    if !is_filtered(key) || value.ends_with(REPLACED) {
        return Decision::Keep;
    }
    match sum(value) % 8 {
        0 | 1 => Decision::Remove,
        2 => Decision::Replace([value, REPLACED].concat()),
        3 => Decision::RemoveAndSkipUntil([family(key), &[1]].concat()),
        _ => Decision::Keep,
    }
}

/// Returns whether the filter may remove or replace values of a key. No operands are written to
/// such keys: a base could be filtered before or after they are applied.
pub(super) fn is_filtered(key: &[u8]) -> bool {
    sum(family(key)).is_multiple_of(3)
}

/// Returns the key without zero bytes at its end: a decision to skip keys is for those of one
/// family.
fn family(key: &[u8]) -> &[u8] {
    let length = key.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &key[..length]
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().map(|&byte| u32::from(byte)).sum()
}

/// The filter of all keyspaces that have one.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// Otherwise it keeps everything.
    is_on: AtomicBool,
    decided: Mutex<Vec<Decided>>,
}

#[derive(Debug)]
struct Decided {
    keyspace: String,
    key: Bytes,
    value: Bytes,
    decision: Decision,
}

/// A possible effect of the filter on a version of a key.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    /// The value that was filtered; `None` for any that was written before.
    value: Option<Bytes>,
    /// The value after the filter; `None` if removed.
    image: Option<Bytes>,
    /// Number of disk operations before it.
    pub(super) began: usize,
}

/// A value with its expiry, as it is read.
pub(super) type Version = (Seen, Option<u64>);

impl Effect {
    /// Returns whether this effect on `before` leaves `after`.
    pub(super) fn explains(&self, before: &Version, after: Option<&Version>) -> bool {
        let (Seen::Value(value), expiry_ms) = before else { return false };
        let is_of = self.value.as_ref().is_none_or(|of| of == value);
        let left = self.image.clone().map(|image| (Seen::Value(image), *expiry_ms));
        is_of && left.as_ref() == after
    }
}

impl CompactionFilter for Filter {
    fn name(&self) -> &str {
        "mixed"
    }

    fn filter(&self, context: &CompactionContext<'_>, key: &[u8], value: &[u8]) -> Decision {
        if !self.is_on.load(SeqCst) {
            return Decision::Keep;
        }
        let decision = decision(key, value);
        if decision != Decision::Keep {
            let copy = Bytes::copy_from_slice;
            let (keyspace, key, value) = (context.keyspace.to_owned(), copy(key), copy(value));
            let decided = Decided { keyspace, key, value, decision: decision.clone() };
            self.decided.lock().unwrap_or_else(PoisonError::into_inner).push(decided);
        }
        decision
    }
}

impl Story {
    /// Makes the filter act during a call that reads nothing, unless calls fail.
    pub(super) fn switch_filter_on(&self, call: &str) {
        let compacts = matches!(call, "compact" | "compact keyspace" | "background");
        let writes_only = matches!(
            call,
            "insert"
                | "insert with ttl"
                | "insert expiring at"
                | "insert without ttl"
                | "remove"
                | "merge"
                | "batch"
                | "large batch"
                | "remove range"
                | "remove prefix"
                | "flush"
                | "flush keyspace"
                | "persist"
        );
        // Compactions of workers go on after the call, unless it waits for them.
        let is_usable = compacts || (writes_only && !self.set.has_workers);
        let fails = self.failing.is_some() || (self.set.has_workers && self.is_tainted);
        self.filter.is_on.store(is_usable && !fails, SeqCst);
    }

    /// Makes the filter keep everything, and learns what it has done since `began` disk operations.
    pub(super) fn switch_filter_off(&mut self, call: &str, began: usize) {
        if !self.filter.is_on.load(SeqCst) {
            return;
        }
        if self.set.has_workers {
            self.db().wait_for_background().expect("nothing fails");
        }
        self.filter.is_on.store(false, SeqCst);
        let decided = mem::take(&mut *self.filter.decided.lock().expect("no thread panicked"));
        // A key may be shown several times, with older versions too.
        let mut effects: BTreeMap<(Name, Bytes), Vec<Effect>> = BTreeMap::new();
        for Decided { keyspace, key, value, decision } in decided {
            self.note(|| format!("... filtered {keyspace} {}: {decision:?}", shown(&key)));
            let name = Name::from(keyspace);
            let mut image = None;
            match decision {
                Decision::Replace(left) => image = Some(left.into()),
                Decision::RemoveAndSkipUntil(until) => {
                    // Also those that are removed: a crash may lose their removal.
                    let is_skipped = |other: &&Bytes| key < **other && ***other < *until;
                    for key in self.all_keys().iter().filter(is_skipped) {
                        let effect = Effect { value: None, image: None, began };
                        effects.entry((name.clone(), key.clone())).or_default().push(effect);
                    }
                }
                _ => {}
            }
            let effect = Effect { value: Some(value), image, began };
            effects.entry((name, key)).or_default().push(effect);
        }
        for ((name, key), effects) in effects {
            self.learn(&name, &key, effects);
        }
        let sees_all = self.snapshots.is_empty() && self.transactions.is_empty();
        if matches!(call, "compact") && sees_all && self.set.merges && !self.is_tainted {
            self.expect_filtered();
        }
    }

    /// Compares a key that the filter may have removed or replaced.
    fn learn(&mut self, name: &Name, key: &Bytes, effects: Vec<Effect>) {
        let now_ms = self.now_ms();
        let space = self.history.now().space(name).expect("it was there");
        let id = space.id;
        let before = space.get_with_expiry(key, now_ms);
        let handle = &self.handles[&id];
        let found = seen(handle.get(key)).expect("nothing fails");
        let after = found.map(|seen| {
            let ttl = handle.ttl(key).expect("nothing fails").expect("the key has a value");
            (seen, expiry_ms(ttl, now_ms))
        });
        if before != after {
            let explain = |it| effects.iter().any(|effect| effect.explains(it, after.as_ref()));
            let is_explained = before.as_ref().is_some_and(explain);
            let place = format!("{name} {}", shown(key));
            assert!(is_explained, "filtered {place}: {before:?}, now {after:?}, {effects:?}");
            self.count("(filtered)");
            let at = self.disk.operations();
            self.history.learn(id, name, key, before.expect("it is explained"), after, at);
        }
        self.history.may_be_filtered(id, key, effects);
        self.check_held(id, key);
    }

    /// After a full compaction without a reader every value was filtered.
    fn expect_filtered(&self) {
        let now_ms = self.now_ms();
        let filtered = |space: &&Arc<Space>| space.has_filter;
        for space in self.history.now().spaces.values().filter(filtered) {
            for (key, seen) in space.all(now_ms) {
                let Some(value) = seen.value() else { continue };
                let left = decision(key, value);
                assert_eq!(left, Decision::Keep, "{} is left by a compaction", shown(key));
            }
        }
    }
}
