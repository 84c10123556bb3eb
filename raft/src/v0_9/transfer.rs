//! Transfers of snapshots that continue after an interruption, with openraft 0.9.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    result::Result as StdResult,
    task::Poll,
    time::Duration,
};

use openraft::{
    OptionalSend, Raft, RaftNetwork, RaftTypeConfig, Snapshot, SnapshotSegmentId, StorageError,
    StorageIOError, Vote,
    error::{
        Fatal, InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError,
        ReplicationClosed, SnapshotMismatch, StreamingError,
    },
    network::RPCOption,
    raft::{InstallSnapshotRequest, InstallSnapshotResponse, SnapshotResponse},
    type_config::TypeConfigExt as _,
};
use tokio::io::{AsyncRead, AsyncSeek};

use super::{Id, Types};
use crate::{Error, SnapshotPart, SnapshotParts, SnapshotReceiver};

/// Failures in a row, without a part that arrives, at which a transfer is aborted.
const FAILURES_MAX: u32 = 5;

/// Interval of retries, if the network has none.
const RETRY: Duration = Duration::from_millis(500);

/// Length of parts, if openraft sets none.
const PART_BYTES: usize = 3 << 20;

type Failure<C> =
    RPCError<Id<C>, <C as RaftTypeConfig>::Node, RaftError<Id<C>, InstallSnapshotError>>;

/// A network that queries the bytes of a snapshot that another node has received.
pub trait SnapshotNetwork<C: RaftTypeConfig>: RaftNetwork<C> {
    /// Returns [`SnapshotReceiver::received_bytes`] of the other node for the snapshot `id`.
    ///
    /// # Errors
    ///
    /// Errors of the network and of the other node.
    fn received_bytes(
        &mut self,
        id: &str,
        option: RPCOption,
    ) -> impl Future<Output = StdResult<u64, Failure<C>>> + Send;
}

