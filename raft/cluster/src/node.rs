//! One node: a store, openraft, and an HTTP server.
//!
//! | request                | effect                                                            |
//! |------------------------|-------------------------------------------------------------------|
//! | `GET /kv/KEY`          | linearizable read; `?local=true`: of this node, may be outdated    |
//! | `PUT /kv/KEY`          | stores the body                                                   |
//! | `POST /cas/KEY`        | compare-and-set: `{"expected": "1", "value": "2"}`                |
//! | `POST /members`        | starts a cluster of new nodes: `{"1": "127.0.0.1:7001", …}`       |
//! | `PUT /members/ID`      | adds the new node at the address in the body, once it caught up    |
//! | `DELETE /members/ID`   | removes a node, also one that has not caught up, and ends it       |
//! | `POST /snapshot`       | builds a snapshot and purges the log                              |
//! | `GET /status`          | openraft's metrics, identity and process of the node as JSON       |
//! | `GET /metrics`         | metrics as text for Prometheus                                    |
//!
//! A node that does not lead redirects requests to the leader with status 307, and names its
//! cluster by `?cluster=ID`. A node of another cluster refuses them with status 421. Status 504
//! means that the effect of the request is unknown, 503 and 400 to 499 that it had none. After 504
//! a change of the members may be partial: repeat it until it answers 204. If the addition of a
//! node was lost, status 409 says so: its directory has joined the cluster, and a new one must
//! replace it. Status 409 also refuses a change of the members that leaves no majority that
//! answers. A value has at most 1 MiB, and the path of a URL 65,000 bytes, which is less than the
//! longest key of a store.
//! A node ends if openraft stops, for example because its store failed.

use std::{
    error::Error,
    fs::File,
    future::pending,
    io::{ErrorKind, Read as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process,
    sync::Arc,
    thread,
    time::Duration,
};

use axum::{
    Router,
    extract::{Query, Request, State},
    http::{StatusCode, Uri, header::LOCATION},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response as HttpResponse},
    routing::{get, post, put},
};
use clap::value_parser;
use openraft::{Config, Raft, RaftMetrics, SnapshotPolicy, StorageHelper, metrics::WaitError};
use serde::Deserialize;
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore},
};

use crate::{
    Result, clients, describe,
    files::{Shares, raise_limit},
    identity::{Identity, Member, Removed, check_directory},
    members,
    metrics::{metrics, status},
    network::{Blocked, MapTypes, Network},
    peers, report,
    server::{Connections, Limits, http_client, limited, serve_connections},
    storage::Storage,
};

/// The longest body of a request of a client. Entries of two such requests and 4 MiB of others fit
/// into a request between nodes: one that does not fit would end replication.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// The longest path of a URL. A redirection appends to the URL, which the HTTP library limits.
const PATH_BYTES_MAX: usize = 65_000;

/// Time in which a client must send the next request, and read the next part of a response.
const PATIENCE: Duration = Duration::from_secs(20);

/// Concurrent linearizable reads. Each sends a request to every member.
const READS_MAX: usize = 64;

/// Limits of the body of a request of a client.
const CLIENT_LIMITS: Limits = Limits { bytes: VALUE_BYTES_MAX, patience: PATIENCE };

/// Limits of the body of a request between nodes: entries or a part of a snapshot, and its
/// envelope.
const PEER_LIMITS: Limits = Limits { bytes: 16 << 20, patience: Duration::from_secs(120) };

/// Concurrent requests of other nodes. Each of them has its body in memory.
const PEER_REQUESTS_MAX: usize = 8;

/// Default and maximum length of a part of a snapshot, in bytes. It fits into a request between
/// nodes.
const PART_BYTES_MAX: u64 = 4 << 20;

/// Interval of heartbeats in milliseconds. Elections need a longer timeout.
const HEARTBEAT_INTERVAL: u64 = 100;

/// Maximum of the timeout of elections: an hour, in milliseconds.
const ELECTION_TIMEOUT_MAX: u64 = 3_600_000;

