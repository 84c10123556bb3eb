//! The start of a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use openraft::StoredMembership;

use super::{PATIENCE, POLL, Processes, STATUS_TIMEOUT, list};
use crate::{
    Result,
    client::Client,
    directories::{self, clear},
    identity::{Member, is_unused},
    metrics::About,
};

/// What a running node is in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A member.
    Member,
    /// Not a member, though it has the id of one: its directory has replaced that of the member.
    Replaced,
    /// Not a member of any cluster.
    New,
    /// Removed from its cluster, or the entry that added it was lost with a leader.
    Removed,
}

impl Processes {
    /// Starts nodes 1 to `count`, except removed ones, and waits for a leader. If none of them is a
    /// member of a cluster, they form a new one. If it fails before that, it removes the
    /// directories that it has created.
    ///
    /// # Errors
    ///
    /// If an address or the directory is in use, if a node ends, for example because it is a member
    /// at another address, if most members do not run, or if there is no leader after a minute.
    pub async fn start_cluster(&mut self, count: u64) -> Result<u64> {
        // A process that answers at one of the addresses may have any state.
        for node in 1..=count {
            self.check_address(node).await?;
        }
        let existed = self.dir.exists();
        if self.lock.is_none() {
            self.lock = Some(directories::lock(&self.dir)?);
        }
        let mut created = Vec::new();
        for dir in (1..=count).map(|node| self.dir(node)) {
            if is_unused(&dir)? {
                created.push((dir.exists(), dir));
            }
        }
        if let Err(error) = self.start_nodes(count).await {
            self.kill_all();
            // The error of the start is the one to report.
            for (existed, dir) in created {
                let _ = clear(&dir, existed);
            }
            directories::remove_lock(&self.dir, existed);
            self.lock = None;
            return Err(error);
        }
        let led = self.form_or_join().await;
        if led.is_err() {
            // The nodes may be members now.
            self.kill_all();
        }
        led
    }

    /// Checks that no process listens at the address of a node.
    async fn check_address(&self, node: u64) -> Result<()> {
        if self.places.check_free(node).is_ok() {
            return Ok(());
        }
        // A process that another thread starts has the sockets of this one until it runs its
        // program.
        tokio::time::sleep(2 * POLL).await;
        let Err(error) = self.places.check_free(node) else { return Ok(()) };
        let address = self.places.listen_address(node);
        let advice = "use other ports";
        let client = self.client(node, STATUS_TIMEOUT)?;
        let status = client.call("GET", "/status", "").await.unwrap_or_default();
        let Ok(About { id, path, process_id, .. }) = serde_json::from_str(&status) else {
            return Err(format!("cannot listen on {address}: {error}; {advice}").into());
        };
        let is_own = path == self.dir(id).display().to_string();
        Err(if is_own {
            format!("node {id} in {path} runs already, as process {process_id}; end it first")
        } else {
            format!("{address} is in use by node {id} in {path}, process {process_id}; {advice}")
        }
        .into())
    }

    /// Starts nodes 1 to `count`, except removed ones, and waits until they answer. Nodes of a
    /// cluster that end, for example because their stores are damaged, may be a minority.
    async fn start_nodes(&mut self, count: u64) -> Result<()> {
        for node in (1..=count).filter(|&node| !self.is_removed(node)).collect::<Vec<_>>() {
            self.start(node)?;
        }
        let mut failed = None;
        let membership = loop {
            let error = match self.poll(PATIENCE, async || self.membership().await).await {
                Ok(membership) => break membership,
                Err(error) => error,
            };
            let ended = self.take_ended();
            if ended.is_empty() || self.running().next().is_none() {
                return Err(error);
            }
            failed = failed.or_else(|| ended.into_iter().next());
        };
        let checked = self.check_started(count, &membership).await;
        match failed {
            Some((_, end)) if checked.is_err() || membership.nodes().next().is_none() => {
                Err(end.into())
            }
            _ => checked,
        }
    }