/// Sends the rest of `snapshot` in parts by [`RaftNetwork::install_snapshot`], starting after the
/// bytes already received: an implementation of [`RaftNetwork::full_snapshot`].
///
/// The default implementation begins each transfer at the first byte. This one continues after a
/// failure: it retries at the intervals of [`RaftNetwork::backoff`], and aborts after five failures
/// without a part between them. openraft then sends its current snapshot, which continues if it is
/// the same one. The other node must call [`SnapshotReceiver::install_snapshot`] for each part, and
/// pass openraft an empty append before it.
///
/// # Errors
///
/// Errors of the snapshot and of the network; `Closed` if `cancel` is ready.
pub async fn send_snapshot<C, N>(
    network: &mut N,
    vote: Vote<Id<C>>,
    mut snapshot: Snapshot<C>,
    cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
    option: RPCOption,
) -> StdResult<SnapshotResponse<Id<C>>, StreamingError<C, Fatal<Id<C>>>>
where
    C: RaftTypeConfig<SnapshotData: AsyncRead + AsyncSeek + Unpin>,
    N: SnapshotNetwork<C> + ?Sized,
{
    let mut cancel = pin!(cancel);
    let (mut failures, mut backoff) = (0, None);
    loop {
        let mut has_sent = false;
        let rest =
            send_rest(network, &vote, &mut snapshot, cancel.as_mut(), &option, &mut has_sent);
        let failure = match rest.await? {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        if has_sent {
            (failures, backoff) = (0, None);
        }
        failures += 1;
        if let Some(error) = final_error::<C>(failure, failures) {
            return Err(error);
        }
        let backoff = backoff.get_or_insert_with(|| network.backoff());
        C::sleep(backoff.next().unwrap_or(RETRY)).await;
    }
}

/// Sends the parts that the other node has not received. Returns the failure of a request apart
/// from errors that end the transfer. Sets `has_sent` when a part arrives.
async fn send_rest<C, N>(
    network: &mut N,
    vote: &Vote<Id<C>>,
    snapshot: &mut Snapshot<C>,
    mut cancel: Pin<&mut (impl Future<Output = ReplicationClosed> + OptionalSend)>,
    option: &RPCOption,
    has_sent: &mut bool,
) -> StdResult<StdResult<SnapshotResponse<Id<C>>, Failure<C>>, StreamingError<C, Fatal<Id<C>>>>
where
    C: RaftTypeConfig<SnapshotData: AsyncRead + AsyncSeek + Unpin>,
    N: SnapshotNetwork<C> + ?Sized,
{
    let meta = &snapshot.meta;
    let unreadable = |error: io::Error| {
        StorageError::from(StorageIOError::read_snapshot(Some(meta.signature()), &error))
    };
    let asked = network.received_bytes(&meta.snapshot_id, option.clone());
    let received = match in_time::<C, _>(option, asked).await {
        Ok(received) => received,
        Err(failure) => return Ok(Err(failure)),
    };
    let part_bytes = option.snapshot_chunk_size().unwrap_or(PART_BYTES);
    let parts = SnapshotParts::after(&mut *snapshot.snapshot, received, part_bytes).await;
    let mut parts = parts.map_err(unreadable)?;
    while let Some(part) = parts.next().await.map_err(unreadable)? {
        let canceled = poll_fn(|context| Poll::Ready(cancel.as_mut().poll(context)));
        if let Poll::Ready(closed) = canceled.await {
            return Err(closed.into());
        }
        let SnapshotPart { offset, bytes: data, is_last: done } = part;
        let (vote_of_part, meta) = (vote.clone(), meta.clone());
        let request = InstallSnapshotRequest { vote: vote_of_part, meta, offset, data, done };
        let sent = network.install_snapshot(request, option.clone());
        match in_time::<C, _>(option, sent).await {
            Ok(response) if done || response.vote > *vote => {
                return Ok(Ok(SnapshotResponse::new(response.vote)));
            }
            Ok(_) => *has_sent = true,
            Err(failure) => return Ok(Err(failure)),
        }
    }
    unreachable!("the response to the last part ends the transfer")
}

/// Waits for the response to `request`. A response that never comes would block replication.
async fn in_time<C: RaftTypeConfig, T>(
    option: &RPCOption,
    request: impl Future<Output = StdResult<T, Failure<C>>> + OptionalSend,
) -> StdResult<T, Failure<C>> {
    match C::timeout(option.hard_ttl(), request).await {
        Ok(response) => response,
        Err(_) => Err(NetworkError::new(&io::Error::from(io::ErrorKind::TimedOut)).into()),
    }
}

/// Returns the error of a transfer that is not to be retried.
fn final_error<C: RaftTypeConfig>(
    failure: Failure<C>,
    failures: u32,
) -> Option<StreamingError<C, Fatal<Id<C>>>> {
    let is_final = failures >= FAILURES_MAX;
    Some(match failure {
        RPCError::RemoteError(RemoteError {
            target,
            target_node,
            source: RaftError::Fatal(source),
        }) => RemoteError { target, target_node, source }.into(),
        RPCError::PayloadTooLarge(error) => NetworkError::new(&error).into(),
        _ if !is_final => return None,
        RPCError::Timeout(error) => error.into(),
        RPCError::Unreachable(error) => error.into(),
        RPCError::Network(error) => error.into(),
        error @ RPCError::RemoteError(_) => NetworkError::new(&error).into(),
    })
}

impl SnapshotReceiver {
    /// Handles a request of another node as [`Raft::install_snapshot`] does, and keeps the received
    /// bytes for [`received_bytes`](Self::received_bytes).
    ///
    /// For openraft 0.9 a part is no heartbeat. If parts delay the heartbeats, this node starts an
    /// election, which aborts the transfer. So call [`Raft::append_entries`] before each part, with
    /// the vote of `request`, no entries, and neither `prev_log_id` nor `leader_commit`.
    ///
    /// # Errors
    ///
    /// `SnapshotMismatch` if earlier bytes are missing or the snapshot is being installed: the
    /// sender retries. `Fatal` if openraft has stopped, or the part cannot be stored.
    pub async fn install_snapshot<C: Types>(
        &self,
        raft: &Raft<C>,
        request: InstallSnapshotRequest<C>,
    ) -> StdResult<InstallSnapshotResponse<Id<C>>, RaftError<Id<C>, InstallSnapshotError>> {
        let InstallSnapshotRequest { vote, meta, offset, data: bytes, done: is_last } = request;
        let current = raft.with_raft_state(|state| state.vote_ref().clone()).await?;
        if current > vote {
            return Ok(InstallSnapshotResponse { vote: current });
        }
        let part = SnapshotPart { offset, bytes, is_last };
        match self.receive(&meta.snapshot_id, &part) {
            Ok(None) => Ok(InstallSnapshotResponse { vote: current }),
            Ok(Some(stream)) => {
                let snapshot = Snapshot { meta, snapshot: Box::new(stream) };
                Ok(raft.install_full_snapshot(vote, snapshot).await?.into())
            }
            Err(Error::Snapshot(_)) => {
                let segment = |offset| SnapshotSegmentId { id: meta.snapshot_id.clone(), offset };
                let expect = segment(self.received_bytes(&meta.snapshot_id).unwrap_or(0));
                let mismatch = SnapshotMismatch { expect, got: segment(offset) };
                Err(RaftError::APIError(mismatch.into()))
            }
            Err(error) => {
                let error = StorageIOError::write_snapshot(Some(meta.signature()), &error);
                Err(RaftError::Fatal(StorageError::from(error).into()))
            }
        }
    }
}