/// Options of a node, and arguments of a command that runs one.
#[derive(Debug, Clone, clap::Args)]
pub struct Settings {
    /// Id of the node in the cluster
    #[arg(long)]
    pub id: u64,
    /// Address to listen on, which the other nodes and clients use [default: 127.0.0.1:7001, or the
    /// recorded address of a member]
    #[arg(long, value_parser = listen_address)]
    pub listen: Option<SocketAddr>,
    /// Directory of the store
    #[arg(long)]
    pub dir: PathBuf,
    /// Create the node, in an empty directory. Not for the restart of a node
    #[arg(long)]
    pub new: bool,
    /// Entries after which a snapshot is built, and the log is purged except for a tenth as many
    #[arg(long, default_value_t = 10_000)]
    pub snapshot_entries: u64,
    /// Size of the parts in which a snapshot is sent, in bytes
    #[arg(long, default_value_t = PART_BYTES_MAX)]
    #[arg(value_parser = value_parser!(u64).range(1..=PART_BYTES_MAX))]
    pub snapshot_part_bytes: u64,
    /// Election timeout in milliseconds, randomized up to twice this. Must exceed the heartbeat
    /// interval (100)
    #[arg(long, default_value_t = 400, overrides_with = "election_timeout")]
    #[arg(value_parser = value_parser!(u64).range(HEARTBEAT_INTERVAL + 1..=ELECTION_TIMEOUT_MAX))]
    pub election_timeout: u64,
    /// Stop at the end of standard input, so that the node does not outlive its parent
    #[arg(long)]
    pub child: bool,
    /// Accept requests that partition the cluster
    #[arg(long, hide = true)]
    pub faults: bool,
    /// Keep the store and its snapshots on a disk that loses what is not synced if the process is
    /// killed
    #[arg(long, hide = true)]
    pub power_cuts: bool,
    /// A bug that a test plants: `stale-read`, `lost-vote`, `lost-entry`, `unsynced-log`,
    /// `kept-leadership` or `stopped-node`
    #[arg(long, hide = true)]
    pub planted_bug: Option<String>,
}

/// Address of a node that is no member, unless `--listen` is passed.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7001);

/// Decodes an address to listen on.
fn listen_address(text: &str) -> Result<SocketAddr, &'static str> {
    let address: SocketAddr = text.parse().map_err(|_| NO_ADDRESS)?;
    // The other nodes use the address also after a restart.
    if address.port() == 0 { Err("port 0; choose a fixed port") } else { Ok(address) }
}

/// Message for an address that is none.
pub(crate) const NO_ADDRESS: &str = "not an address such as 127.0.0.1:7001";

/// Time in which a majority must accept an entry. A leader of openraft 0.9 without a majority waits
/// for ever.
pub(crate) const COMMIT_PATIENCE: Duration = Duration::from_secs(10);

/// Reason of status 504 after [`COMMIT_PATIENCE`].
pub(crate) const NO_MAJORITY: &str =
    "no majority of the nodes has answered; the request may take effect later";

/// Timeout of building a snapshot, of a purge, and of a member that catches up.
pub(crate) const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct Node<S: Storage> {
    pub(crate) identity: Identity,
    pub(crate) dir: PathBuf,
    pub(crate) network: Network,
    pub(crate) raft: Raft<S::Types>,
    pub(crate) storage: S,
    /// Places for [`PEER_REQUESTS_MAX`].
    pub(crate) peer_requests: Semaphore,
    /// Places for [`READS_MAX`].
    pub(crate) reads: Semaphore,
    /// Notified when the cluster has removed this node.
    pub(crate) removed: Notify,
    pub(crate) stale_reads: bool,
}

pub(crate) type Shared<S> = State<Arc<Node<S>>>;

