//! The writes since the last opening, and the states that a crash may leave.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use bytes::Bytes;
use sievedb::Durability;
use sievedb_tests::model::{Name, shown};

use super::{
    filter::{Effect, Version},
    model::{Change, Contents, Seen, Space},
    operator::Operator,
};

/// A failed write doubles the legal states.
pub(super) const FAILED_MAX: usize = 4;

/// Contents of a store, as reads of each key return them, with their expiry.
pub(super) type Found = BTreeMap<Name, Vec<(Bytes, Version)>>;

/// The writes since the store durably held its base.
pub(super) struct History {
    base: Contents,
    /// Contents of the open store.
    now: Contents,
    writes: Vec<Write>,
    acknowledged: Vec<Acknowledged>,
    failed: usize,
    filtered: Filtered,
}

/// Certain and possible effects of the compaction filter, by keyspace and key.
#[derive(Default)]
struct Filtered {
    keyspaces: BTreeMap<u64, BTreeMap<Bytes, FilteredKey>>,
}

#[derive(Default)]
struct FilteredKey {
    possible: Vec<Effect>,
    /// The replaced versions, and the number of disk operations by which they were replaced.
    certain: Vec<(Version, usize)>,
}

impl Filtered {
    /// Returns whether a key may be `found` as it is, behind `at` disk operations, if the writes
    /// left `wanted`.
    fn allows(
        &self,
        (id, key): (u64, &Bytes),
        wanted: Option<&Version>,
        found: Option<&Version>,
        at: usize,
    ) -> bool {
        let filtered = self.keyspaces.get(&id).and_then(|keys| keys.get(key));
        let Some(FilteredKey { possible, certain }) = filtered else { return wanted == found };
        if wanted == found {
            return !certain.iter().any(|(it, by)| *by <= at && Some(it) == found);
        }
        let explains = |it: &Effect, wanted| it.began < at && it.explains(wanted, found);
        wanted.is_some_and(|wanted| possible.iter().any(|effect| explains(effect, wanted)))
    }

    fn key(&mut self, id: u64, key: &Bytes) -> &mut FilteredKey {
        self.keyspaces.entry(id).or_default().entry(key.clone()).or_default()
    }
}

struct Write {
    changes: Vec<Change>,
    /// Number of disk operations at its start.
    began: usize,
    failed: bool,
}

/// The first `writes` writes had `durability` by disk operation `at`.
struct Acknowledged {
    at: usize,
    writes: usize,
    durability: Durability,
}

impl History {
    pub(super) fn new(base: Contents) -> Self {
        let (writes, acknowledged) = (Vec::new(), Vec::new());
        let filtered = Filtered::default();
        Self { now: base.clone(), base, writes, acknowledged, failed: 0, filtered }
    }

    /// Returns the contents of the open store.
    pub(super) fn now(&self) -> &Contents {
        &self.now
    }

    /// Returns the number of failed writes.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// Adds a write that is visible, or one that failed: it may be found after the next opening.
    pub(super) fn add(&mut self, changes: Vec<Change>, began: usize, failed: bool) {
        if failed {
            self.failed += 1;
        } else {
            changes.iter().for_each(|change| self.now.apply(change));
        }
        self.writes.push(Write { changes, began, failed });
    }

    /// Notes that the compaction filter may have had one of these effects on a key.
    pub(super) fn may_be_filtered(&mut self, id: u64, key: &Bytes, effects: Vec<Effect>) {
        self.filtered.key(id, key).possible.extend(effects);
    }

    /// Notes that the compaction filter has replaced a version, by disk operation `at`.
    pub(super) fn learn(
        &mut self,
        id: u64,
        name: &Name,
        key: &Bytes,
        before: Version,
        after: Option<Version>,
        at: usize,
    ) {
        let space = self.now.entries(name).expect("the keyspace exists");
        space.set(key.clone(), after);
        // Sets that are equal by chance are no version of their own.
        if space.operator != Operator::Union {
            self.filtered.key(id, key).certain.push((before, at));
        }
    }

    /// Sets the default TTL of a keyspace of the open store.
    pub(super) fn set_default_ttl(&mut self, name: &Name, ttl_ms: Option<u64>) {
        self.now.entries(name).expect("the keyspace exists").default_ttl_ms = ttl_ms;
    }

    /// Marks all writes as acknowledged with `durability` by disk operation `at`.
    pub(super) fn acknowledge(&mut self, durability: Durability, at: usize) {
        self.acknowledged.push(Acknowledged { at, writes: self.writes.len(), durability });
    }

