//! Which node, which cluster and which directory a process is.
//!
//! A member has promised votes and entries that only its directory contains. So each directory has
//! a random id, which the membership and every request between nodes name. A directory that has
//! replaced that of a member never answers as that member, also under its id and at its address.
//!
//! A new directory belongs to no cluster. It joins the cluster of the first request for its id,
//! which only a cluster that has it as a member sends, and no other one after that.

use std::{
    error::Error,
    fmt,
    fs::File,
    hash::{BuildHasher as _, RandomState},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use openraft::storage::RaftLogStorage as _;
use serde::{Deserialize, Serialize};

use crate::{Result, directories::named, node::Settings, storage::Storage};

/// A member of a cluster, as the membership names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Address for other nodes and for clients.
    pub addr: String,
    /// Id of its directory.
    pub directory: String,
}

/// The record of a store about its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Id of the node.
    pub id: u64,
    /// Id of the directory.
    pub directory: String,
    /// Id of the cluster. `None` before the first request of a cluster.
    pub cluster: Option<String>,
}

/// Returns an id that no other directory has.
fn random_id() -> String {
    // Seeded by the system. fastrand is seeded by the time since the start of the machine.
    format!("{:016x}", RandomState::new().hash_one(()))
}

/// Returns `true` if `id` has the form of the id of a directory or a cluster.
pub(crate) fn is_id(id: &str) -> bool {
    id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Returns the id of the cluster that new nodes form: the exclusive or of the ids of their
/// directories. So only the same nodes form the same cluster.
///
/// # Errors
///
/// If the id of a directory is not a number.
pub(crate) fn cluster_of<'a>(members: impl IntoIterator<Item = &'a Member>) -> Result<String> {
    let mut cluster = 0;
    for Member { addr, directory } in members {
        let directory = u64::from_str_radix(directory, 16);
        cluster ^= directory.map_err(|error| format!("id of the directory at {addr}: {error}"))?;
    }
    Ok(format!("{cluster:016x}"))
}

/// The file in the directory of a node that its cluster has removed.
const REMOVED: &str = "removed";

/// Error of a node that its cluster has removed.
#[derive(Debug)]
pub struct Removed {
    id: u64,
    dir: PathBuf,
}

impl Removed {
    /// Exit status of a node that its cluster has removed.
    pub const STATUS: u8 = 3;

    /// Records the removal of the node `id` in its directory, so that no restart begins elections.
    pub(crate) fn record(id: u64, dir: &Path) -> Result<Self> {
        let file = dir.join(REMOVED);
        let recorded = File::create(&file).and_then(|file| file.sync_all());
        recorded.map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self { id, dir: dir.to_owned() })
    }
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, dir } = self;
        let dir = dir.display();
        write!(f, "node {id} was removed from its cluster; delete {dir}, and add a new node")
    }
}

impl Error for Removed {}

/// Advice for a node that may have lost acknowledged entries.
pub(crate) const REPLACEMENT: &str =
    "remove this node from the cluster, and add a new node with an empty directory";

/// Returns `true` if the directory of a node records that its cluster has removed it.
pub(crate) fn is_removed(dir: &Path) -> bool {
    dir.join(REMOVED).exists()
}

/// Checks that a directory contains a store of `S`, or nothing if the node is new.
///
/// # Errors
///
/// If the directory of a node to restart has no store: a member would have lost its vote and its
/// log. If the cluster has removed the node. If the directory of a new node is not empty.
pub(crate) fn check_directory<S: Storage>(settings: &Settings) -> Result<()> {
    let (id, dir) = (settings.id, settings.dir.display());
    if is_removed(&settings.dir) {
        return Err(Removed { id, dir: std::path::absolute(&settings.dir)? }.into());
    }
    let has_store = settings.dir.join(S::NAME).is_dir();
    match settings.new {
        false if !has_store => Err(format!(
            "there is no node in {dir}; check --dir, or pass --new and an empty directory if node \
             {id} was no member before"
        )
        .into()),
        true if has_store => Err(format!("{dir} has a node; to restart it, omit --new").into()),
        true if !is_unused(&settings.dir)? => {
            Err(format!("{dir} is not empty; use an empty directory").into())
        }
        _ => Ok(()),
    }
}

