//! Dependencies between transactions.
//!
//! | kind            | from              | to                                                   |
//! |-----------------|-------------------|------------------------------------------------------|
//! | ww              | wrote a version   | wrote the next version                               |
//! | wr              | wrote a version   | read it                                              |
//! | rw              | read a version    | wrote the next version                               |
//! | wr, rw, by scan | the same, where a scan of the range did not find the key                 |
//! | real time       | ended             | began later                                          |
//!
//! A read that finds no value does not show which version without a value it read: the initial one
//! or a removal. Where real time leaves several, the first one gives the wr dependency and the last
//! one the rw dependency. Both follow from any of them by ww dependencies in between, so no
//! dependency is invented.

use super::{
    anomaly::Anomaly,
    history::{History, Key, Operation, Transaction, WriteId},
    versions::{Fate, Place, Versions},
};

/// Kind of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Ww,
    Wr,
    PredicateWr,
    Rw,
    PredicateRw,
    RealTime,
}

impl Kind {
    /// Returns whether the first transaction read what the second one overwrote.
    pub(super) fn is_anti(self) -> bool {
        matches!(self, Self::Rw | Self::PredicateRw)
    }
}

/// A dependency: transaction `from` comes before `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) kind: Kind,
    /// Version that `from` or `to` read, or that was overwritten. `None` by real time, or if the
    /// version has no known place.
    pub(super) version: Option<Place>,
}

/// The dependencies of a history, and the anomalies of single reads.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    pub(super) edges: Vec<Dependency>,
    /// Each with its text.
    pub(super) anomalies: Vec<(Anomaly, String)>,
    /// Pairs of dependencies that lose an update.
    pub(super) lost_updates: Vec<[Dependency; 2]>,
}

impl Dependencies {
    /// Finds the dependencies of `history` but those by real time.
    pub(super) fn new(history: &History, versions: &Versions<'_>) -> Self {
        let mut found = Self::default();
        for key in versions.keys() {
            for (at, pair) in (0..).zip(versions.of_key(key).windows(2)) {
                let (from, to) = (pair[0].writer, pair[1].writer);
                found.add(from, to, Kind::Ww, Some(Place { key, at }));
            }
        }
        for (number, transaction) in (0..).zip(&history.transactions) {
            if versions.is_committed(number) {
                let mut reader =
                    Reader { number, transaction, versions, own: Vec::new(), found: &mut found };
                transaction.operations.iter().for_each(|operation| reader.operation(operation));
            }
        }
        found.add_real_time(history, versions);
        let order = |edge: &Dependency| (edge.from, edge.to, edge.kind);
        found.edges.sort_unstable_by_key(order);
        found.edges.dedup_by_key(|edge| order(edge));
        found
    }

    fn add(&mut self, from: Option<u32>, to: Option<u32>, kind: Kind, version: Option<Place>) {
        if let (Some(from), Some(to)) = (from, to)
            && from != to
        {
            self.edges.push(Dependency { from, to, kind, version });
        }
    }

    /// Adds the dependencies by real time that do not follow from others: at most one for each
    /// pair of concurrent transactions.
    fn add_real_time(&mut self, history: &History, versions: &Versions<'_>) {
        let transactions = &history.transactions;
        let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * transactions.len());
        for (number, transaction) in (0..).zip(transactions) {
            if versions.is_committed(number) {
                // Equal times are concurrent: begins come first.
                events.push((transaction.begin, false, number));
                events.push((transaction.ended(), true, number));
            }
        }
        events.sort_unstable();
        // Transactions that ended, none of them before another began.
        let mut ended: Vec<u32> = Vec::new();
        for (_, is_end, number) in events {
            if is_end {
                let begin = transactions[number as usize].begin;
                ended.retain(|&earlier| transactions[earlier as usize].ended() >= begin);
                ended.push(number);
            } else {
                for &earlier in &ended {
                    self.add(Some(earlier), Some(number), Kind::RealTime, None);
                }
            }
        }
    }
}

/// Finds the dependencies of one transaction's reads.
struct Reader<'a, 'h> {
    number: u32,
    transaction: &'h Transaction,
    versions: &'a Versions<'h>,
    /// Keys that the transaction has written so far, with the newest values.
    own: Vec<(&'h Key, Option<WriteId>)>,
    found: &'a mut Dependencies,
}

impl<'h> Reader<'_, 'h> {
    fn operation(&mut self, operation: &'h Operation) {
        match operation {
            Operation::Get { key, found } => self.read(key, *found, false),
            Operation::Scan { from, to, found } => self.scan(from, to.as_deref(), found),
            Operation::Insert { key, id } => self.write(key, Some(*id)),
            Operation::Remove { key, .. } => self.write(key, None),
        }
    }

    fn write(&mut self, key: &'h Key, value: Option<WriteId>) {
        self.own.retain(|(written, _)| *written != key);
        self.own.push((key, value));
    }

    fn report(&mut self, anomaly: Anomaly, text: &str) {
        let text = format!("T{} {text}", self.number + 1);
        self.found.anomalies.push((anomaly, text));
    }