    /// Checks that the running nodes are those of a new cluster, or a majority of the cluster with
    /// `membership`.
    async fn check_started(
        &self,
        count: u64,
        membership: &StoredMembership<u64, Member>,
    ) -> Result<()> {
        if membership.nodes().next().is_none()
            && let Some(other) = self.node_after(count)?
        {
            let dir = self.dir(other);
            return Err(format!(
                "{} has a node that was not started: pass --nodes {other}, or another directory",
                dir.display()
            )
            .into());
        }
        let mut running = BTreeSet::new();
        for (&id, member) in membership.nodes() {
            if self.client_of(id, member).await.is_some() {
                running.insert(id);
            }
        }
        let started = self.running().collect();
        let configurations = membership.membership().get_joint_config();
        configurations.iter().try_for_each(|voters| check_majority(voters, &running, &started))
    }

    /// Returns the last node after `count` that has a directory: it may be a member of a cluster.
    fn node_after(&self, count: u64) -> Result<Option<u64>> {
        let mut last = None;
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let node = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
            if let Some(node) = node
                && node > count
                && !is_unused(&self.dir(node))?
            {
                last = last.max(Some(node));
            }
        }
        Ok(last)
    }

    /// Forms a cluster of the running nodes unless there is one. Waits for a leader, which all of
    /// these nodes that are members report.
    async fn form_or_join(&self) -> Result<u64> {
        let own: BTreeMap<_, _> =
            self.running().map(|node| (node, self.peer_address(node))).collect();
        let body = serde_json::to_string(&own)?;
        let first = self.running().next().ok_or("all nodes were removed from their cluster")?;
        let client = self.client(first, PATIENCE)?;
        let form_or_join = async || {
            let members = self.members().await?;
            if members.is_empty() {
                // Status 409 if it had not reported its members yet. The next call reads them.
                client.call("POST", "/members", &body).await?;
                return Err("the cluster is being formed".into());
            }
            Ok(members)
        };
        let members = self.poll(PATIENCE, form_or_join).await?;
        let mut nodes = Vec::new();
        for node in own.into_keys() {
            if self.role(node, &members).await? == Role::Member {
                nodes.push(node);
            }
        }
        let led = async || {
            for (&id, member) in &members {
                let Some(client) = self.client_of(id, member).await else { continue };
                // Only a leader answers. A restarted node reports its former leader.
                let leads = client.get("name").await.is_ok();
                if leads && (nodes.is_empty() || self.leader_by(&nodes).await == Some(id)) {
                    return Ok(id);
                }
            }
            let (nodes, members) = (list(&nodes), list(members.keys()));
            let advice = format!("most of the members {members} must run");
            Err(format!("nodes {nodes} have no leader; {advice}").into())
        };
        self.poll(PATIENCE, led).await
    }

    /// Returns a client of `member` if that runs, here or elsewhere, with its recorded directory.
    async fn client_of(&self, id: u64, member: &Member) -> Option<Client> {
        let is_here = self.process_id(id).is_some();
        let url = if is_here { self.url(id) } else { format!("http://{}", member.addr) };
        let client = Client::new(&url, STATUS_TIMEOUT).ok()?;
        let about: About =
            serde_json::from_str(&client.call("GET", "/status", "").await.ok()?).ok()?;
        (about.id == id && about.directory == member.directory).then_some(client)
    }

    /// Describes a removed node.
    #[must_use]
    pub fn removal(&self, node: u64) -> String {
        let dir = self.dir(node);
        format!(
            "removed from the cluster; to add a new node, delete {}, and start again",
            dir.display()
        )
    }

    /// Describes a node that does not run after a start.
    fn absence(&self, node: u64) -> String {
        if self.is_removed(node) {
            return self.removal(node);
        }
        let dir = self.dir(node);
        format!(
            "has ended, for the reason above; if its store is lost or damaged, delete {}, and \
             start again to replace the node",
            dir.display()
        )
    }

    /// Describes the nodes 1 to `count` after a start, and requests to try.
    ///
    /// # Errors
    ///
    /// If a node does not answer.
    pub async fn summary(&self, count: u64, leader: u64) -> Result<String> {
        let members = self.members().await?;
        let url = &members.get(&leader).ok_or("the leader was removed")?.addr;
        // Ends with an error after status 503, as the command after `&&` does not run then.
        let change = "curl -L --fail-with-body -X";
        let mut text = String::new();
        for node in 1..=count {
            let Some(process) = self.process_id(node) else {
                text += &format!("node {node}: {}\n", self.absence(node));
                continue;
            };
            let role = self.role(node, &members).await?;
            let leads = if node == leader && role == Role::Member { ", leader" } else { "" };
            text += &format!("node {node}: {}, process {process}{leads}\n", self.url(node));
            let remove = format!("{change} DELETE http://{url}/members/{node}");
            let address = self.peer_address(node);
            let add = format!("{change} PUT http://{url}/members/{node} -d {address}");
            text += &match role {
                Role::Member => String::new(),
                Role::New => format!("  no member; to add it: {add}\n"),
                Role::Replaced => format!(
                    "  not the member {node}, whose directory is lost; to replace that member:\n  \
                     {remove} && {add}\n"
                ),
                Role::Removed => {
                    format!("  its addition was lost, or it was {}\n", self.removal(node))
                }
            };
        }
        let mut absent = Vec::new();
        for (&id, member) in members.iter().filter(|(id, _)| **id > count) {
            if self.client_of(id, member).await.is_none() {
                absent.push(id);
            }
        }
        if let Some(advice) = not_started(&absent) {
            text += &format!("{advice}\n");
        }
        text += &format!(
            "\ntry:\n  curl -L -X PUT http://{url}/kv/name -d anna\n  curl -L \
             http://{url}/kv/name\n  curl -L http://{url}/cas/name --json '{{\"expected\": \
             \"anna\", \"value\": \"berta\"}}'\n  curl http://{url}/metrics\n"
        );
        Ok(text)
    }

    /// Returns what a running node is in the cluster with `members`.
    ///
    /// # Errors
    ///
    /// If the node does not answer.
    pub async fn role(&self, node: u64, members: &BTreeMap<u64, Member>) -> Result<Role> {
        let About { directory, cluster, .. } = serde_json::from_value(self.status(node).await?)?;
        Ok(match (members.get(&node), cluster) {
            (Some(member), _) if member.directory == directory => Role::Member,
            (Some(_), _) => Role::Replaced,
            (None, None) => Role::New,
            (None, Some(_)) => Role::Removed,
        })
    }
}

