//! The start of a cluster.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use super::{PATIENCE, Processes, list};
use crate::{
    Result,
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
    /// Starts nodes 1 to `count`, and waits for a leader. If none of them is a member of a cluster,
    /// they form a new one. If it fails before that, it removes the directories that it has
    /// created.
    ///
    /// # Errors
    ///
    /// If an address is in use, if a node ends, for example because it is a member at another
    /// address, or if there is no leader after a minute.
    pub async fn start_cluster(&mut self, count: u64) -> Result<u64> {
        // A process that answers at one of the addresses may have any state.
        for node in 1..=count {
            self.check_address(node).await?;
        }
        let existed = self.dir.exists();
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
            if !existed {
                // Fails if it contains a node that another process has created.
                let _ = fs::remove_dir(&self.dir);
            }
            return Err(error);
        }
        let led = self.form_or_join(count).await;
        if led.is_err() {
            // The nodes may be members now.
            self.kill_all();
        }
        led
    }

    /// Checks that no process listens at the address of a node.
    async fn check_address(&self, node: u64) -> Result<()> {
        let Err(error) = self.places.check_free(node) else { return Ok(()) };
        let address = self.places.listen_address(node);
        let advice = "use other ports";
        let client = self.client(node, Duration::from_secs(2))?;
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

    /// Starts nodes 1 to `count`, and waits until they answer.
    async fn start_nodes(&mut self, count: u64) -> Result<()> {
        for node in 1..=count {
            self.start(node)?;
        }
        self.poll(PATIENCE, async || self.members().await.map(drop)).await
    }

    /// Forms a cluster of the nodes 1 to `count` unless there is one. Waits for a leader.
    async fn form_or_join(&self, count: u64) -> Result<u64> {
        let own: BTreeMap<_, _> = (1..=count).map(|node| (node, self.peer_address(node))).collect();
        let body = serde_json::to_string(&own)?;
        let client = self.client(1, PATIENCE)?;
        let form_or_join = async || {
            let members = self.members().await?;
            if members.is_empty() {
                // Status 409 if node 1 had not reported its members yet. The next call reads them.
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
        let led = async || match self.leader_by(&nodes).await {
            Some(leader) => Ok(leader),
            None => Err(format!(
                "nodes {} have no leader; most of the members {} must run",
                list(&nodes),
                list(members.keys())
            )
            .into()),
        };
        self.poll(PATIENCE, led).await
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

/// Removes the contents of a directory, and the directory unless it is `kept`.
fn clear(dir: &Path, kept: bool) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    if !kept {
        fs::remove_dir(dir)?;
    }
    Ok(())
}