    /// Returns the state that was `found` after a crash behind `at` disk operations, which what has
    /// durability `survives` outlives. The store clock is at `now_ms`. Also returns the keys for
    /// which legal states differ in what is not visible yet: operands over a value that expires.
    ///
    /// # Errors
    ///
    /// It is not legal.
    pub(super) fn resolve(
        &self,
        found: &Found,
        now_ms: u64,
        at: usize,
        survives: Durability,
    ) -> Result<(Contents, BTreeSet<(Name, Bytes)>), String> {
        let counts = |it: &&Acknowledged| it.at <= at && it.durability >= survives;
        let required = self.acknowledged.iter().filter(counts).map(|it| it.writes).max();
        let required = required.unwrap_or(0);
        let begun = self.writes.partition_point(|write| write.began < at).max(required);
        let (mut hint, mut legal, mut unknown) = (None, None::<Contents>, BTreeSet::new());
        for with_failed in 0..1_u32 << self.failed {
            let (mut state, mut failed) = (self.base.clone(), 0);
            for count in 0..=begun {
                if count > 0 {
                    let write = &self.writes[count - 1];
                    let skipped = write.failed && with_failed >> failed & 1 == 0;
                    failed += u32::from(write.failed);
                    if !skipped {
                        write.changes.iter().for_each(|change| state.apply(change));
                    }
                }
                if count >= required && self.is_equal(&state, found, now_ms, at, &mut hint) {
                    let mut state = state.clone();
                    state.adopt(found, now_ms);
                    match &legal {
                        None => legal = Some(state),
                        Some(legal) => unknown.extend(legal.differing_keys(&state)),
                    }
                }
            }
        }
        if let Some(legal) = legal {
            return Ok((legal, unknown));
        }
        let writes = self.writes.len();
        let mut text = format!(
            "not a legal state at {now_ms}: of {writes} writes {required} had to survive, \
             {begun} had begun, {} had failed\n",
            self.failed
        );
        let differences = |count: usize| {
            let mut state = self.base.clone();
            let done = self.writes[..count].iter().filter(|write| !write.failed);
            done.flat_map(|write| &write.changes).for_each(|change| state.apply(change));
            difference(&state, found, now_ms, |place, want, have| {
                self.filtered.allows(place, want, have, at)
            })
        };
        let nearest = (required..=begun).min_by_key(|&count| differences(count).0);
        let nearest = nearest.expect("one count at least");
        let _ = writeln!(text, "compared with {nearest} writes:\n{}", differences(nearest).1);
        for (number, write) in self.writes.iter().enumerate().skip(required.saturating_sub(3)) {
            let changes: Vec<_> = write.changes.iter().take(5).map(Change::text).collect();
            let failed = if write.failed { " FAILED" } else { "" };
            let _ = writeln!(text, "    {number} {}{failed}: {changes:?}", write.began);
        }
        Err(text)
    }
}

impl History {
    /// Returns whether `found`, behind `at` disk operations, is what `state` shows, but for what
    /// the compaction filter may have done. `hint` is a key that differed last.
    fn is_equal(
        &self,
        state: &Contents,
        found: &Found,
        now_ms: u64,
        at: usize,
        hint: &mut Option<(Name, Bytes)>,
    ) -> bool {
        if !state.spaces.keys().eq(found.keys()) {
            return false;
        }
        if let Some((name, key)) = hint {
            let of = found.get(name).map_or(&[][..], Vec::as_slice);
            let has = of.binary_search_by(|(other, _)| other.cmp(key)).ok().map(|at| &of[at].1);
            let space = state.space(name);
            let wanted = space.and_then(|space| space.get_with_expiry(key, now_ms));
            let id = space.map_or(u64::MAX, |space| space.id);
            if !self.filtered.allows((id, key), wanted.as_ref(), has, at) {
                return false;
            }
        }
        for (name, space) in &state.spaces {
            if let Some(key) = self.first_difference(space, &found[name], now_ms, at) {
                *hint = Some((name.clone(), key));
                return false;
            }
        }
        true
    }

    fn first_difference(
        &self,
        space: &Space,
        found: &[(Bytes, Version)],
        now_ms: u64,
        at: usize,
    ) -> Option<Bytes> {
        let (mut wanted, mut found) = (space.all_with_expiry(now_ms), found.iter().peekable());
        loop {
            let Some((key, version)) = wanted.next() else {
                return found.next().map(|(key, _)| key.clone());
            };
            if let Some((other, _)) = found.next_if(|(other, _)| other < key) {
                return Some(other.clone());
            }
            let has = found.next_if(|(other, _)| other == key).map(|(_, version)| version);
            if !self.filtered.allows((space.id, key), Some(&version), has, at) {
                return Some(key.clone());
            }
        }
    }
}

/// Returns how many keys of `found` differ from `state` in what `allows` does not, and describes
/// some.
pub(super) fn difference(
    state: &Contents,
    found: &Found,
    now_ms: u64,
    allows: impl Fn((u64, &Bytes), Option<&Version>, Option<&Version>) -> bool,
) -> (usize, String) {
    let mut lines = Vec::new();
    let names: Vec<_> = state.spaces.keys().collect();
    if !names.iter().copied().eq(found.keys()) {
        lines.push(format!("keyspaces {:?}, not {names:?}", found.keys().collect::<Vec<_>>()));
    }
    for (name, space) in &state.spaces {
        let Some(found) = found.get(name) else { continue };
        let wanted: BTreeMap<_, _> = space.all_with_expiry(now_ms).collect();
        let found: BTreeMap<_, _> = found.iter().map(|(key, seen)| (key, seen)).collect();
        let keys: BTreeSet<_> = wanted.keys().copied().chain(found.keys().copied()).collect();
        for key in keys {
            let (want, have) = (wanted.get(key), found.get(key).copied());
            if !allows((space.id, key), want, have) {
                let text = |seen: Option<&(Seen, Option<u64>)>| match seen {
                    None => "nothing".to_owned(),
                    Some((Seen::MergeFails, _)) => "a failing merge".to_owned(),
                    Some((Seen::Value(value), None)) => shown(value),
                    Some((Seen::Value(value), Some(expiry_ms))) => {
                        format!("{} until {expiry_ms}", shown(value))
                    }
                };
                lines.push(format!("{name} {}: {}, not {}", shown(key), text(have), text(want)));
            }
        }
    }
    let hidden = lines.len().saturating_sub(12);
    let mut text = String::new();
    for line in lines.iter().take(12) {
        let _ = writeln!(text, "    {line}");
    }
    if hidden > 0 {
        let _ = writeln!(text, "    and {hidden} more");
    }
    (lines.len(), text)
}