/// Checks that a majority of `voters` is among the `running` members. `started` contains the nodes
/// that were started here, also those that are no members because their directories were lost.
fn check_majority(
    voters: &BTreeSet<u64>,
    running: &BTreeSet<u64>,
    started: &BTreeSet<u64>,
) -> Result<()> {
    let is_majority = |count: usize| 2 * count > voters.len();
    if voters.is_empty() || is_majority(voters.intersection(running).count()) {
        return Ok(());
    }
    let down: BTreeSet<_> = voters.difference(running).copied().collect();
    let lost = down.intersection(started).count();
    if !is_majority(voters.len() - lost) {
        return Err(format!(
            "{lost} of {} directories are lost: there is no majority; see Backups and lost nodes \
             in raft/README.md",
            voters.len()
        )
        .into());
    }
    let absent: Vec<_> = down.difference(started).copied().collect();
    Err(not_started(&absent).ok_or("no majority of the members runs")?.into())
}

/// Returns advice about the members `absent`, or `None` if there are none.
fn not_started(absent: &[u64]) -> Option<String> {
    let last = absent.last()?;
    let (members, were) = if absent.len() == 1 { ("member", "was") } else { ("members", "were") };
    Some(format!("{members} {} {were} not started: pass --nodes {last}", list(absent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_without_a_majority_reports_the_cause() {
        let check = |voters: &[u64], running: &[u64], started: &[u64]| {
            let set = |nodes: &[u64]| nodes.iter().copied().collect::<BTreeSet<_>>();
            let checked = check_majority(&set(voters), &set(running), &set(started));
            checked.err().map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(check(&[], &[], &[1]), "");
        assert_eq!(check(&[1, 2, 3], &[1, 2], &[1, 2, 3]), "");
        // The other members run elsewhere.
        assert_eq!(check(&[1, 2, 3], &[2, 3], &[1]), "");
        let lost = "directories are lost: there is no majority; see Backups";
        assert!(check(&[1, 2, 3], &[1], &[1, 2, 3]).starts_with(&format!("2 of 3 {lost}")));
        assert!(check(&[1, 2], &[2], &[1, 2]).starts_with(&format!("1 of 2 {lost}")));
        let absent = "members 2 and 3 were not started: pass --nodes 3";
        assert_eq!(check(&[1, 2, 3], &[1], &[1]), absent);
        assert_eq!(check(&[1, 2, 3], &[1], &[1, 2]), "member 3 was not started: pass --nodes 3");
    }
}