    fn scan(&mut self, from: &str, to: Option<&str>, found: &[(Key, WriteId)]) {
        let in_bounds = |key: &str| from <= key && to.is_none_or(|to| key < to);
        if !found.iter().all(|(key, _)| in_bounds(key)) {
            self.report(Anomaly::Garbage, "scanned a key out of bounds");
        }
        if !found.is_sorted_by(|(left, _), (right, _)| left < right) {
            self.report(Anomaly::Garbage, "scanned keys out of order");
        }
        for (key, id) in found {
            self.read(key, Some(*id), true);
        }
        let mut found = found.iter().map(|(key, _)| &**key).peekable();
        for key in self.versions.range(from, to) {
            let name = self.versions.name(key);
            while found.next_if(|&found| found < name).is_some() {}
            if found.peek() != Some(&name) {
                self.read(name, None, true);
            }
        }
    }

    /// Handles a read of `key`, by a scan or not.
    fn read(&mut self, key: &str, found: Option<WriteId>, by_scan: bool) {
        if let Some(&(_, own)) = self.own.iter().find(|(written, _)| &***written == key) {
            if found != own {
                let (found, own) = (value(found), value(own));
                self.report(
                    Anomaly::Internal,
                    &format!("read {key} = {found} after writing {own}"),
                );
            }
            return;
        }
        let Some(id) = found else { return self.read_absent(key, by_scan) };
        let index = self.versions.key(key);
        let number = self.number;
        match self.versions.fate(id) {
            Some(Fate::Installed(place)) if Some(place.key) == index => {
                let version = self.versions.of_key(place.key)[place.at as usize];
                if version.writer == Some(number) || !version.is_live {
                    self.report(Anomaly::Garbage, &format!("read {key} = {id} before its write"));
                    return;
                }
                self.found.add(version.writer, Some(number), Kind::Wr, Some(place));
                self.read_before(place, Kind::Rw);
            }
            Some(Fate::Intermediate { key: at, writer } | Fate::Aborted { key: at, writer })
                if Some(at) == index && writer == number =>
            {
                self.report(Anomaly::Garbage, &format!("read {key} = {id} before its write"));
            }
            Some(Fate::Intermediate { key: at, writer }) if Some(at) == index => {
                let text = format!("read {key} = {id}, which T{} overwrote itself", writer + 1);
                self.report(Anomaly::G1b, &text);
            }
            Some(Fate::Aborted { key: at, writer }) if Some(at) == index => {
                let text = format!("read {key} = {id} of T{}, which aborted", writer + 1);
                self.report(Anomaly::G1a, &text);
            }
            Some(Fate::Unplaced { key: at, writer }) if Some(at) == index => {
                self.found.add(Some(writer), Some(number), Kind::Wr, None);
            }
            _ => self.report(Anomaly::Garbage, &format!("read {key} = {id}, never written")),
        }
    }

    fn read_absent(&mut self, name: &str, by_scan: bool) {
        // A key that was never written.
        let Some(key) = self.versions.key(name) else { return };
        let Transaction { begin, end, .. } = *self.transaction;
        let own = self.own_version(key);
        let Some((first, last)) = self.versions.absences(key, (begin, end), own) else {
            self.report(Anomaly::LostWrite, &format!("read {name} = -"));
            return;
        };
        let (wr, rw) = match by_scan {
            true => (Kind::PredicateWr, Kind::PredicateRw),
            false => (Kind::Wr, Kind::Rw),
        };
        let writer = self.versions.of_key(key)[first as usize].writer;
        self.found.add(writer, Some(self.number), wr, Some(Place { key, at: first }));
        self.read_before(Place { key, at: last }, rw);
    }

    /// Handles that the transaction read no newer version than `read`.
    fn read_before(&mut self, read: Place, kind: Kind) {
        let versions = self.versions.of_key(read.key);
        let Some(next) = versions.get(read.at as usize + 1) else { return };
        self.found.add(Some(self.number), next.writer, kind, Some(read));
        let own = self.own_version(read.key).filter(|&own| own > read.at + 1);
        let (Some(own), Some(writer)) = (own, next.writer) else { return };
        let (from, to) = (self.number, self.number);
        let overwritten = Some(Place { key: read.key, at: own - 1 });
        let read = Dependency { from, to: writer, kind, version: Some(read) };
        let wrote = Dependency { from: writer, to, kind: Kind::Ww, version: overwritten };
        self.found.lost_updates.push([read, wrote]);
    }

    /// Returns the version of `key` that the transaction wrote.
    fn own_version(&self, key: u32) -> Option<u32> {
        let name = self.versions.name(key);
        let mut writes = self.transaction.writes().rev();
        let (_, id, _) = writes.find(|(written, _, _)| &***written == name)?;
        match self.versions.fate(id) {
            Some(Fate::Installed(place)) => Some(place.at),
            _ => None,
        }
    }
}

/// Returns a value as text.
pub(super) fn value(id: Option<WriteId>) -> String {
    id.map_or_else(|| "-".to_owned(), |id| id.to_string())
}
