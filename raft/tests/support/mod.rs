//! The replicated map of the example cluster, for the tests.

use openraft::BasicNode;
use sievedb_raft::SnapshotStream;

#[expect(unreachable_pub, reason = "public in the cluster")]
#[path = "../../cluster/src/map.rs"]
mod map;

pub(crate) use map::{Map, Request, Response};

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Request,
        R = Response,
        NodeId = u64,
        Node = BasicNode,
        SnapshotData = SnapshotStream,
);