/// Runs a node with the store `S` until the process ends.
///
/// # Errors
///
/// [`Removed`] if the cluster removes the node, or has removed it. If the directory has no node or
/// another one, if the address is in use, and when openraft stops.
pub async fn serve<S: Storage>(settings: Settings) -> Result<()> {
    if settings.child {
        thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            process::exit(0);
        });
    }
    check_directory::<S>(&settings)?;
    let Shares { clients, nodes } = raise_limit()?;
    // Before a store is created.
    let bound = if settings.new { Some(listen(&settings, None).await?) } else { None };
    let (storage, mut log, mut state_machine) = S::open(&settings)?;
    let identity = Identity::open(&storage, &mut log, &settings).await?;
    let members = StorageHelper::new(&mut log, &mut state_machine).get_membership().await?;
    let listener = match bound {
        Some(listener) => listener,
        None => {
            let member = members.effective().membership().get_node(&settings.id);
            let member = member.filter(|member| *member.directory == *identity.directory);
            if let (Some(member), Some(listen)) = (member, settings.listen) {
                identity.check_address(member, listen, settings.child).await?;
            }
            listen(&settings, member).await?
        }
    };
    let config = Config {
        cluster_name: "sieve".to_owned(),
        heartbeat_interval: HEARTBEAT_INTERVAL,
        election_timeout_min: settings.election_timeout,
        election_timeout_max: 2 * settings.election_timeout,
        // The last part of a snapshot returns when it is installed.
        install_snapshot_timeout: 120_000,
        snapshot_max_chunk_size: settings.snapshot_part_bytes,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.snapshot_entries),
        max_in_snapshot_log_to_keep: settings.snapshot_entries / 10,
        ..Config::default()
    };
    let (http, blocked) = (http_client()?, Blocked::default());
    let network = Network { identity: identity.clone(), http, blocked };
    let config = Arc::new(config.validate()?);
    let raft = Raft::new(settings.id, config, network.clone(), log, state_machine).await?;
    let stale_reads = settings.planted_bug.as_deref() == Some("stale-read");
    let stopped = stopped(raft.clone());
    let planted_stop = planted_stop(raft.clone(), settings.clone());
    let dir = std::path::absolute(&settings.dir)?;
    let (removed, peer_requests) = (Notify::new(), Semaphore::new(PEER_REQUESTS_MAX));
    let reads = Semaphore::new(READS_MAX.min(clients));
    let node =
        Node { identity, dir, network, raft, storage, peer_requests, reads, removed, stale_reads };
    let node = Arc::new(node);
    if !settings.child {
        report(format_args!("node {} serves at {}", settings.id, listener.local_addr()?));
        if listener.local_addr()?.ip().is_unspecified() {
            report(
                "warning: it listens at all addresses of this machine, without authentication; \
                 add it by one that the other nodes and clients reach",
            );
        }
    }
    let router = router(node.clone(), settings.faults);
    let connections = Connections { clients, nodes, patience: PATIENCE };
    tokio::select! {
        () = serve_connections(&listener, router, connections) => Ok(()),
        reason = stopped => Err(format!("openraft stopped: {reason}").into()),
        () = planted_stop => Err("a planted bug has stopped the node".into()),
        () = node.removed.notified() => Err(Removed::record(settings.id, &node.dir)?.into()),
    }
}

/// Listens at the address in `settings`, or else at the recorded one of `member`.
async fn listen(settings: &Settings, member: Option<&Member>) -> Result<TcpListener> {
    let address = match (settings.listen, member) {
        (Some(listen), _) => listen.to_string(),
        (None, Some(member)) => member.addr.clone(),
        (None, None) => LISTEN.to_string(),
    };
    let listener = TcpListener::bind(&address).await;
    Ok(listener.map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse if member.is_some() => "end the process that listens there",
            _ => "pass a free address of this machine by --listen",
        };
        format!("cannot listen on {address}: {error}; {advice}")
    })?)
}

/// Waits until openraft stops, and returns why.
async fn stopped<C: MapTypes>(raft: Raft<C>) -> String {
    let failed = |metrics: &RaftMetrics<u64, Member>| metrics.running_state.is_err();
    match raft.wait(None).metrics(failed, "openraft stops").await {
        Ok(metrics) => metrics.running_state.err().map_or_else(String::new, |e| describe(&e)),
        Err(WaitError::ShuttingDown | WaitError::Timeout(..)) => "it has ended".to_owned(),
    }
}

/// Returns if the planted bug `stopped-node` stops this node: once, so that a restart hides it.
async fn planted_stop<C: MapTypes>(raft: Raft<C>, settings: Settings) {
    if settings.planted_bug.as_deref() == Some("stopped-node") && settings.id == 1 {
        let applied = raft.wait(None).applied_index_at_least(Some(20), "entries for the bug").await;
        if applied.is_ok() && File::create_new(settings.dir.join("stopped")).is_ok() {
            return;
        }
    }
    pending::<()>().await;
}

fn router<S: Storage>(node: Arc<Node<S>>, faults: bool) -> Router {
    let router = Router::new()
        .route("/kv/{key}", get(clients::read::<S>).put(clients::write::<S>))
        .route("/cas/{key}", post(clients::compare_and_set::<S>))
        .route("/members", post(members::initialize::<S>))
        .route("/members/{id}", put(members::add::<S>).delete(members::remove::<S>))
        .route("/snapshot", post(clients::build_snapshot::<S>))
        .route("/status", get(status::<S>))
        .route("/metrics", get(metrics::<S>));
    let router =
        if faults { router.route("/faults/blocked", put(peers::block::<S>)) } else { router };
    let router = router
        .method_not_allowed_fallback(async || {
            (StatusCode::METHOD_NOT_ALLOWED, "the path has no such method")
        })
        .layer(from_fn_with_state(node.clone(), check_cluster::<S>))
        .layer(from_fn(check_path));
    let admit = from_fn_with_state(node.clone(), peers::admit::<S>);
    let peers = limited(peers::router(), PEER_LIMITS).route_layer(admit);
    limited(router, CLIENT_LIMITS)
        .merge(peers)
        .fallback(async || (StatusCode::NOT_FOUND, "no such path"))
        .with_state(node)
}

