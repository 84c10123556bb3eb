//! Majorities of the members that a change of the members leaves.

use std::collections::BTreeSet;

use crate::{members::probe, node::Node, storage::Storage};

/// Checks that most of the `next` voters answer, with their recorded directories. New ones have
/// answered. Otherwise the change would wait for a majority that does not exist, and so would all
/// later requests.
///
/// # Errors
///
/// The reason why the change is refused.
pub(crate) async fn check_majority<S: Storage>(
    node: &Node<S>,
    next: &BTreeSet<u64>,
) -> Result<(), String> {
    let members = node.raft.metrics().borrow().membership_config.clone();
    let voters: BTreeSet<_> = members.membership().voter_ids().collect();
    let mut probes = Vec::new();
    for (&id, member) in members.nodes().filter(|(id, _)| **id != node.identity.id) {
        let (http, member) = (node.network.http.clone(), member.clone());
        let answers = async move {
            let about = probe(&http, id, &member.addr).await;
            about.is_ok_and(|about| about.directory == member.directory)
        };
        probes.push((id, tokio::spawn(answers)));
    }
    let mut silent = BTreeSet::new();
    for (id, answers) in probes {
        if !answers.await.unwrap_or(false) {
            silent.insert(id);
        }
    }
    refusal(&voters, next, &silent).map_or(Ok(()), Err)
}

/// Returns the reason why a change from `voters` to `next` is refused, or `None`.
fn refusal(voters: &BTreeSet<u64>, next: &BTreeSet<u64>, silent: &BTreeSet<u64>) -> Option<String> {
    let has_majority = |of: &BTreeSet<u64>| 2 * of.difference(silent).count() > of.len();
    if has_majority(next) {
        return None;
    }
    let ids: Vec<_> = next.intersection(silent).map(u64::to_string).collect();
    let (ids, one) = (ids.join(", "), ids.len() == 1);
    let (nodes, not, them) =
        if one { ("node", "does not", "it") } else { ("nodes", "do not", "them") };
    // A cluster without a majority removes no node.
    let advice = match has_majority(voters) {
        true => {
            format!("without {them} the remaining nodes have no majority; remove {nodes} {ids}")
        }
        false => format!("the cluster has no majority; start {them}"),
    };
    Some(format!("{nodes} {ids} {not} answer; {advice} first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_leaves_no_majority_is_refused() {
        let refusal = |voters: &[u64], next: &[u64], silent: &[u64]| {
            let set = |ids: &[u64]| ids.iter().copied().collect();
            refusal(&set(voters), &set(next), &set(silent))
        };
        assert_eq!(refusal(&[1, 2, 3], &[1, 2], &[3]), None);
        assert_eq!(refusal(&[1, 2, 3], &[1, 2, 3, 4], &[3]), None);
        assert_eq!(refusal(&[1], &[1, 2], &[]), None);
        let reason = refusal(&[1, 2, 3], &[1, 3], &[3]).expect("a refusal");
        let expected = "node 3 does not answer; without it the remaining nodes have no majority; \
                        remove node 3 first";
        assert_eq!(reason, expected);
        let reason = refusal(&[1, 2, 3], &[1, 3], &[2, 3]).expect("a refusal");
        assert_eq!(reason, "node 3 does not answer; the cluster has no majority; start it first");
        let reason = refusal(&[1, 2, 3, 4, 5], &[1, 2, 4, 5], &[4, 5]).expect("a refusal");
        assert!(reason.starts_with("nodes 4, 5 do not answer; without them"), "{reason}");
    }
}