/// Returns `true` if a directory is missing or empty.
pub(crate) fn is_unused(dir: &Path) -> Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => named(dir, Err(error)),
    }
}

/// The identity of the node of this process.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) id: u64,
    pub(crate) directory: Arc<str>,
    cluster: Arc<Mutex<Option<String>>>,
}

impl Identity {
    /// Reads the identity in `storage`, or chooses that of a new node. A node whose creation was
    /// interrupted is new: it has no vote before its identity is recorded.
    ///
    /// # Errors
    ///
    /// If the store has the state of another node: a node that answers under the id of another one
    /// has two votes in an election. If the store has a vote but no identity.
    pub(crate) async fn open<S: Storage>(
        storage: &S,
        log: &mut S::Log,
        settings: &Settings,
    ) -> Result<Self> {
        let (id, dir) = (settings.id, settings.dir.display());
        let record = match storage.identity()? {
            Some(record) if record.id == id => record,
            Some(Record { id: found, .. }) => {
                return Err(format!(
                    "{dir} is the directory of node {found}, not of node {id}; pass --id {found}, \
                     or another directory"
                )
                .into());
            }
            None if log.read_vote().await?.is_none() => {
                let record = Record { id, directory: random_id(), cluster: None };
                storage.record_identity(&record)?;
                record
            }
            None => {
                return Err(format!(
                    "{dir} has a vote but no identity: the store is damaged, or an earlier \
                     release created it; pass --new and an empty directory"
                )
                .into());
            }
        };
        let Record { id, directory, cluster } = record;
        Ok(Self { id, directory: directory.into(), cluster: Arc::new(Mutex::new(cluster)) })
    }

    /// Checks that this node, which is `member`, listens at the recorded address, which the other
    /// members and redirections use. `is_child` is set for a node of a command such as `start`.
    ///
    /// # Errors
    ///
    /// If it listens at another one.
    pub(crate) async fn check_address(
        &self,
        member: &Member,
        listen: SocketAddr,
        is_child: bool,
    ) -> Result<()> {
        let addr = &member.addr;
        // A name that cannot be resolved now may be that of this machine.
        let Ok(recorded) = tokio::net::lookup_host(addr).await else { return Ok(()) };
        let recorded: Vec<_> = recorded.collect();
        let is_any = listen.ip().is_unspecified();
        let is_recorded = |recorded: &SocketAddr| {
            recorded.port() == listen.port() && (is_any || recorded.ip() == listen.ip())
        };
        if recorded.iter().any(is_recorded) {
            return Ok(());
        }
        let id = self.id;
        // The nodes of `start` have successive ports.
        let first = recorded.iter().find(|recorded| recorded.ip() == Ipv4Addr::LOCALHOST);
        let before = id.checked_sub(1).and_then(|before| u16::try_from(before).ok());
        let first = first.and_then(|node| node.port().checked_sub(before?));
        let advice = match first.filter(|_| is_child) {
            Some(first) => format!("pass --port {first}"),
            None => "start it by `sieve-cluster node` without --listen".to_owned(),
        };
        Err(format!("node {id} is a member at {addr}; {advice}, or remove it and add a new one")
            .into())
    }

    /// Returns the id of the cluster, or `None` before the first request of a cluster.
    pub(crate) fn cluster(&self) -> Option<String> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks that this node belongs to `cluster`, or to none.
    ///
    /// # Errors
    ///
    /// If this node belongs to another cluster.
    pub(crate) fn check_cluster(&self, cluster: &str) -> Result<()> {
        match self.cluster() {
            Some(own) if own != cluster => {
                Err(format!("node {} belongs to cluster {own}, not to {cluster}", self.id).into())
            }
            _ => Ok(()),
        }
    }

    /// Joins `cluster` if this node belongs to none. The record is durable when this returns.
    ///
    /// # Errors
    ///
    /// If this node belongs to another cluster, or if the record cannot be written.
    pub(crate) fn join(&self, storage: &impl Storage, cluster: &str) -> Result<()> {
        let mut own = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        if own.is_none() {
            let (id, directory) = (self.id, self.directory.to_string());
            let cluster = Some(cluster.to_owned());
            storage.record_identity(&Record { id, directory, cluster: cluster.clone() })?;
            *own = cluster;
        }
        drop(own);
        // The own cluster never changes.
        self.check_cluster(cluster)
    }
}