/// Refuses a path that is too long.
async fn check_path(request: Request, next: Next) -> HttpResponse {
    if request.uri().path().len() <= PATH_BYTES_MAX {
        return next.run(request).await;
    }
    let message = format!("the path has more than {PATH_BYTES_MAX} bytes; use a shorter key");
    (StatusCode::URI_TOO_LONG, message).into_response()
}

/// The query of a redirected request.
#[derive(Deserialize)]
struct Redirected {
    /// Id of the cluster of the node that has redirected the request.
    cluster: Option<String>,
}

/// Refuses a request that a node of another cluster has redirected.
async fn check_cluster<S: Storage>(
    State(node): Shared<S>,
    Query(Redirected { cluster }): Query<Redirected>,
    request: Request,
    next: Next,
) -> HttpResponse {
    match cluster {
        Some(cluster) if node.identity.cluster().as_ref() != Some(&cluster) => {
            let id = node.identity.id;
            let message = format!("this is node {id}, which does not belong to cluster {cluster}");
            (StatusCode::MISDIRECTED_REQUEST, message).into_response()
        }
        _ => next.run(request).await,
    }
}

impl<S: Storage> Node<S> {
    /// Returns a redirection to the leader, or `None` if this node leads, by its metrics.
    pub(crate) fn redirection(&self, uri: &Uri) -> Option<HttpResponse> {
        let metrics = self.raft.metrics().borrow().clone();
        match metrics.current_leader {
            Some(leader) if leader == metrics.id => None,
            Some(leader) => {
                let node = metrics.membership_config.membership().get_node(&leader).cloned();
                Some(self.redirect(node, uri))
            }
            None => Some(self.redirect(None, uri)),
        }
    }

    /// Returns status 307 to the leader `node`, or 503 if there is none.
    pub(crate) fn redirect(&self, node: Option<Member>, uri: &Uri) -> HttpResponse {
        match (node, self.identity.cluster()) {
            (Some(Member { addr, .. }), Some(cluster)) => {
                let location = [(LOCATION, location(&addr, uri, &cluster))];
                (StatusCode::TEMPORARY_REDIRECT, location).into_response()
            }
            (_, None) => {
                let id = self.identity.id;
                let reason = format!(
                    "this node belongs to no cluster; add it by PUT /members/{id} to a member"
                );
                (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
            }
            (None, Some(_)) => {
                (StatusCode::SERVICE_UNAVAILABLE, "there is no leader; try again").into_response()
            }
        }
    }
}

/// Returns the URL of a request to the leader at `addr`. It names the cluster: if the leader is
/// down, another one may listen there.
fn location(addr: &str, uri: &Uri, cluster: &str) -> String {
    let query = uri.query().unwrap_or_default();
    // Another node has redirected the request to this one.
    let is_named = query.split('&').any(|part| part.starts_with("cluster="));
    // The URI of a request through a proxy has a host.
    let url = format!("http://{addr}{}", uri.path_and_query().map_or("/", |path| path.as_str()));
    match uri.query() {
        Some(_) if is_named => url,
        Some(_) => format!("{url}&cluster={cluster}"),
        None => format!("{url}?cluster={cluster}"),
    }
}

/// Returns status 504.
pub(crate) fn unknown_effect(reason: String) -> HttpResponse {
    (StatusCode::GATEWAY_TIMEOUT, reason).into_response()
}

pub(crate) fn failed(error: &(dyn Error + 'static)) -> HttpResponse {
    (StatusCode::INTERNAL_SERVER_ERROR, describe(error)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_redirected_to_the_leader_of_the_cluster() {
        let leader = "http://127.0.0.1:7002/kv/a?";
        for (uri, query) in [
            ("/kv/a", "cluster=1f"),
            ("/kv/a?local=true", "local=true&cluster=1f"),
            ("http://proxy:80/kv/a?local=true", "local=true&cluster=1f"),
            ("/kv/a?local=true&cluster=1f", "local=true&cluster=1f"),
        ] {
            let uri = uri.parse().expect("a URI");
            assert_eq!(location("127.0.0.1:7002", &uri, "1f"), format!("{leader}{query}"));
        }
    }
}
