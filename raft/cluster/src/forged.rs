//! Checks of decoded requests, which no node of the cluster would send but any process may.

use openraft::{
    LogId, Vote,
    raft::{AppendEntriesRequest, InstallSnapshotRequest, VoteRequest},
};

use crate::network::MapTypes;

/// Elections between the term of this node and that of a request. A later term would be the last
/// one: terms end at `u64::MAX`.
const TERMS_MAX: u64 = 1 << 32;

/// The last index of an entry, and the last position in a snapshot.
const INDEX_MAX: u64 = 1 << 62;

/// A request that may be forged.
pub(crate) trait Check {
    /// Checks a request to a node with the term `own`.
    ///
    /// # Errors
    ///
    /// The reason why no node would send the request.
    fn check(&self, own: u64) -> Result<(), String> {
        let _ = own;
        Ok(())
    }
}

impl Check for () {}

impl Check for String {}

impl Check for VoteRequest<u64> {
    fn check(&self, own: u64) -> Result<(), String> {
        check_vote(&self.vote, own)?;
        check_ids(&self.last_log_id, own)
    }
}

impl<C: MapTypes> Check for AppendEntriesRequest<C> {
    fn check(&self, own: u64) -> Result<(), String> {
        check_vote(&self.vote, own)?;
        check_ids(self.prev_log_id.iter().chain(&self.leader_commit), own)?;
        check_ids(self.entries.iter().map(|entry| &entry.log_id), own)?;
        let first = self.prev_log_id.map_or(0, |id| id.index + 1);
        let indexes = self.entries.iter().map(|entry| entry.log_id.index);
        match (first..).zip(indexes).find(|(expected, index)| expected != index) {
            Some((expected, index)) => {
                Err(format!("the request has entry {index}, not {expected}"))
            }
            None => Ok(()),
        }
    }
}

impl<C: MapTypes> Check for InstallSnapshotRequest<C> {
    fn check(&self, own: u64) -> Result<(), String> {
        check_vote(&self.vote, own)?;
        let members = self.meta.last_membership.log_id();
        check_ids(self.meta.last_log_id.iter().chain(members), own)?;
        check_index(self.offset)
    }
}

fn check_vote(vote: &Vote<u64>, own: u64) -> Result<(), String> {
    check_term(vote.leader_id().term, own)
}

fn check_ids<'a>(ids: impl IntoIterator<Item = &'a LogId<u64>>, own: u64) -> Result<(), String> {
    ids.into_iter().try_for_each(|id| {
        check_term(id.leader_id.term, own)?;
        check_index(id.index)
    })
}

fn check_term(term: u64, own: u64) -> Result<(), String> {
    if term > own.saturating_add(TERMS_MAX) {
        return Err(format!("term {term} is too far from term {own}"));
    }
    Ok(())
}

fn check_index(index: u64) -> Result<(), String> {
    if index > INDEX_MAX { Err(format!("index {index} is above {INDEX_MAX}")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use openraft::{CommittedLeaderId, Entry, EntryPayload, SnapshotMeta};

    use super::*;
    use crate::network::Types;

    fn id(term: u64, index: u64) -> LogId<u64> {
        LogId::new(CommittedLeaderId::new(term, 1), index)
    }

    fn append(term: u64, prev: Option<LogId<u64>>, indexes: &[u64]) -> Result<(), String> {
        let entry = |index: &u64| Entry { log_id: id(1, *index), payload: EntryPayload::Blank };
        let (vote, entries) = (Vote::new_committed(term, 1), indexes.iter().map(entry).collect());
        let request =
            AppendEntriesRequest::<Types> { vote, prev_log_id: prev, entries, leader_commit: None };
        request.check(7)
    }

    #[test]
    fn requests_that_no_node_would_send_are_refused() {
        assert_eq!(append(7 + TERMS_MAX, Some(id(1, INDEX_MAX)), &[]), Ok(()));
        assert_eq!(append(1, None, &[0, 1, 2]), Ok(()));
        assert_eq!(append(1, Some(id(1, 4)), &[5, 6]), Ok(()));
        for (term, prev, indexes) in [
            (8 + TERMS_MAX, None, &[][..]),
            (1, Some(id(8 + TERMS_MAX, 0)), &[]),
            (1, Some(id(1, u64::MAX)), &[]),
            (1, None, &[1]),
            (1, Some(id(1, 4)), &[4]),
            (1, Some(id(1, 4)), &[5, 7]),
            (1, Some(id(1, INDEX_MAX)), &[INDEX_MAX + 1]),
        ] {
            assert!(append(term, prev, indexes).is_err(), "{term} {prev:?} {indexes:?}");
        }
        let vote = VoteRequest::new(Vote::new(u64::MAX, 1), None);
        assert!(vote.check(7).is_err());
        let (vote, data) = (Vote::new_committed(7, 1), Vec::new());
        let meta = SnapshotMeta { last_log_id: Some(id(7, 1)), ..SnapshotMeta::default() };
        let mut snapshot =
            InstallSnapshotRequest::<Types> { vote, meta, offset: 0, data, done: false };
        assert_eq!(snapshot.check(7), Ok(()));
        snapshot.offset = INDEX_MAX + 1;
        assert!(snapshot.check(7).is_err());
    }
}
