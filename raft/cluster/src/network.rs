//! Requests between nodes: HTTP with bodies encoded by postcard.

use std::{
    collections::BTreeSet,
    error::Error,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use openraft::{
    Entry, OptionalSend, RaftNetwork, RaftNetworkFactory, RaftTypeConfig, Snapshot, TokioRuntime,
    Vote,
    error::{
        Fatal, InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError,
        ReplicationClosed, StreamingError, Unreachable,
    },
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest,
        InstallSnapshotResponse, SnapshotResponse, VoteRequest, VoteResponse,
        responder::OneshotResponder,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use sievedb_raft::{SnapshotNetwork, SnapshotStream, send_snapshot};

use crate::{
    identity::{Identity, Member},
    map::{Request, Response},
    server::read_answer,
};

openraft::declare_raft_types!(
    /// Types of openraft.
    pub Types:
        D = Request,
        R = Response,
        NodeId = u64,
        Node = Member,
        SnapshotData = SnapshotStream,
);

/// Types of openraft with the requests of the map, for any store.
pub trait MapTypes:
    RaftTypeConfig<
        D = Request,
        R = Response,
        NodeId = u64,
        Node = Member,
        Entry = Entry<Self>,
        AsyncRuntime = TokioRuntime,
        Responder = OneshotResponder<Self>,
    >
{
}

impl<C> MapTypes for C where
    C: RaftTypeConfig<
            D = Request,
            R = Response,
            NodeId = u64,
            Node = Member,
            Entry = Entry<C>,
            AsyncRuntime = TokioRuntime,
            Responder = OneshotResponder<C>,
        >
{
}

/// The header with the id of the node that sends a request.
pub(crate) const SENDER: &str = "x-node";

/// The header with the id of the node that a request is for.
pub(crate) const TARGET: &str = "x-target";

/// The header with the id of the directory of that node.
pub(crate) const DIRECTORY: &str = "x-directory";

/// The header with the id of the cluster of the sender.
pub(crate) const CLUSTER: &str = "x-cluster";

/// The longest answer of another node: a vote, an id of an entry, or an error.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Interval of polls of the nodes to which requests are dropped.
const POLL: Duration = Duration::from_millis(20);

type Failure<E = openraft::error::Infallible> = RPCError<u64, Member, RaftError<u64, E>>;

/// Nodes to and from which this node drops requests: a partition without help of the system.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocked(Arc<Mutex<BTreeSet<u64>>>);

impl Blocked {
    pub(crate) fn set(&self, nodes: BTreeSet<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    pub(crate) fn contains(&self, node: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&node)
    }

    /// Waits until requests to and from `node` are no longer dropped.
    pub(crate) async fn end(&self, node: u64) {
        while self.contains(node) {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Connects to the other nodes.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) identity: Identity,
    pub(crate) http: reqwest::Client,
    pub(crate) blocked: Blocked,
}

impl Network {
    /// Returns a request to a member of the cluster of this node.
    pub(crate) fn request(&self, path: &str, id: u64, member: &Member) -> reqwest::RequestBuilder {
        let Member { addr, directory } = member;
        let cluster = self.identity.cluster().unwrap_or_default();
        let request = self.http.post(format!("http://{addr}/raft/{path}"));
        let request = request.header(SENDER, self.identity.id).header(TARGET, id);
        request.header(DIRECTORY, directory).header(CLUSTER, cluster)
    }
}

impl<C: MapTypes> RaftNetworkFactory<C> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, member: &Member) -> Link {
        Link { network: self.clone(), target, member: member.clone() }
    }
}

/// A connection to another node.
#[derive(Debug)]
pub(crate) struct Link {
    network: Network,
    target: u64,
    member: Member,
}

fn unreachable<E: Error>(error: &(impl Error + 'static)) -> Failure<E> {
    RPCError::Unreachable(Unreachable::new(error))
}

impl Link {
    async fn send<T: DeserializeOwned, E: Error + DeserializeOwned + 'static>(
        &self,
        path: &str,
        request: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, Failure<E>> {
        if self.network.blocked.contains(self.target) {
            // The timeout of a part of a snapshot outlasts the partition.
            let _ = tokio::time::timeout(timeout, self.network.blocked.end(self.target)).await;
            let blocked = io::Error::from(io::ErrorKind::HostUnreachable);
            return Err(unreachable(&blocked));
        }
        let body = postcard::to_stdvec(request).map_err(|error| unreachable(&error))?;
        let request = self.network.request(path, self.target, &self.member);
        let request = request.timeout(timeout).body(body);
        let sent = async {
            read_answer(request.send().await?.error_for_status()?, ANSWER_BYTES_MAX).await
        };
        // openraft pauses only before the next request to an unreachable node. One that refuses a
        // request, for example because its directory is another one, refuses the next one, too.
        let bytes = sent.await.map_err(|error| {
            let again = error.is_connect() || error.is_status();
            if again || error.is_builder() || error.is_decode() {
                unreachable(&error)
            } else {
                RPCError::Network(NetworkError::new(&error))
            }
        })?;
        let too_long = || unreachable(&io::Error::from(io::ErrorKind::FileTooLarge));
        let response: Result<T, RaftError<u64, E>> =
            postcard::from_bytes(&bytes.ok_or_else(too_long)?)
                .map_err(|error| unreachable(&error))?;
        response.map_err(|error| RPCError::RemoteError(RemoteError::new(self.target, error)))
    }
}

impl<C: MapTypes> RaftNetwork<C> for Link {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<C>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failure> {
        self.send("append", &request, option.hard_ttl()).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<C>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<InstallSnapshotError>> {
        self.send("snapshot", &request, option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<C>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<C, Fatal<u64>>> {
        send_snapshot(self, vote, snapshot, cancel, option).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, Failure> {
        self.send("vote", &request, option.hard_ttl()).await
    }
}

impl<C: MapTypes> SnapshotNetwork<C> for Link {
    async fn received_bytes(
        &mut self,
        id: &str,
        option: RPCOption,
    ) -> Result<u64, Failure<InstallSnapshotError>> {
        self.send("received", &id, option.hard_ttl()).await
    }
}
